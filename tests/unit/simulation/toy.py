"""A slurmctld that writes down what machines tell it, for tests of what stands below it."""

from collections.abc import Mapping, Sequence

from slurm_lifecycle.simulation.machines.faults import KINDS, Fault, FaultKind
from slurm_lifecycle.simulation.machines.machine import Machines, MachineSettings
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, NodeSpec
from slurm_lifecycle.simulation.timeline import Timeline

QUICK = MachineSettings(boot_s=30.0, boot_spread=0.0, shutdown_s=1.0, first_step_s=10.0)


class ToyController:
    """Jobs run where they are put; `told` holds every word of the machines."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.told: list[tuple[float, str, str]] = []
        self.ended: list[tuple[str, str]] = []
        self.running: dict[str, Job] = {}

    def registered(self, node: str, boot_time_s: float, gpus: int) -> None:
        assert boot_time_s <= self.timeline.now
        self.told.append((self.timeline.now, node, f"registered {gpus}"))

    def fell_silent(self, node: str) -> None:
        self.told.append((self.timeline.now, node, "silent"))

    def job_exits(self, job_id: str, how: str) -> None:
        self.ended.append((job_id, how))
        del self.running[job_id]

    def jobs(self) -> Mapping[str, Job]:
        return self.running

    def run(self, job_id: str, nodes: Sequence[str]) -> Job:
        job = Job(job_id, JobSpec("j"), self.timeline.now)
        job.state, job.nodes = "RUNNING", tuple(nodes)
        self.running[job_id] = job
        return job

    def words(self, node: str) -> list[str]:
        return [what for _, name, what in self.told if name == node]


def toy_fleet(
    count: int = 3, seed: int | str = 1, settings: MachineSettings = QUICK
) -> tuple[Timeline, ToyController, Machines]:
    """Machines `n1`, `n2`, ... that have registered."""
    timeline = Timeline()
    ctld = ToyController(timeline)
    specs = [NodeSpec(f"n{number}", domain=f"rack{number % 2}") for number in range(1, count + 1)]
    machines = Machines(timeline, ctld, specs, settings, seed)
    machines.start()
    ctld.told.clear()
    return timeline, ctld, machines


def fault_with(machines: Machines, name: str, kind: str | FaultKind, luck: float) -> Fault:
    """A fault that a rung mends where its chance is above `luck`, and that hides after no boot."""
    kind = KINDS[kind] if isinstance(kind, str) else kind
    fault = machines.fault(name, kind)
    fault.luck, fault.hidden_s = luck, 0.0
    return fault
