"""Controllers that are asked while a daemon may die: judged when a command is sent and when it is done."""

from collections.abc import Collection, Mapping

from slurm_lifecycle.core.machine import RESTORING, MachineCommand, MachineReading
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.simulation.machines.bmc_port import SimBmc
from slurm_lifecycle.simulation.safety.trouble import Troubles, Watcher


def kind_of(command: MachineCommand) -> str:
    """What an oracle knows a command as: `power` takes something away, `restore` gives it back."""
    return "restore" if command in RESTORING else "power"


class TroubledBmc:
    """`ports.Bmc` between whose commands the daemon may die, before and after each."""

    def __init__(self, inner: SimBmc, troubles: Troubles, watcher: Watcher) -> None:
        """Wrap controllers that have vices of their own."""
        self._inner = inner
        self._troubles = troubles
        self._watcher = watcher
        inner.on_done.append(lambda node, command: watcher.happened(kind_of(command), node, command.value))

    def read(self, nodes: Collection[str], deadline_s: float) -> Mapping[str, MachineReading]:
        """What they say now."""
        self._troubles.boundary("before reading BMCs")
        return self._inner.read(nodes, deadline_s)

    def send(self, commands: Mapping[str, MachineCommand], deadline_s: float) -> Mapping[str, Sent]:
        """One command a node, one after another, so that a death may lie between any two."""
        found: dict[str, Sent] = {}
        for node, command in commands.items():
            self._troubles.effect_boundary(f"before {command.value} {node}")
            self._watcher.sends(kind_of(command), node, command.value)
            found.update(self._inner.send({node: command}, deadline_s))
            self._troubles.effect_boundary(f"after {command.value} {node}")
        return found
