"""What one tick decides: rows to write, actions to take after that, and why nothing is done elsewhere."""

from dataclasses import dataclass

from slurm_lifecycle.core.machine import AttemptStep
from slurm_lifecycle.core.model import Attempt, BreakerHit, Fence, Finding, Hold, Incident, Phase, Trip


@dataclass(frozen=True, slots=True)
class Drain:
    """Convergent: put the node into DRAIN with our reason."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class SetComment:
    """Convergent: the node's Comment, foreign content kept (`expected` is what was there when planned)."""

    node: str
    comment: str
    expected: str


@dataclass(frozen=True, slots=True)
class CreateFence:
    """Convergent: the reservation that keeps jobs off."""

    name: str
    node: str


@dataclass(frozen=True, slots=True)
class RenewFence:
    """Convergent: move a fence's end (Slurm stores UNLIMITED as 365 days)."""

    name: str
    end_s: float


@dataclass(frozen=True, slots=True)
class Undrain:
    """Releasing: give the node back. `resume` where a long outage left it DOWN+DRAIN."""

    node: str
    incident_id: str
    resume: bool


@dataclass(frozen=True, slots=True)
class RemoveFence:
    """Releasing: the last act of a return, or of a cancelled incident."""

    name: str
    node: str


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """One-shot: carry out a reserved attempt (reboot, reimage, ticket).

    Attributes:
        again: it was reserved by an earlier tick that did not get to mark it as sent; only for effects that
            do nothing twice for one operation id.
    """

    attempt: Attempt
    fence: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class SendStep:
    """One-shot: one command of an attempt that goes step by step, to the node's BMC or its provisioner."""

    attempt: Attempt
    step: AttemptStep
    fence: str

    @property
    def node(self) -> str:
        """Whose machine it is."""
        return self.attempt.node


@dataclass(frozen=True, slots=True)
class AbortImage:
    """Tell the provisioner that an operation is over without success; harmless when told twice."""

    node: str
    op_id: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Tell people.

    Attributes:
        urgency: "page" or "info".
        key: stable, so that one cause gives one notice.
    """

    key: str
    urgency: str
    node: str
    text: str


Action = (
    Drain
    | SetComment
    | CreateFence
    | RenewFence
    | Undrain
    | RemoveFence
    | StartAttempt
    | SendStep
    | AbortImage
    | Notice
)


@dataclass(frozen=True, slots=True)
class Held:
    """Why the planner did not act on a node now, in words for a person."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the append-only history."""

    at: float
    node: str
    kind: str
    text: str
    actor: str = "daemon"
    incident_id: str = ""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node in words, kept in the store for the CLI."""

    node: str
    phase: Phase
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one tick decided: rows to write (inserted or replaced by key) and actions to take after that.

    `held` explains every node that would be acted on but is not. `standing` is what waits for a person, named
    anew in every plan; the notifier tells it once in a while. Replanning a settled fleet gives neither
    rows nor actions. `not_acting` says why this daemon may do nothing on the whole cluster, "" when it may.
    """

    incidents: tuple[Incident, ...] = ()
    findings: tuple[Finding, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    steps: tuple[AttemptStep, ...] = ()
    fences: tuple[Fence, ...] = ()
    trips: tuple[Trip, ...] = ()
    hits: tuple[BreakerHit, ...] = ()
    holds: tuple[Hold, ...] = ()
    events: tuple[Event, ...] = ()
    requests_done: tuple[tuple[int, str], ...] = ()
    actions: tuple[Action, ...] = ()
    held: tuple[Held, ...] = ()
    statuses: tuple[NodeStatus, ...] = ()
    not_acting: str = ""
    standing: tuple[Notice, ...] = ()

    @property
    def settled(self) -> bool:
        """True when nothing is to be written and nothing to be done."""
        return not (
            self.incidents
            or self.findings
            or self.attempts
            or self.steps
            or self.fences
            or self.trips
            or self.hits
            or self.holds
            or self.events
            or self.requests_done
            or self.actions
        )
