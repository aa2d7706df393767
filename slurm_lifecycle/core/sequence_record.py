"""What a power cycle or a network reimage has on record, and the forms in which its next step is told."""

from dataclasses import dataclass
from enum import Enum

from slurm_lifecycle.core.machine import (
    AttemptStep,
    BmcProblem,
    MachineCommand,
    MachineReading,
    StepOutcome,
)
from slurm_lifecycle.core.model import AttemptOutcome
from slurm_lifecycle.core.policy import MachineLimits

# A BMC that answers in 20 s (seen on DGX H100) may carry a request out after its client gave up.
LATE_S = 30.0
# slurmd reckons its boot time from an uptime in whole seconds.
_BOOT_TIME_JITTER_S = 2.0
_OFF_COMMANDS = (MachineCommand.GRACEFUL_OFF, MachineCommand.FORCE_OFF, MachineCommand.AC_CYCLE)


class Goal(Enum):
    """What the sequence is for."""

    POWER_CYCLE = "power cycle"
    AC_CYCLE = "AC cycle"
    REIMAGE = "reimage"


class Marker(Enum):
    """What the node's image marker says of a reimage."""

    PROVEN = "proven"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the next command may depend on.

    Attributes:
        steps: commands of this attempt on record, in order.
        reading: None where the BMC was not asked in this tick.
        may_not: why nothing disruptive may be sent now (drain, jobs, fence, a person's word); "" when it may.
        gone: Slurm has no such node any more.
        booted_at: when the new boot began, where one that is newer than the attempt has registered.
        marker: for a reimage.
        marker_text: what the marker names, for people.
        install_failed: why the provisioner says that the installation failed.
    """

    goal: Goal
    created_at: float
    deadline: float
    steps: tuple[AttemptStep, ...]
    reading: MachineReading | None
    now: float
    limits: MachineLimits
    may_not: str = ""
    booted_at: float | None = None
    marker: Marker = Marker.OTHER
    marker_text: str = ""
    install_failed: str = ""
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Send this command now."""

    command: MachineCommand


@dataclass(frozen=True, slots=True)
class Note:
    """Write down that the machine was seen off."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class End:
    """The attempt is over."""

    outcome: AttemptOutcome
    detail: str


Decision = Send | Note | Wait | End


class Past:
    """The commands on record, as the rules ask for them."""

    def __init__(self, now: Situation) -> None:
        """Look once at what is on record."""
        self._now = now
        self.off_seen = next((one for one in now.steps if one.command is MachineCommand.OFF_SEEN), None)
        self.on_sent = self.sent(MachineCommand.ON) is not None
        self.off_sent = any(self.sent(one) for one in _OFF_COMMANDS)
        self.begun = self.off_sent or self.off_seen is not None or self.on_sent

    @property
    def booted(self) -> bool:
        """Whether a boot was seen that began after the last thing that leads to one.

        One that is newer than the attempt only may be of a machine that restarted by itself before it was
        told to go off, and that goes off now.
        """
        at = self._now.booted_at
        if at is None or (self.off_sent and self.off_seen is None and not self.on_sent):
            return False
        ways = (self.off_seen, self.sent(MachineCommand.ON))
        floor = max((one.created_at for one in ways if one is not None), default=self._now.created_at)
        return at > floor - _BOOT_TIME_JITTER_S

    def sent(self, command: MachineCommand) -> AttemptStep | None:
        """The last one that was, or may have been, sent."""
        return next((one for one in reversed(self._all(command)) if _may_be_sent(one)), None)

    def answered(self, command: MachineCommand) -> int:
        """How often it was sent, those left out that a daemon died over."""
        return sum(1 for one in self._all(command) if _may_be_sent(one) and one.outcome is not None)

    def refused(self, command: MachineCommand) -> AttemptStep | None:
        """The last one, where it was refused."""
        last = next(reversed(self._all(command)), None)
        return last if last is not None and last.outcome is StepOutcome.REFUSED else None

    def refusals(self, command: MachineCommand) -> int:
        """How often it was refused in a row."""
        count = 0
        for one in reversed(self._all(command)):
            if one.outcome is not StepOutcome.REFUSED:
                break
            count += 1
        return count

    def unsupported(self, command: MachineCommand) -> AttemptStep | None:
        """That this machine has no such command."""
        found = (one for one in self._all(command) if one.outcome is StepOutcome.UNSUPPORTED)
        return next(found, None)

    def _all(self, command: MachineCommand) -> list[AttemptStep]:
        return [one for one in self._now.steps if one.command is command]

    def fresh(self, step: AttemptStep | None) -> MachineReading | None:
        """The reading, where it can be evidence of what became of the command."""
        reading = self._now.reading
        if reading is None or reading.problem is not BmcProblem.NONE:
            return None
        return reading if step is None or reading.asked_at > settled_at(step) else None


def _may_be_sent(step: AttemptStep) -> bool:
    return step.outcome in (None, StepOutcome.ACCEPTED, StepOutcome.AMBIGUOUS)


def settled_at(step: AttemptStep) -> float:
    """From when on a reading is evidence of what became of a command."""
    ended = step.created_at if step.ended_at is None else step.ended_at
    return ended if step.outcome is StepOutcome.ACCEPTED else ended + LATE_S
