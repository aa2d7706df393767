"""`ports.Bmc` over simulated machines: answers at once, with the vices that the controllers were given.

The commands of a real daemon are carried out on the machine itself. What a controller accepts and never does,
says of the power, or never answers is drawn a request.
"""

from collections.abc import Callable, Collection, Mapping

from slurm_lifecycle.core.machine import (
    BmcProblem,
    BootOverride,
    MachineCommand,
    MachineReading,
    PowerState,
    StepOutcome,
)
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.simulation.machines.bmc import Bmcs
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.streams import stream

# systemd stops its services and powers off; a host that hangs does not hear the button.
SHUTDOWN_S = 40.0
_REFUSED_AFTER_OFF_S = 5.0
_SERIAL = "S-{}"
_NO_OVERRIDE = BootOverride("Disabled", "None", "UEFI")


class SimBmc:
    """Implements `ports.Bmc`; a network boot is not simulated, so it knows none.

    Attributes:
        on_done: a command was carried out, by node and command.
    """

    def __init__(self, machines: Machines, bmcs: Bmcs) -> None:
        """All of them answer, as their settings allow."""
        self.on_done: list[Callable[[str, MachineCommand], None]] = []
        self._machines = machines
        self._bmcs = bmcs
        self._asked: dict[str, int] = {}
        self._off_at: dict[str, float] = {}

    def read(self, nodes: Collection[str], deadline_s: float) -> Mapping[str, MachineReading]:
        """What the controllers say now."""
        del deadline_s
        return {node: self._reading(node) for node in nodes}

    def send(self, commands: Mapping[str, MachineCommand], deadline_s: float) -> Mapping[str, Sent]:
        """Send one command a node."""
        del deadline_s
        return {node: self._send(node, command) for node, command in commands.items()}

    def _dice(self, node: str) -> tuple[float, float]:
        number = self._asked.get(node, 0)
        self._asked[node] = number + 1
        rng = stream(self._machines.seed, node, f"bmc port/{number}")
        return rng.random(), rng.random()

    def _reading(self, node: str) -> MachineReading:
        now = self._machines.timeline.now
        hangs, lies = self._dice(node)
        if node not in self._machines or hangs < self._bmcs.settings.hangs:
            return MachineReading(node, now, problem=BmcProblem.TIMEOUT, detail="no answer in time")
        powered = self._machines.machine(node).powered or lies < self._bmcs.settings.lies
        power = PowerState.ON if powered else PowerState.OFF
        return MachineReading(node, now, power, _SERIAL.format(node), _NO_OVERRIDE)

    def _send(self, node: str, command: MachineCommand) -> Sent:
        settings = self._bmcs.settings
        hangs, deaf = self._dice(node)
        if node not in self._machines:
            return Sent(StepOutcome.REFUSED, "no route to host")
        if command in (MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR, MachineCommand.AC_CYCLE):
            return Sent(StepOutcome.UNSUPPORTED, f"no {command.value} here")
        off_at = self._off_at.get(node, float("-inf"))
        if command is MachineCommand.ON and self._machines.timeline.now - off_at < _REFUSED_AFTER_OFF_S:
            return Sent(StepOutcome.REFUSED, "409: just switched off")
        if hangs < settings.hangs / 2:
            return Sent(StepOutcome.AMBIGUOUS, "no answer in time")
        if deaf >= settings.deaf:
            self._do(node, command)
        if hangs < settings.hangs:
            return Sent(StepOutcome.AMBIGUOUS, "done, and no answer in time")
        return Sent(StepOutcome.ACCEPTED)

    def _do(self, node: str, command: MachineCommand) -> None:
        machines = self._machines
        machine = machines.machine(node)
        for told in self.on_done:
            told(node, command)
        if command is MachineCommand.ON:
            machines.power_on(node, "power")
        elif command is MachineCommand.FORCE_OFF:
            self._off(node)
        elif machine.up:
            boots = machine.boots
            machines.timeline.after(SHUTDOWN_S, lambda: self._shut_down(node, boots))

    def _shut_down(self, node: str, boots: int) -> None:
        if node in self._machines and self._machines.machine(node).boots == boots:
            self._off(node)

    def _off(self, node: str) -> None:
        if self._machines.machine(node).powered:
            self._off_at[node] = self._machines.timeline.now
            self._machines.power_off(node)
