"""What can go wrong with a site's own ways, the store and the clock (see `trouble`)."""

from collections.abc import Callable, Sequence

from slurm_lifecycle.core.machine import StepOutcome
from slurm_lifecycle.core.model import (
    AttemptOutcome,
    Identity,
    ProvisionState,
    ProvisionStatus,
    Records,
    Request,
    Verb,
)
from slurm_lifecycle.core.plan import Notice, Plan
from slurm_lifecycle.errors import AmbiguousOutcome, BackendError, StoreBusy, StoreError, TransientError
from slurm_lifecycle.ports import (
    CommandResult,
    NodeCommand,
    Notifier,
    Provisioner,
    Store,
    TicketFacts,
    Tickets,
)
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.simulation.safety.trouble import LATE_S, Troubles, Watcher
from slurm_lifecycle.simulation.timeline import START_S, Timeline


class TroubledProvisioner:
    """`ports.Provisioner` whose commands get lost, answer late, or cannot be asked how it stands."""

    def __init__(self, inner: Provisioner, timeline: Timeline, troubles: Troubles, watcher: Watcher) -> None:
        """Wrap one that works, well or badly by its own settings."""
        self._inner = inner
        self._timeline = timeline
        self._troubles = troubles
        self._watcher = watcher

    def start(self, node: str, image: str, op_id: str) -> None:
        """Begin to reimage."""
        troubles, operation = self._troubles, f"reimage {node}"
        troubles.effect_boundary(f"before {operation}")
        self._watcher.sends("reimage", node, op_id)
        if troubles.strikes("lost request"):
            self._watcher.note(node, "reimage: request lost")
            raise TransientError(operation, "the command could not be started")
        if troubles.strikes("late effect"):
            delay = troubles.pick("late effect", LATE_S)
            self._timeline.after(delay, lambda: self._late(node, image, op_id))
            troubles.effect_boundary(f"after {operation}, which comes late")
            raise AmbiguousOutcome(operation, "the command did not end in time")
        self._inner.start(node, image, op_id)
        self._watcher.happened("reimage", node, op_id)
        troubles.effect_boundary(f"after {operation}")
        if troubles.strikes("lost reply"):
            self._watcher.note(node, "reimage: reply lost")
            raise AmbiguousOutcome(operation, "the command did not end in time")

    def _late(self, node: str, image: str, op_id: str) -> None:
        try:
            self._inner.start(node, image, op_id)
        except BackendError as error:
            self._watcher.note(node, f"reimage, late: refused: {error.detail}")
            return
        self._watcher.note(node, "reimage: late effect")
        self._watcher.happened("reimage", node, op_id)

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        """How it stands, where it can be asked."""
        self._troubles.boundary(f"before poll {op_id}")
        if self._troubles.strikes("poll fails"):
            return ProvisionStatus(ProvisionState.UNKNOWN, "the command did not end in time")
        return self._inner.poll(op_id, node)

    def abort(self, op_id: str, node: str) -> None:
        """The operation is not wanted any more."""
        self._troubles.boundary(f"before abort {op_id}")
        self._inner.abort(op_id, node)


