"""The scheduler: whole nodes to gang jobs, by priority, with backfill by time limits."""

from dataclasses import dataclass

from slurm_lifecycle.simulation.slurmctld.jobs import Jobs
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.slurmctld.reservations import Reservations
from slurm_lifecycle.simulation.slurmctld.state import State

# A pass comes so long after what called for it, and serves all that called meanwhile. Measured: a job starts
# 0.3 to 0.5 s after the reservation that kept it waiting was deleted.
PASS_AFTER_S = 0.4
# Slurm's own backfill looks at no more jobs either (bf_max_job_test).
_MAX_LOOKED_AT = 500


@dataclass(slots=True)
class _Promise:
    """What the first job that has to wait will get, so that no later one delays it.

    Attributes:
        at: when enough nodes are there for it.
        mask: the nodes that it may then take.
        spare: how many of them it does not need.
    """

    at: float
    mask: int
    spare: int


class Scheduler:
    """One pass looks at the queue from its head. It runs on events, never on a timer."""

    def __init__(self, state: State, jobs: Jobs, reservations: Reservations) -> None:
        self._state = state
        self._jobs = jobs
        self._reservations = reservations
        self._planned = False
        state.kick = self.kick

    def kick(self) -> None:
        """Ask for a pass soon; cheap where nobody waits."""
        if not self._planned and self._jobs.pending:
            self._planned = True
            self._state.timeline.after(PASS_AFTER_S, self._run)

    def _run(self) -> None:
        self._planned = False
        promise: _Promise | None = None
        for job in self._ready():
            if job.id not in self._jobs.pending:
                continue
            allowed = self._allowed(job)
            chosen = self._choose(job, allowed, promise)
            if chosen:
                self._jobs.start(job, self._state.names_in(chosen))
            elif promise is None:
                promise = self._promise(job, allowed)
                self._jobs.waits_for(job, "ReqNodeNotAvail" if promise is None else "Resources")
            else:
                self._jobs.waits_for(job, "Priority")

    def _ready(self) -> list[Job]:
        """Jobs that could start as far as they themselves go, best first."""
        now = self._state.timeline.now
        ready = []
        for job in self._jobs.pending.values():
            if job.held:
                continue
            if job.begin_at > now:
                self._jobs.waits_for(job, "BeginTime")
            else:
                ready.append(job)
        ready.sort(key=lambda job: -job.spec.priority)
        return ready[:_MAX_LOOKED_AT]

    def _allowed(self, job: Job) -> int:
        """Nodes that the job may have at all, busy ones included."""
        state, spec = self._state, job.spec
        mask = state.partitions.get(spec.partition, 0) & state.usable
        if spec.exclude:
            mask &= ~state.mask_of(spec.exclude)
        return mask & self._reservations.open_to(job)

    def _choose(self, job: Job, allowed: int, promise: _Promise | None) -> int:
        """The nodes on which it starts now, 0 for none."""
        spec = job.spec
        free = allowed & self._state.free
        if promise is not None and self._state.timeline.now + spec.time_limit_s > promise.at:
            spared = _lowest(free & promise.mask, promise.spare)
            free = free & ~promise.mask | spared
        wanted = self._state.mask_of(spec.nodelist)
        if wanted & ~free or wanted.bit_count() != len(spec.nodelist):
            return 0
        count = free.bit_count()
        if count < spec.nodes_min:
            return 0
        take = max(min(count, spec.nodes_max), wanted.bit_count())
        chosen = wanted | _lowest(free & ~wanted, take - wanted.bit_count())
        if promise is not None and self._state.timeline.now + spec.time_limit_s > promise.at:
            promise.spare -= (chosen & promise.mask).bit_count()
        return chosen

    def _promise(self, job: Job, allowed: int) -> _Promise | None:
        """When and where the job will start if all others use up their time; None where it cannot."""
        wanted = self._state.mask_of(job.spec.nodelist)
        mask = allowed & self._state.free
        if wanted & ~allowed or allowed.bit_count() < job.spec.nodes_min:
            return None
        at = self._state.timeline.now
        for end, busy in self._ends():
            if mask.bit_count() >= job.spec.nodes_min and not wanted & ~mask:
                break
            at = end
            mask |= busy & allowed
        if mask.bit_count() < job.spec.nodes_min or wanted & ~mask:
            return None
        return _Promise(at, mask, mask.bit_count() - job.spec.nodes_min)

    def _ends(self) -> list[tuple[float, int]]:
        """By when running jobs must be over, and their nodes, soonest first."""
        now = self._state.timeline.now
        ends = []
        for job in self._state.jobs.values():
            if job.state == "COMPLETING":
                ends.append((now, job.mask))
            elif job.state == "RUNNING":
                ends.append((job.limit.at if job.limit else float("inf"), job.mask))
        ends.sort()
        return ends


def _lowest(mask: int, count: int) -> int:
    """The first nodes of a mask."""
    if count <= 0:
        return 0
    surplus = mask.bit_count() - count
    if surplus <= 0:
        return mask
    if surplus < count:
        # Few are too many: drop them from the top.
        for _ in range(surplus):
            mask ^= 1 << (mask.bit_length() - 1)
        return mask
    chosen = 0
    for _ in range(count):
        low = mask & -mask
        chosen |= low
        mask ^= low
    return chosen
