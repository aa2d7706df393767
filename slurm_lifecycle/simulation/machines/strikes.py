"""What faults do to jobs: whose run ends because of which fault, at once or when somebody notices."""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_lifecycle.simulation.machines.faults import Fault, JobEffect
from slurm_lifecycle.simulation.machines.hardware import Controller, Machine
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.timeline import Timeline

_ON_NODES = ("RUNNING", "SUSPENDED")


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that will end, or has ended, the run of a job that is told by its number of restarts."""

    fault: Fault
    at: float
    restarts: int


class Strikes:
    """Faults meet jobs here.

    Attributes:
        on_strike: told once for a run that will end because of a fault, with the job's id.
    """

    def __init__(self, timeline: Timeline, ctld: Controller, first_step_s: float) -> None:
        """No job has been struck."""
        self.on_strike: list[Callable[[str, Fault], None]] = []
        self._timeline = timeline
        self._ctld = ctld
        self._first_step_s = first_step_s
        self._sick: dict[str, Machine] = {}
        self._struck: dict[str, Strike] = {}

    def blame(self, job_id: str, restarts: int | None = None) -> Fault | None:
        """The fault because of which a run of a job ended or will end, None where there is none.

        Args:
            restarts: that run, by the job's number of restarts then; None for the last one that was struck.
        """
        strike = self._struck.get(job_id)
        if strike is None or restarts not in (None, strike.restarts):
            return None
        return strike.fault

    def look(self, machine: Machine) -> None:
        """What shows on a machine has changed."""
        if machine.striking is not None:
            self._sick[machine.name] = machine
        else:
            self._sick.pop(machine.name, None)

    def forget(self, name: str) -> None:
        """The machine is gone."""
        self._sick.pop(name, None)

    def job_started(self, job: Job) -> None:
        """A job started; where one of its nodes is broken it will not get far."""
        for name in sorted(self._sick):
            if name in job.nodes:
                self._timeline.after(self._first_step_s, self._first_step_of(name, job.id, job.restarts))

    def _first_step_of(self, name: str, job_id: str, run: int) -> Callable[[], None]:
        def step() -> None:
            machine, job = self._sick.get(name), self._running(job_id, run)
            fault = machine.striking if machine is not None else None
            if job is not None and fault is not None and name in job.nodes:
                self.strike(job, fault, at_once=fault.kind.job is not JobEffect.HANG)

        return step

    def strike_on(self, machine: Machine, fault: Fault) -> None:
        """A fault shows: the job that runs there is struck, where its kind strikes running jobs."""
        if fault.kind.job not in (JobEffect.CRASH, JobEffect.HANG):
            return
        for job in self._ctld.jobs().values():
            if job.state in _ON_NODES and machine.name in job.nodes:
                self.strike(job, fault, at_once=fault.kind.job is JobEffect.CRASH)
                return

    def mark(self, job: Job, fault: Fault) -> None:
        """Write down what ends the run of a job; what was there first is to blame."""
        known = self._struck.get(job.id)
        if known is None or known.restarts != job.restarts:
            self._struck[job.id] = Strike(fault, self._timeline.now, job.restarts)
            for told in self.on_strike:
                told(job.id, fault)

    def strike(self, job: Job, fault: Fault, *, at_once: bool = True) -> None:
        """A fault ends the run of a job, at once or when somebody notices that it hangs."""
        self.mark(job, fault)
        job_id, run = job.id, job.restarts
        if at_once:
            self._exit(job_id, run)
        else:
            self._timeline.after(fault.hang_s, lambda: self._exit(job_id, run))

    def _running(self, job_id: str, run: int) -> Job | None:
        job = self._ctld.jobs().get(job_id)
        return job if job is not None and job.state in _ON_NODES and job.restarts == run else None

    def _exit(self, job_id: str, run: int) -> None:
        if self._running(job_id, run) is not None:
            self._ctld.job_exits(job_id, "failed")
