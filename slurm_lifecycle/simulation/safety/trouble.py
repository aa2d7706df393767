"""Everything that can go wrong between the daemon and what it talks to.

Wrappers around the ports: requests and replies that are lost, requests that slurmctld carries out late, old
reads, a slurmctld that is away, stores that fail, and the death of the daemon before and after every call.
Each seed draws which kinds are on and how strong (swarm testing: a run with few kinds of trouble gets
further than one with all of them). Each kind has a stream of its own.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from slurm_lifecycle.core.model import JobView, NodeView, ReservationView
from slurm_lifecycle.core.ownership import UNREADABLE
from slurm_lifecycle.errors import AmbiguousOutcome, BackendError, TransientError
from slurm_lifecycle.ports import Slurm
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline

T = TypeVar("T")

# Chances a call, by kind; each seed takes one of them. A zero is there more often the rarer a mishap is.
STRENGTHS: Mapping[str, tuple[float, ...]] = {
    "kill": (0.0, 0.002, 0.005, 0.02),
    "kill at an effect": (0.0, 0.05, 0.2),
    "lost request": (0.0, 0.05, 0.2),
    "lost reply": (0.0, 0.05, 0.2),
    "late effect": (0.0, 0.0, 0.05, 0.15),
    "old nodes": (0.0, 0.1),
    "old jobs": (0.0, 0.0, 0.1),
    "old reservations": (0.0, 0.0, 0.1),
    "slow read": (0.0, 0.02, 0.1),
    "between": (0.0, 0.01, 0.05),
    "ticket fails": (0.0, 0.0, 0.3, 1.0),
    "poll fails": (0.0, 0.1, 0.3),
    "store fails": (0.0, 0.0, 0.01, 0.05),
}
# A hung slurmctld carries a request out when it wakes up, its client long gone (measured on 22.05). The
# daemon counts on 120 s being far longer than that.
LATE_S = (0.5, 2.0, 10.0, 60.0)
# The daemon counts on a read being of the last minute or two: after a long outage it is a fresh one.
OLD_AT_MOST_S = 60.0
SLOW_S = (0.2, 1.0, 5.0)


class Killed(BaseException):
    """The daemon died here; nothing of its own may catch it."""


class Watcher(Protocol):
    """Who judges what the daemon does. A call is judged when it is sent, also where it is lost after that."""

    def looked(self, what: str, node: str) -> None:
        """A read was answered; `node` is "" for those of the whole cluster."""

    def sends(self, what: str, node: str, text: str) -> None:
        """A write is being sent, right now."""

    def happened(self, what: str, node: str, text: str) -> None:
        """A write took effect, perhaps later than it was sent."""

    def note(self, node: str, text: str) -> None:
        """A line for the trace."""


class Troubles:
    """Which kinds of trouble are on in this run, and their dice.

    Attributes:
        on: chance by kind.
        kills: how often the daemon was killed.
        counts: how often each kind struck.
    """

    def __init__(self, seed: int | str) -> None:
        """Draw the strengths."""
        self._dice = {kind: stream(seed, kind, "trouble") for kind in STRENGTHS}
        self.on = {kind: self._dice[kind].choice(chances) for kind, chances in STRENGTHS.items()}
        self.kills = 0
        self.counts = dict.fromkeys(STRENGTHS, 0)

    def stop(self) -> None:
        """From now on everything works."""
        self.on = dict.fromkeys(STRENGTHS, 0.0)

    def strikes(self, kind: str) -> bool:
        """Whether it happens now."""
        chance = self.on[kind]
        struck = chance > 0.0 and self._dice[kind].random() < chance
        self.counts[kind] += struck
        return struck

    def pick(self, kind: str, choices: tuple[T, ...]) -> T:
        """One of several, by the dice of a kind."""
        return self._dice[kind].choice(choices)

    def boundary(self, where: str) -> None:
        """A place between two acts, where the daemon may die."""
        if self.strikes("kill"):
            self.kills += 1
            raise Killed(where)

    def effect_boundary(self, where: str) -> None:
        """A place right before or after something that must not be done twice: deaths there are the worst."""
        self.boundary(where)
        if self.strikes("kill at an effect"):
            self.kills += 1
            raise Killed(where)


class TroubledSlurm:
    """`ports.Slurm` as the daemon sees it.

    Attributes:
        away: slurmctld does not answer at all.
        odd: a token that a node shows besides its others (a state that nobody knows, power saving).
        moved: partitions that an administrator gave to a node instead of its own.
        unreadable: nodes whose record cannot be parsed.
        between: something else that happens in the world, called before a read now and then.
        delivered: the nodes as last told to the daemon; delivered_reservations likewise.
        old_read: something in its last look at the whole cluster was old.
        whole_reads: such looks so far.
    """

    def __init__(self, inner: Slurm, timeline: Timeline, troubles: Troubles, watcher: Watcher) -> None:
        """Wrap a Slurm that works."""
        self.away = False
        self.odd: dict[str, str] = {}
        self.moved: dict[str, tuple[str, ...]] = {}
        self.unreadable: set[str] = set()
        self.between: Callable[[], None] = lambda: None
        self.delivered: Mapping[str, NodeView] = {}
        self.old_read = False
        self.whole_reads = 0
        self.delivered_reservations: Mapping[str, ReservationView] = {}
        self._inner = inner
        self._timeline = timeline
        self._troubles = troubles
        self._watcher = watcher
        self._observing = self._may_be_old = False
        self._last_at = -OLD_AT_MOST_S
        self._last_nodes: Mapping[str, NodeView] | None = None
        self._last_jobs: tuple[JobView, ...] | None = None
        self._last_reservations: Mapping[str, ReservationView] | None = None

    # ---------------------------------------------------------------- reads

    def _asked(self, what: str) -> None:
        self._troubles.boundary(f"before {what}")
        if self._troubles.strikes("slow read"):
            self._timeline.run_until(self._timeline.now + self._troubles.pick("slow read", SLOW_S))
        if self._troubles.strikes("between"):
            self.between()
        if self.away:
            raise TransientError(what, "Unable to contact slurm controller (connect failure)")

    def _shown(self, view: NodeView) -> NodeView:
        if view.name in self.unreadable:
            return NodeView(view.name, frozenset({UNREADABLE}))
        token = self.odd.get(view.name)
        if token is None and view.name not in self.moved:
            return view
        # Written out: `dataclasses.replace` is slow, and this is read in every tick.
        return NodeView(
            view.name,
            view.state if token is None else view.state | {token},
            view.reason,
            view.reason_at_s,
            view.comment,
            view.extra,
            view.boot_time_s,
            view.slurmd_start_s,
            self.moved.get(view.name, view.partitions),
            view.gpus,
            view.version,
        )

    def nodes(self) -> Mapping[str, NodeView]:
        """All nodes, now and then as they were at the last read."""
        self._asked("read nodes")
        self._observing = True
        self._may_be_old = self._timeline.now - self._last_at <= OLD_AT_MOST_S
        self.old_read = self._may_be_old and self._troubles.strikes("old nodes")
        if not self.old_read:
            self._last_at = self._timeline.now
            found = self._inner.nodes()
            if self.odd or self.unreadable or self.moved:
                found = {name: self._shown(view) for name, view in found.items()}
            self._last_nodes = found
        assert self._last_nodes is not None
        self.delivered = self._last_nodes
        self._watcher.looked("nodes", "")
        return self.delivered

    def jobs(self) -> tuple[JobView, ...]:
        """All jobs, now and then as they were at the last read."""
        self._asked("read jobs")
        if self._last_jobs is not None and self._may_be_old and self._troubles.strikes("old jobs"):
            self.old_read = True
        else:
            self._last_jobs = self._inner.jobs()
        self._watcher.looked("jobs", "")
        return self._last_jobs

    def reservations(self) -> Mapping[str, ReservationView]:
        """All reservations; only the read of the whole cluster is old at times, not the last look."""
        self._asked("read reservations")
        observing, self._observing = self._observing, False
        old = observing and self._may_be_old and self._last_reservations is not None
        if old and self._troubles.strikes("old reservations"):
            self.old_read = True
        else:
            self._last_reservations = self._inner.reservations()
        assert self._last_reservations is not None
        if observing:
            self.delivered_reservations = self._last_reservations
            self.whole_reads += 1
        self._watcher.looked("reservations", "")
        return self._last_reservations

    def node(self, name: str) -> NodeView:
        """One node as it is."""
        self._asked(f"read node {name}")
        self._observing = False
        view = self._shown(self._inner.node(name))
        self._watcher.looked("node", name)
        return view

    def jobs_on(self, node: str) -> tuple[JobView, ...]:
        """The jobs of a node as they are: the last thing that is read before something is sent."""
        self._troubles.boundary(f"before read jobs on {node}")
        if self.away:
            raise TransientError(f"read jobs on {node}", "connect failure")
        found = self._inner.jobs_on(node)
        self._watcher.looked("jobs_on", node)
        return found

    def config(self) -> Mapping[str, str]:
        """As it is."""
        return self._inner.config()

    # ---------------------------------------------------------------- writes

    def _write(self, what: str, node: str, text: str, act: Callable[[], None]) -> None:
        troubles, operation = self._troubles, f"{what} {node}"
        boundary = troubles.effect_boundary if what == "reboot" else troubles.boundary
        boundary(f"before {operation}")
        self._watcher.sends(what, node, text)
        if self.away or troubles.strikes("lost request"):
            self._watcher.note(node, f"{what}: request lost")
            raise TransientError(operation, "Unable to contact slurm controller (connect failure)")
        if troubles.strikes("late effect"):
            delay = troubles.pick("late effect", LATE_S)
            self._timeline.after(delay, lambda: self._late(what, node, text, act))
            boundary(f"after {operation}, which comes late")
            raise AmbiguousOutcome(operation, "no answer in time")
        try:
            act()
        except AmbiguousOutcome:
            # Slurm took it, and reading back shows something else.
            self._watcher.happened(what, node, text)
            raise
        self._watcher.happened(what, node, text)
        boundary(f"after {operation}")
        if troubles.strikes("lost reply"):
            self._watcher.note(node, f"{what}: reply lost")
            raise AmbiguousOutcome(operation, "the reply was lost")

    def _late(self, what: str, node: str, text: str, act: Callable[[], None]) -> None:
        try:
            act()
        except AmbiguousOutcome as error:
            self._watcher.note(node, f"{what}, late: {error.detail}")
        except BackendError as error:
            self._watcher.note(node, f"{what}, late: refused: {error.detail}")
            return
        self._watcher.note(node, f"{what}: late effect")
        self._watcher.happened(what, node, text)

    def drain(self, node: str, reason: str) -> None:
        """Set DRAIN and the reason."""
        self._write("drain", node, reason, lambda: self._inner.drain(node, reason))

    def undrain(self, node: str) -> None:
        """Clear DRAIN."""
        self._write("undrain", node, "", lambda: self._inner.undrain(node))

    def resume(self, node: str) -> None:
        """Clear DRAIN and DOWN."""
        self._write("resume", node, "", lambda: self._inner.resume(node))

    def reboot(self, node: str) -> None:
        """Plain reboot."""
        self._write("reboot", node, "", lambda: self._inner.reboot(node))

    def set_comment(self, node: str, text: str) -> None:
        """Write the Comment."""
        self._write("comment", node, text, lambda: self._inner.set_comment(node, text))

    def set_extra(self, node: str, text: str) -> None:
        """Write the Extra."""
        self._write("extra", node, text, lambda: self._inner.set_extra(node, text))

    def create_fence(self, name: str, node: str) -> None:
        """Create a fence."""
        self._write("fence", node, name, lambda: self._inner.create_fence(name, node))

    def renew_fence(self, name: str, end_s: float) -> None:
        """Move a fence's end."""
        self._write("renew", "", name, lambda: self._inner.renew_fence(name, end_s))

    def remove_fence(self, name: str) -> None:
        """Delete a fence."""
        self._write("unfence", "", name, lambda: self._inner.remove_fence(name))

    def requeue(self, job_id: str) -> None:
        """Requeue a job."""
        self._write("requeue", "", job_id, lambda: self._inner.requeue(job_id))

    def release(self, job_id: str) -> None:
        """Release a job."""
        self._write("release", "", job_id, lambda: self._inner.release(job_id))
