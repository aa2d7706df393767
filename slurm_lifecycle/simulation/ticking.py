"""When the daemon of the laboratory has to tick: at once after a change, else when something comes due.

A daemon on a cluster ticks every ten seconds, four hundred and sixty thousand times in 54 days, and nearly
always finds nothing. The planner is level-triggered: what it decides depends on what it reads, on the record,
and on the times below. So a tick is left out only where the last plan was settled, nothing that it read has
changed in a way that it looks at, and none of these times has come. A test runs the same fleets with and
without leaving out and demands the same history.
"""

import math
from collections.abc import Callable, Iterator, Mapping

from slurm_lifecycle.core.draft import SLURM_SAYS
from slurm_lifecycle.core.evidence import UNSENT_AFTER_S
from slurm_lifecycle.core.ladder import MAX_CANCELLED_IN_A_ROW
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, NodeView, Records, ReservationView, Rung, Step
from slurm_lifecycle.core.planner import RENEW_BEFORE_S
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.timeline import Timeline

# Tokens of a node in service; among them a change means a job that came or went.
_CALM = frozenset({"IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED"})
NEVER = float("inf")
REIMAGE_ASKED_EVERY_S = 60.0


def due_times(
    records: Records, reservations: Mapping[str, ReservationView], policy: Policy
) -> Iterator[float]:
    """Moments at which the planner decides otherwise although nothing has changed."""
    for incident in records.incidents.values():
        if incident.deadline is not None:
            yield incident.deadline
        if incident.verify_since is not None:
            yield incident.verify_since + policy.verify_settle_s
        if incident.step is Step.DRAINING:
            yield incident.step_since + policy.page_busy_after_s
    for attempt in records.attempts:
        yield from _due_of(attempt, policy)
    for finding in records.findings:
        if finding.boot_id == SLURM_SAYS:
            yield finding.raised_at + policy.adopt_after_s
    for reservation in reservations.values():
        yield reservation.start_s
        yield reservation.end_s
        if reservation.name in records.fences:
            yield reservation.end_s - RENEW_BEFORE_S


def _due_of(attempt: Attempt, policy: Policy) -> Iterator[float]:
    if attempt.outcome is None:
        yield attempt.deadline
        yield attempt.created_at + UNSENT_AFTER_S
    elif attempt.outcome is AttemptOutcome.CANCELLED and attempt.ended_at is not None:
        for times in range(1, MAX_CANCELLED_IN_A_ROW + 1):
            yield attempt.ended_at + policy.retry_after_s * times


class Ticker:
    """Ticks a daemon on its grid of `interval_s`, leaving out what cannot matter.

    Args:
        tick: one tick.
        leave_out: False ticks at every interval, as a daemon on a cluster does.
    """

    def __init__(
        self,
        timeline: Timeline,
        ctld: Slurmctld,
        policy: Policy,
        tick: Callable[[], TickResult],
        *,
        interval_s: float = 10.0,
        leave_out: bool = True,
    ) -> None:
        """Listens to the cluster from now on."""
        self.ticks = 0
        self._timeline = timeline
        self._ctld = ctld
        self._policy = policy
        self._tick = tick
        self._interval_s = interval_s
        self._leave_out = leave_out
        self._began = timeline.now
        self._last = timeline.now - interval_s
        self._due = NEVER
        self._concerned: set[str] = set()
        self._known: dict[str, NodeView] = dict(ctld.views())
        self._changed = True
        ctld.on_node_change.append(self._node_changed)
        ctld.on_reservation_change.append(self._reservation_changed)

    def poke(self) -> None:
        """Something changed that only the caller knows of: a request, a reimage that ended."""
        self._changed = True

    def follow(self, policy: Policy) -> None:
        """The daemon was started again with another policy."""
        self._policy = policy
        self._changed = True

    def run_until(self, end: float) -> None:
        """Let time pass to `end`, ticking where needed; may be called again to go on."""
        while (when := self._next_tick(end)) is not None:
            self._timeline.run_until(when)
            self._last = when
            self._one()
        self._timeline.run_until(end)

    def _one(self) -> None:
        self._changed = False
        result = self._tick()
        self.ticks += 1
        if not (result.plan.settled and self._leave_out):
            # What the plan wrote or did is what the next tick has to see.
            self._changed = True
            return
        records = result.records
        self._concerned = {*records.incidents, *records.holds, *(one.node for one in records.fences.values())}
        self._concerned |= {one.node for one in records.attempts if one.outcome is None}
        times = due_times(records, self._ctld.reservations(), self._policy)
        self._due = min((one for one in times if one > result.at), default=NEVER)
        if any(one.outcome is None and one.rung is Rung.REIMAGE for one in records.attempts):
            # How a reimage stands is asked for, not seen.
            self._due = min(self._due, result.at + REIMAGE_ASKED_EVERY_S)

    def _next_tick(self, end: float) -> float | None:
        """The next moment of the grid at which a tick is needed, None where it lies beyond `end`."""
        while not self._changed:
            ahead = self._timeline.peek()
            if ahead is None or ahead > min(self._due, end):
                break
            self._timeline.step()
        moment = self._timeline.now if self._changed else self._due
        if moment > end:
            return None
        steps = math.ceil((moment - self._began) / self._interval_s)
        when = max(self._began + steps * self._interval_s, self._last + self._interval_s)
        return when if when <= end else None

    def _reservation_changed(self, name: str) -> None:
        del name
        self._changed = True

    def _node_changed(self, name: str) -> None:
        before, view = self._known.get(name), self._ctld.views().get(name)
        if view is None:
            self._known.pop(name, None)
            self._changed = True
            return
        self._known[name] = view
        if before is None or name in self._concerned or not _only_jobs_moved(before, view):
            self._changed = True


def _only_jobs_moved(before: NodeView, after: NodeView) -> bool:
    """Whether a node in service merely took up a job or lost one."""
    calm = before.state <= _CALM and after.state <= _CALM
    return calm and (before.extra, before.comment) == (after.extra, after.comment)
