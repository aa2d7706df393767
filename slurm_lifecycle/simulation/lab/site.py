"""What is simulated, as frozen values: a site, its jobs and failures, and a policy to try on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from slurm_lifecycle.core.policy import Policy


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of one kind.

    Attributes:
        count: so many at any time; 0 where they arrive by `every_s`.
        every_s: mean time between two arrivals.
        nodes_min, nodes_max: it runs with what is free at its start, between these.
        run_time_s: mean, at full width; None runs as long as the simulation.
        checkpoint_s: work is safe at multiples of it.
        restart_s: from the start of an interrupted job to its first new step.
        resubmit_s: until its owner (or their script) submits it again where Slurm does not requeue it.
    """

    name: str
    count: int
    every_s: float
    nodes_min: int
    nodes_max: int
    run_time_s: float | None
    checkpoint_s: float
    restart_s: float
    resubmit_s: float
    requeue: bool
    time_limit_s: float
    priority: int
    partition: str


@dataclass(frozen=True, slots=True)
class CommonCause:
    """Something that strikes many nodes: `driver_rollout`, `power` or `switch` of a domain."""

    kind: str
    at_s: float
    share: float
    within_s: float
    domain: str
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Failures:
    """How often nodes fail, per 1,000 node-days; by kind of fault, after `scale` and overrides."""

    by_kind: Mapping[str, float]
    lemon_share: float
    lemon_factor: float
    false_alarms: float

    @property
    def per_1000_node_days(self) -> float:
        """All kinds together, over the fleet."""
        return sum(self.by_kind.values())


@dataclass(frozen=True, slots=True)
class Site:
    """A whole site; all times in seconds but `days`."""

    name: str
    summary: str
    days: float
    nodes: int
    gpus_per_node: int
    nodes_per_domain: int
    partitions: Mapping[str, float]
    release: str
    resume_timeout_s: float
    slurmd_timeout_s: float
    return_to_service: int
    requeue_delay_s: float
    interval_s: float
    failures: Failures
    boot_s: float
    reimage_s: float
    rma_s: tuple[float, float]
    response_s: float
    work_s: float
    events: tuple[CommonCause, ...] = ()
    jobs: tuple[JobClass, ...] = ()

    def partition_sizes(self) -> Mapping[str, int]:
        """Nodes of each partition; every node is in one."""
        names, sizes, left = list(self.partitions), {}, self.nodes
        for name in names[:-1]:
            sizes[name] = min(left, max(1, round(self.nodes * self.partitions[name])))
            left -= sizes[name]
        sizes[names[-1]] = left
        return sizes


@dataclass(frozen=True, slots=True)
class SimPolicy:
    """A policy to try.

    Attributes:
        operator: a person takes every drained node in hand, and the daemon only watches.
        response_s: how long people take, where the policy says other than the site.
        standby_percent: nodes kept idle beside the fleet to take the place of one that is out.
    """

    name: str
    summary: str
    policy: Policy
    operator: bool = False
    response_s: float | None = None
    standby_percent: float = 0.0

    def standby_nodes(self, site: Site) -> int:
        """How many that is."""
        return ceil(site.nodes * self.standby_percent / 100)

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Rungs that stand in its paths and have no effect in this release."""
        rungs = {rule.rung for path in self.policy.paths.values() for rule in path}
        return tuple(sorted(rung.value for rung in rungs - self.policy.effects))
