"""Reimages simulated machines: boots the installer through the management controller, then the new image."""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_lifecycle.core.model import ProvisionState, ProvisionStatus
from slurm_lifecycle.errors import PermanentError, TransientError
from slurm_lifecycle.simulation.machines.bmc import Answer, Bmcs, Power
from slurm_lifecycle.simulation.machines.faults import HOUR_S, MINUTE_S
from slurm_lifecycle.simulation.machines.hardware import Machine
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.streams import stream

WELL = "well"
_RUNNING, _DONE, _FAILED = ProvisionState.RUNNING, ProvisionState.DONE, ProvisionState.FAILED


@dataclass(frozen=True, slots=True)
class ProvisionerSettings:
    """How reimages go.

    Attributes:
        takes_s: from the start to the boot of the new image; 40 min with its checks.
        spread: share by which they differ.
        gives_up_s: after this it says that it failed.
        fails: chance that the installer fails; the machine then boots its old image, or stays off.
        never_ends: chance that it works and says `running` for ever.
        without_boot: chance that it says `done` and did nothing.
        unknown: chance that it works and cannot say how it stands.
        refuses, not_now: chances that it is not begun.
    """

    takes_s: float = 40 * MINUTE_S
    spread: float = 0.2
    gives_up_s: float = 3 * HOUR_S
    fails: float = 0.0
    never_ends: float = 0.0
    without_boot: float = 0.0
    unknown: float = 0.0
    refuses: float = 0.0
    not_now: float = 0.0

    def kind(self, drawn: float) -> str:
        """How one goes, by a number from 0 to 1."""
        for name in ("fails", "never_ends", "without_boot", "unknown", "refuses", "not_now"):
            drawn -= float(getattr(self, name))
            if drawn < 0:
                return name
        return WELL


@dataclass(slots=True)
class Work:
    """One reimage."""

    op_id: str
    node: str
    kind: str
    image: str
    state: ProvisionState = _RUNNING
    text: str = ""


class SimProvisioner:
    """Implements `ports.Provisioner`.

    Attributes:
        works: by operation id.
        on_start: a reimage was accepted, by node and operation id. on_end: it came to an end.
    """

    def __init__(self, machines: Machines, bmcs: Bmcs, settings: ProvisionerSettings) -> None:
        """Nothing is under way."""
        self.works: dict[str, Work] = {}
        self.on_start: list[Callable[[str, str], None]] = []
        self.on_end: list[Callable[[str, str], None]] = []
        self._machines = machines
        self._bmcs = bmcs
        self.settings = settings
        self._asked: dict[str, int] = {}
        machines.on_boot.append(self._booted)

    # ---------------------------------------------------------------- the port

    def start(self, node: str, image: str, op_id: str) -> None:
        """Begin to reimage; an operation that was accepted is not begun again.

        Raises:
            PermanentError: it is refused.
            TransientError: not now.
        """
        if op_id in self.works:
            return
        settings = self.settings
        number = self._asked.get(op_id, 0)
        self._asked[op_id] = number + 1
        rng = stream(self._machines.seed, op_id, f"reimage/{number}")
        kind = settings.kind(rng.random())
        takes_s = settings.takes_s * (1.0 + rng.uniform(-1, 1) * settings.spread)
        if node not in self._machines or kind == "refuses":
            raise PermanentError(f"reimage {node}", "the provisioner refuses")
        if kind == "not_now":
            raise TransientError(f"reimage {node}", "not now")
        work = self.works[op_id] = Work(op_id, node, kind, image)
        for told in self.on_start:
            told(node, op_id)
        if kind == "without_boot":
            self._machines.timeline.after(takes_s, lambda: self._end(work, _DONE, "says so"))
            return
        self._machines.timeline.after(
            settings.gives_up_s, lambda: self._end(work, _FAILED, "it took too long")
        )
        self._bmcs.ask(node, Power.INSTALL, "reimage", lambda answer: self._begun(work, answer, takes_s))

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        """How it stands."""
        del node
        work = self.works.get(op_id)
        if work is None:
            return ProvisionStatus(ProvisionState.UNKNOWN, "no such operation")
        if work.kind == "unknown":
            return ProvisionStatus(ProvisionState.UNKNOWN, "cannot say")
        if work.kind == "never_ends":
            return ProvisionStatus(_RUNNING, "installing")
        return ProvisionStatus(work.state, work.text)

    def abort(self, op_id: str, node: str) -> None:
        """The machine boots from its disk from now on; what runs on it goes on."""
        del node
        if (work := self.works.get(op_id)) is not None:
            self._end(work, _FAILED, "given up")

    # ---------------------------------------------------------------- the work

    def _begun(self, work: Work, answer: Answer, takes_s: float) -> None:
        if not answer.ok:
            self._end(work, _FAILED, f"the BMC: {answer.text}")
            return
        if not self._machines.machine(work.node).installing:
            # A controller that accepts and does nothing: the installer never reports.
            self._machines.timeline.after(
                takes_s, lambda: self._end(work, _FAILED, "the installer never reported")
            )
            return
        self._machines.timeline.after(takes_s, lambda: self._installed(work))

    def _installed(self, work: Work) -> None:
        if work.node not in self._machines:
            self._end(work, _FAILED, "the node is gone")
            return
        machine = self._machines.machine(work.node)
        if not machine.installing:
            self._end(work, _FAILED, "somebody used the power meanwhile")
            return
        if work.kind == "fails":
            if stream(self._machines.seed, work.op_id, "left off").random() < 0.5:
                self._machines.power_off(work.node)
            else:
                self._machines.boot(work.node, "power")
            self._end(work, _FAILED, "the installer failed")
            return
        machine.image = (work.op_id, work.image)
        self._machines.boot(work.node, "reimage")
        if machine.stuck:
            self._end(work, _FAILED, "the new image did not boot")

    def _booted(self, machine: Machine) -> None:
        if machine.rung != "reimage":
            return
        for work in list(self.works.values()):
            if work.node == machine.name and work.state is _RUNNING and work.kind != "without_boot":
                self._end(work, _DONE, "booted the new image")

    def _end(self, work: Work, state: ProvisionState, text: str) -> None:
        if work.state is not _RUNNING:
            return
        work.state, work.text = state, text
        for told in self.on_end:
            told(work.node, work.op_id)