class TroubledDesk:
    """Tickets, notices and questions to nodes: what is told may be lost, and nobody may be there.

    Attributes:
        nobody_is_told: notices reach nobody.
    """

    def __init__(
        self,
        tickets: Tickets,
        notifier: Notifier,
        node_command: NodeCommand,
        troubles: Troubles,
        watcher: Watcher,
    ) -> None:
        """Wrap a desk that works."""
        self.nobody_is_told = False
        self._tickets = tickets
        self._notifier = notifier
        self._node_command = node_command
        self._troubles = troubles
        self._watcher = watcher

    def write(self, facts: TicketFacts) -> str:
        """A ticket."""
        self._troubles.effect_boundary(f"before ticket {facts.op_id}")
        self._watcher.sends("ticket", facts.node, facts.op_id)
        if self._troubles.strikes("ticket fails"):
            if self._troubles.pick("ticket fails", (True, False)):
                # The site's command made it and failed after that.
                self._tickets.write(facts)
                self._watcher.happened("ticket", facts.node, facts.op_id)
            raise TransientError(f"ticket {facts.op_id}", "the command failed")
        where = self._tickets.write(facts)
        self._watcher.happened("ticket", facts.node, facts.op_id)
        self._troubles.effect_boundary(f"after ticket {facts.op_id}")
        return where

    def notify(self, notice: Notice) -> None:
        """A notice."""
        self._troubles.boundary(f"before notice {notice.key}")
        if not self.nobody_is_told:
            self._notifier.notify(notice)

    def run(self, node: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        """A question to a node."""
        self._troubles.boundary(f"before asking {node}")
        return self._node_command.run(node, argv, timeout_s)


class TroubledStore:
    """`ports.Store` that is locked or full at times; the daemon may die around every write."""

    def __init__(self, inner: Store, troubles: Troubles, wrote: Callable[[], None]) -> None:
        """Wrap the real one; `wrote` is called after each write that was committed."""
        self._inner = inner
        self._troubles = troubles
        self._wrote = wrote

    def _before(self, what: str) -> None:
        self._troubles.boundary(f"before {what}")
        if self._troubles.strikes("store fails"):
            if self._troubles.pick("store fails", (True, False)):
                raise StoreBusy("the store is locked by another process")
            raise StoreError("the store's disk is full: nothing was written")

    def _after(self, what: str) -> None:
        self._wrote()
        self._troubles.boundary(f"after {what}")

    def identity(self) -> Identity:
        """As it is."""
        return self._inner.identity()

    def load(self, now: float) -> Records:
        """What decisions need."""
        self._before("load")
        return self._inner.load(now)

    def apply(self, plan: Plan, now: float) -> None:
        """A plan's rows."""
        self._before("apply")
        self._inner.apply(plan, now)
        self._after("apply")

    def mark_sent(self, op_id: str) -> None:
        """The effect was handed over."""
        self._troubles.effect_boundary("before mark_sent")
        self._before("mark_sent")
        self._inner.mark_sent(op_id)
        self._after("mark_sent")

    def resolve(self, op_id: str, outcome: AttemptOutcome, detail: str, now: float) -> None:
        """End an attempt at the edge."""
        self._before("resolve")
        self._inner.resolve(op_id, outcome, detail, now)
        self._after("resolve")

    def end_step(self, op_id: str, n: int, outcome: StepOutcome, detail: str, now: float) -> None:
        """What came of sending one command."""
        self._troubles.effect_boundary("before end_step")
        self._before("end_step")
        self._inner.end_step(op_id, n, outcome, detail, now)
        self._after("end_step")

    def add_request(self, verb: Verb, subject: str, actor: str, text: str, now: float) -> int:
        """A person's request."""
        return self._inner.add_request(verb, subject, actor, text, now)

    def pending_requests(self) -> tuple[Request, ...]:
        """Requests without an answer."""
        return self._inner.pending_requests()


class WallClock:
    """The host's clocks: the monotonic one is right, the wall clock may be off.

    Attributes:
        off_s: how much the wall clock is ahead of the truth.
    """

    def __init__(self, timeline: Timeline) -> None:
        """Right to begin with."""
        self.off_s = 0.0
        self._timeline = timeline

    def wall(self) -> float:
        """What the host takes for the time."""
        return self._timeline.now + self.off_s

    def monotonic(self) -> float:
        """Seconds since the host was switched on."""
        return self._timeline.now - START_S + 1000.0

    def daemon_clock(self) -> SystemClock:
        """The clock of a daemon that starts now; whoever starts one has put a stepped clock right before."""
        if abs(self.off_s) > 5.0:
            self.off_s = 0.0
        return SystemClock(wall=self.wall, monotonic=self.monotonic)
