"""The ports through which the service talks to the world; adapters implement them, the simulation too.

Writes raise `TransientError` (nothing happened), `PermanentError` (refused) or `AmbiguousOutcome` (it may
have happened). Every call is bounded in time by its adapter.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_lifecycle.core.machine import (
    BmcLogEntry,
    HealthReport,
    Inventory,
    MachineCommand,
    MachineReading,
    StepOutcome,
)
from slurm_lifecycle.core.model import (
    AttemptOutcome,
    Identity,
    JobView,
    NodeView,
    ProvisionStatus,
    Records,
    Request,
    ReservationView,
    Verb,
)
from slurm_lifecycle.core.plan import Notice, Plan


class Clock(Protocol):
    """Time, so that nothing else asks for it."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait; returns early when the service is asked to stop."""


class Slurm(Protocol):
    """The cluster. The three plural reads are one call each, whatever the size of the fleet."""

    def nodes(self) -> Mapping[str, NodeView]:
        """All nodes by name.

        Raises:
            TransientError: slurmctld did not answer, or its answer could not be read as a whole.
        """

    def jobs(self) -> tuple[JobView, ...]:
        """All jobs in a non-terminal state, suspended and completing ones included."""

    def reservations(self) -> Mapping[str, ReservationView]:
        """All reservations by name."""

    def node(self, name: str) -> NodeView:
        """One node, read now (compare right before a write, read again after).

        Raises:
            PermanentError: no such node.
        """

    def jobs_on(self, node: str) -> tuple[JobView, ...]:
        """The non-terminal jobs that list a node, read now."""

    def drain(self, node: str, reason: str) -> None:
        """Set DRAIN and the reason in one update, read back."""

    def undrain(self, node: str) -> None:
        """Clear DRAIN only (`UNDRAIN`)."""

    def resume(self, node: str) -> None:
        """Clear DRAIN and DOWN (`RESUME`), for a node that a long outage left DOWN+DRAIN."""

    def reboot(self, node: str) -> None:
        """Plain `scontrol reboot NODE`: no ASAP, no nextstate, no reason."""

    def set_comment(self, node: str, text: str) -> None:
        """Write the node's Comment."""

    def set_extra(self, node: str, text: str) -> None:
        """Write the node's Extra."""

    def create_fence(self, name: str, node: str) -> None:
        """Create a MAINT,IGNORE_JOBS reservation without end; one of that name and node is success."""

    def renew_fence(self, name: str, end_s: float) -> None:
        """Move a reservation's end."""

    def remove_fence(self, name: str) -> None:
        """Delete a reservation; one that is gone is success.

        Raises:
            TransientError: a job, running or pending, still belongs to it.
        """

    def requeue(self, job_id: str) -> None:
        """Requeue a batch job."""

    def release(self, job_id: str) -> None:
        """Release a held job."""

    def config(self) -> Mapping[str, str]:
        """slurmctld's configuration as `scontrol show config` prints it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of sending one command to one BMC; `detail` is one line."""

    outcome: StepOutcome
    detail: str = ""


class Bmc(Protocol):
    """The BMCs of the fleet. Reads and sends are many at once, and bounded as a whole by their deadline.

    A BMC whose serial number is not the one on record, or that has none on record, is never sent anything:
    the adapter looks right before it sends, whoever asks.
    """

    def read(self, nodes: Collection[str], deadline_s: float) -> Mapping[str, MachineReading]:
        """Power, serial and boot override, read now; every node has an entry, never raises."""

    def send(self, commands: Mapping[str, MachineCommand], deadline_s: float) -> Mapping[str, Sent]:
        """Send one command a node, each at most once; every node has an entry, never raises.

        What is not known to have been refused by the deadline is ambiguous.
        """


class MachineHealth(Protocol):
    """Out-of-band health, polled in the background."""

    def reports(self) -> Mapping[str, HealthReport]:
        """The latest report of each node that has a BMC; returns at once."""


class MachineDetails(Protocol):
    """What only a ticket, a bring-up or a person asks for; slow (minutes on some BMCs)."""

    def inventory(self, node: str) -> Inventory:
        """All parts; never raises for the BMC's own failures, `problem` says what is missing."""

    def log(self, node: str, limit: int) -> tuple[BmcLogEntry, ...]:
        """The newest entries of the event log, newest first.

        Raises:
            TransientError: it could not be read.
        """


class Provisioner(Protocol):
    """Reimages nodes. All calls are idempotent by `op_id`."""

    def start(self, node: str, image: str, op_id: str) -> None:
        """Begin to reimage; returns as soon as the work was accepted."""

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        """How the operation stands; never raises for a site's own failure, says UNKNOWN instead."""

    def abort(self, op_id: str, node: str) -> None:
        """The operation is not wanted any more (the next start is from disk); best effort, twice is once.

        Raises:
            BackendError: it could not be told.
        """


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's end on a node. `code` is None when it did not end in time."""

    code: int | None
    stdout: str
    stderr: str


class NodeCommand(Protocol):
    """Runs one command on one node (ssh or a site's own way); for reading details, never for repair."""

    def run(self, node: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        """Run and wait.

        Raises:
            TransientError: the node could not be reached, or no way is configured.
        """


@dataclass(frozen=True, slots=True)
class TicketFacts:
    """What an RMA ticket says; `report` is the node's own report.json, or None with `report_error`."""

    op_id: str
    node: str
    code: str
    component: str
    text: str
    opened_at: float
    now: float
    history: tuple[str, ...]
    report: Mapping[str, object] | None
    report_error: str


class Tickets(Protocol):
    """Writes RMA tickets and hands them to a site's own command. Idempotent by op id."""

    def write(self, facts: TicketFacts) -> str:
        """Write the ticket; returns where it is."""


class Notifier(Protocol):
    """Tells people. Failure to tell is logged, never raised."""

    def notify(self, notice: Notice) -> None:
        """Hand over one notice."""


class Store(Protocol):
    """The journal. Every call is one transaction."""

    def identity(self) -> Identity:
        """Which instance this store is."""

    def load(self, now: float) -> Records:
        """What decisions need."""

    def apply(self, plan: Plan, now: float) -> None:
        """Write a plan's rows; all or nothing, before any effect."""

    def mark_sent(self, op_id: str) -> None:
        """The effect was handed over."""

    def resolve(self, op_id: str, outcome: AttemptOutcome, detail: str, now: float) -> None:
        """End an attempt at the edge (never sent, or refused); evidence ends the others by plan."""

    def end_step(self, op_id: str, n: int, outcome: StepOutcome, detail: str, now: float) -> None:
        """What came of sending one command of an attempt."""

    def add_request(self, verb: Verb, subject: str, actor: str, text: str, now: float) -> int:
        """Put a person's request into the inbox; returns its id."""

    def pending_requests(self) -> tuple[Request, ...]:
        """Requests without an answer."""
