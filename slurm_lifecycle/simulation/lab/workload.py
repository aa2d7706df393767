"""Users' jobs: gangs that checkpoint, are interrupted, go back to the last checkpoint, and start again.

A training goes through many starts of a Slurm job. All GPU time of a training is one of: kept work, work
since the last checkpoint at an interruption (`rollback`, the time that it hung included), starting again
(`restart`), and, from its first interruption on, GPUs that it asked for and does not have (`waiting`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf

from slurm_lifecycle.simulation.lab.site import JobClass
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Event, Timeline

HOUR_S = 3600.0
# Where no fault explains it: how the job ended, in words of the report.
ENDED_BY = {
    "node_fail": "node failure",
    "timeout": "time limit",
    "preempted": "preemption",
    "requeued": "requeue",
    "failed": "unknown",
}
# Between two tries of a job that fails whenever it starts.
LONGEST_PATIENCE_S = 3600.0
# Users of the simulated cluster, one for each class of jobs.
FIRST_UID = 10_000


@dataclass(slots=True)
class Ledger:
    """What the trainings came to so far, in GPU-seconds."""

    useful: float = 0.0
    lost: dict[str, float] = field(default_factory=lambda: {"rollback": 0.0, "restart": 0.0, "waiting": 0.0})
    lost_by_cause: dict[str, float] = field(default_factory=dict)
    interruptions: dict[str, int] = field(default_factory=dict)

    def lose(self, kind: str, cause: str, gpu_s: float) -> None:
        """GPU time is lost."""
        if gpu_s > 0.0:
            self.lost[kind] += gpu_s
            self.lost_by_cause[cause] = self.lost_by_cause.get(cause, 0.0) + gpu_s


def _nobody(nodes: Sequence[str]) -> str:
    del nodes
    return ""


class Training:
    """One user's training through all its starts.

    Attributes:
        work: node-seconds to do, `inf` where it never ends.
        kept: node-seconds done and safe.
        cause: of its last interruption, "" before the first.
        missing: nodes that it asked for and lacks since `missing_since`.
        stalled_at: since when the present run makes no progress any more.
        in_vain: runs in a row in which not a step was made.
    """

    __slots__ = (
        "cause",
        "end",
        "in_vain",
        "job_id",
        "kept",
        "kind",
        "missing",
        "missing_since",
        "name",
        "nodes",
        "stalled_at",
        "started_at",
        "struck_by",
        "uid",
        "work",
    )

    def __init__(self, name: str, kind: JobClass, uid: int, work: float) -> None:
        """One that was not submitted yet."""
        self.name = name
        self.kind = kind
        self.uid = uid
        self.work = work
        self.kept = 0.0
        self.job_id = ""
        self.nodes: tuple[str, ...] = ()
        self.started_at = 0.0
        self.stalled_at = inf
        self.struck_by = ""
        self.cause = ""
        self.missing = 0
        self.missing_since = 0.0
        self.in_vain = 0
        self.end: Event | None = None

    @property
    def running(self) -> bool:
        """Whether its job has nodes."""
        return bool(self.nodes)

    def productive_s(self, now: float) -> float:
        """Seconds of the present run in which steps were made."""
        return max(0.0, min(now, self.stalled_at) - self.started_at - self.kind.restart_s)


class Workload:
    """Submits the trainings of a site and keeps their books.

    Args:
        gpus_per_node: what a node of a job counts.
        seed: arrivals and run times depend on it alone, so that every policy gets the same jobs.
        blame: why one of a job's nodes is out of service, "" where none is: for a job that a person or Slurm
            took off it.
    """

    def __init__(
        self,
        timeline: Timeline,
        ctld: Slurmctld,
        kinds: tuple[JobClass, ...],
        gpus_per_node: int,
        seed: int,
        *,
        blame: Callable[[Sequence[str]], str] = _nobody,
    ) -> None:
        """Listens to the controller from now on; `begin` submits."""
        self.books = Ledger()
        self._timeline = timeline
        self._ctld = ctld
        self._kinds = kinds
        self._blame = blame
        self._gpus = gpus_per_node
        self._seed = seed
        self._made: dict[str, int] = {}
        self._by_job: dict[str, Training] = {}
        self._open: dict[str, Training] = {}
        ctld.on_job_start.append(self._starts)
        ctld.on_job_end.append(self._ends)

    def begin(self) -> None:
        """Submit what is there from the first moment, and let the others arrive."""
        for kind in self._kinds:
            for _ in range(kind.count):
                self._submit(self._new(kind))
            if kind.every_s > 0.0:
                self._arrive_later(kind)

    def struck(self, job_id: str, cause: str) -> None:
        """A fault will end a job: no step is made from now on, and it ends when that is noticed."""
        training = self._by_job.get(job_id)
        if training is not None and training.running and training.stalled_at == inf:
            training.stalled_at = self._timeline.now
            training.struck_by = cause

    def trainings(self) -> Mapping[str, Training]:
        """Those with a job in Slurm, by its id."""
        return self._by_job

    def close(self) -> None:
        """The end of the run: what is under way counts as kept, what waits as waited so far."""
        for training in self._open.values():
            self._wait_so_far(training)
            if training.running:
                self._restarted(training)
                self._keep(training, training.productive_s(self._timeline.now))
                training.started_at = self._timeline.now

    # ------------------------------------------------------------ submitting

    def _new(self, kind: JobClass) -> Training:
        number = self._made.get(kind.name, 0) + 1
        self._made[kind.name] = number
        name = f"{kind.name}-{number}"
        work = inf
        if kind.run_time_s is not None:
            rng = stream(self._seed, f"job/{name}", "run_time")
            # Half as long to half as long again, and within the limit with one restart.
            longest = kind.time_limit_s - kind.restart_s
            work = min(kind.run_time_s * rng.uniform(0.5, 1.5), longest) * kind.nodes_max
        uid = FIRST_UID + self._kinds.index(kind)
        self._open[name] = Training(name, kind, uid, work)
        return self._open[name]

    def _arrive_later(self, kind: JobClass) -> None:
        number = self._made.get(kind.name, 0) + 1
        wait = stream(self._seed, f"job/{kind.name}-{number}", "arrival").expovariate(1.0 / kind.every_s)

        def arrives() -> None:
            self._submit(self._new(kind))
            self._arrive_later(kind)

        self._timeline.after(wait, arrives)

    def _submit(self, training: Training) -> None:
        kind = training.kind
        spec = JobSpec(
            name=training.name,
            uid=training.uid,
            nodes_min=kind.nodes_min,
            nodes_max=kind.nodes_max,
            time_limit_s=kind.time_limit_s,
            partition=kind.partition,
            requeue=kind.requeue,
            priority=kind.priority,
        )
        training.job_id = self._ctld.submit(spec)
        self._by_job[training.job_id] = training

    # ------------------------------------------------------------ what Slurm does

    def _starts(self, job: Job) -> None:
        training = self._by_job.get(job.id)
        if training is None:
            return
        now = self._timeline.now
        self._wait_so_far(training)
        training.nodes = job.nodes
        training.started_at = now
        training.stalled_at = inf
        training.struck_by = ""
        if training.cause:
            training.missing = max(0, training.kind.nodes_max - len(job.nodes))
        if training.work < inf:
            left = max(0.0, training.work - training.kept) / len(job.nodes)
            ends_at = now + training.kind.restart_s + left
            training.end = self._timeline.at(ends_at, lambda: self._done(training))

    def _done(self, training: Training) -> None:
        training.end = None
        if training.stalled_at == inf:
            self._ctld.job_exits(training.job_id, "completed")

    def _ends(self, job: Job, how: str) -> None:
        training = self._by_job.get(job.id)
        if training is None:
            return
        if training.end is not None:
            training.end.cancel()
            training.end = None
        if not training.running:
            self._wait_so_far(training)
        elif how in ("completed", "cancelled"):
            self._over(training)
        else:
            self._interrupted(training, how)
        if how in ("completed", "cancelled"):
            del self._by_job[job.id], self._open[training.name]
            if training.kind.count:
                self._submit(self._new(training.kind))
            return
        if not job.again:
            del self._by_job[job.id]
            self._timeline.after(self._patience_s(training), lambda: self._submit(training))
        else:
            self._timeline.after(training.kind.resubmit_s, lambda: self._see_to(training, job.id))

    def _patience_s(self, training: Training) -> float:
        """Whoever sees a job fail at once, again and again, tries it less and less often."""
        waits_s = training.kind.resubmit_s * 2.0 ** min(training.in_vain, 20)
        return max(training.kind.resubmit_s, min(waits_s, LONGEST_PATIENCE_S))

    def _over(self, training: Training) -> None:
        self._wait_so_far(training)
        training.missing = 0
        self._restarted(training)
        self._keep(training, training.productive_s(self._timeline.now))
        training.nodes = ()

    def _interrupted(self, training: Training, how: str) -> None:
        now, books = self._timeline.now, self.books
        self._wait_so_far(training)
        # GPUs of a start that failed are lost to the interruption before it.
        self._restarted(training)
        cause = training.struck_by or self._blame(training.nodes) or ENDED_BY.get(how, how)
        books.interruptions[cause] = books.interruptions.get(cause, 0) + 1
        productive, every = training.productive_s(now), training.kind.checkpoint_s
        safe = floor(productive / every) * every
        training.in_vain = 0 if productive > 0.0 else training.in_vain + 1
        self._keep(training, safe)
        began = training.started_at + training.kind.restart_s
        hung_or_undone = max(0.0, now - began - safe)
        books.lose("rollback", cause, hung_or_undone * len(training.nodes) * self._gpus)
        training.nodes = ()
        training.cause = cause
        training.missing = training.kind.nodes_max

    def _see_to(self, training: Training, job_id: str) -> None:
        """Slurm takes it back to the queue, and may hold it there; its owner lets it go."""
        job = self._ctld.jobs().get(job_id)
        if job is None or training.running:
            return
        if job.state == "PENDING" and "held" in job.reason:
            self._ctld.release(job_id)
        elif job.state != "PENDING":
            self._timeline.after(training.kind.resubmit_s, lambda: self._see_to(training, job_id))

    # ------------------------------------------------------------ books

    def _wait_so_far(self, training: Training) -> None:
        now = self._timeline.now
        if training.missing:
            waited = (now - training.missing_since) * training.missing * self._gpus
            self.books.lose("waiting", training.cause, waited)
        training.missing_since = now

    def _restarted(self, training: Training) -> None:
        """Starting again took the first of the run's time; a first start is not lost to anything."""
        if training.cause:
            took = min(self._timeline.now - training.started_at, training.kind.restart_s)
            self.books.lose("restart", training.cause, took * len(training.nodes) * self._gpus)

    def _keep(self, training: Training, seconds: float) -> None:
        training.kept += seconds * len(training.nodes)
        self.books.useful += seconds * len(training.nodes) * self._gpus
