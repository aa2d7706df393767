"""A simulated slurmctld on a bench: some nodes, a timeline, and who was told what."""

from dataclasses import dataclass, field

from slurm_lifecycle.simulation.slurmctld import Job, JobSpec, NodeSpec, SlurmConf, Slurmctld
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline

KILL_WAIT_S = 30.0


@dataclass
class Side:
    """Nodes whose prologs and epilogs fail where asked, and that boot in ten seconds."""

    timeline: Timeline
    ctld: Slurmctld
    bad_prologs: set[str] = field(default_factory=set)
    bad_epilogs: set[str] = field(default_factory=set)
    rebooted: list[str] = field(default_factory=list)

    def reboot(self, node: str) -> None:
        self.rebooted.append(node)
        self.ctld.fell_silent(node)
        self.timeline.after(10.0, lambda: self.ctld.registered(node, self.timeline.now - 1, 8))

    def responds(self, node: str) -> bool:
        return True

    def prolog(self, node: str, job_id: str) -> bool:
        return node not in self.bad_prologs

    def epilog(self, node: str, job_id: str) -> bool:
        return node not in self.bad_epilogs


class Bench:
    """Nodes `n1` to `n<count>` of the partition `batch`."""

    def __init__(self, count: int = 4, conf: SlurmConf | None = None, seed: int = 0) -> None:
        self.timeline = Timeline()
        self.ctld = Slurmctld(
            self.timeline,
            [NodeSpec(f"n{number}") for number in range(1, count + 1)],
            conf or SlurmConf(kill_wait_s=KILL_WAIT_S),
            stream(seed, "slurmctld", "bench"),
        )
        self.side = Side(self.timeline, self.ctld)
        self.ctld.side = self.side
        for name in self.ctld.views():
            self.ctld.registered(name, self.timeline.now - 100, 8)
        self.began = self.timeline.now
        self.starts: list[tuple[str, tuple[str, ...]]] = []
        self.ends: list[tuple[str, str]] = []
        self.changes: list[str] = []
        self.ctld.on_job_start.append(self._starts)
        self.ctld.on_job_end.append(lambda job, how: self.ends.append((job.id, how)))
        self.ctld.on_node_change.append(self.changes.append)

    def _starts(self, job: Job) -> None:
        self.starts.append((job.id, job.nodes))

    def submit(self, nodes: int = 1, **spec: object) -> str:
        """A job of that many nodes; other fields of its `JobSpec` by name."""
        fields = {"name": "job", "nodes_min": nodes, "nodes_max": nodes, **spec}
        return self.ctld.submit(JobSpec(**fields))  # type: ignore[arg-type]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.timeline.run_until(self.timeline.now + seconds)

    def state(self, name: str) -> set[str]:
        """A node's tokens."""
        return set(self.ctld.view(name).state)

    def job(self, job_id: str) -> Job:
        """A job that is not over."""
        return self.ctld.jobs()[job_id]

    def nodes_of(self, job_id: str) -> tuple[str, ...]:
        """Where it runs."""
        return self.job(job_id).nodes
