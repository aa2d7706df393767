"""What a run of the policy laboratory comes to, as values: one policy, one seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one moment: nodes by what they do (`in_service`, `draining`, `repairing`, ...)."""

    at_s: float
    nodes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Repair:
    """One node's way from its fault to being in service again.

    Attributes:
        cause: what took it out, in the words of `RunResult.interruptions`.
        began_s, ended_s: seconds since the run began; `ended_s` None where it was still out at the end.
        cured_by: what it went back after: `reboot`, `reimage`, `rma`, `person`, ..., `itself` where nothing
            was done ("" where still out).
    """

    node: str
    cause: str
    began_s: float
    ended_s: float | None
    cured_by: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """One policy, one seed. Hours are node-hours where not said otherwise.

    Attributes:
        days: how long was simulated; less than `days_wanted` where it was stopped.
        interruptions: jobs' runs that ended before their time, by cause: rows of the published table
            (`faulty GPU`, `HBM`, ...), common causes (`driver rollout`, ...), `false alarm`, ...
        out_hours_by_cause: node-hours out of service, by the fault that took the node out.
        out_hours_by_rung: the same hours by what was going on: `draining`, `waiting`, `reboot`, `reimage`,
            `verify`, `rma`, `person`.
        lost_gpu_hours: GPU-hours of training lost: `rollback` (since the last checkpoint, the time that the
            job hung included), `restart` (starting again until the first new step), `waiting` (GPUs that
            jobs asked for and did not have after an interruption).
        lost_gpu_hours_by_cause: the same GPU-hours, by the cause of the interruption.
        useful_gpu_hours: training that was kept.
        standby_gpu_hours: GPUs kept idle as hot standby.
        false_drains: drains of nodes with no fault at all.
        actions: effects sent, by rung; what a person did in the daemon's place ends in ` by hand`.
        peak_working, peak_out: most nodes at once in repair or checks, and out of service.
        pages: calls to a person.
    """

    policy: str
    seed: int
    days: float
    days_wanted: float
    nodes: int
    gpus_per_node: int
    interruptions: Mapping[str, int] = field(default_factory=dict)
    out_hours_by_cause: Mapping[str, float] = field(default_factory=dict)
    out_hours_by_rung: Mapping[str, float] = field(default_factory=dict)
    lost_gpu_hours: Mapping[str, float] = field(default_factory=dict)
    lost_gpu_hours_by_cause: Mapping[str, float] = field(default_factory=dict)
    useful_gpu_hours: float = 0.0
    standby_gpu_hours: float = 0.0
    repairs: tuple[Repair, ...] = ()
    false_drains: int = 0
    actions: Mapping[str, int] = field(default_factory=dict)
    peak_working: int = 0
    peak_out: int = 0
    pages: int = 0
    samples: tuple[Sample, ...] = ()
    ticks: int = 0
    events: int = 0
    wall_s: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether it ran to its end."""
        return self.days >= self.days_wanted


@dataclass(frozen=True, slots=True)
class Study:
    """Several policies side by side on the same site and the same seeds.

    Attributes:
        site: name of the scenario or site file.
        summary: one line that says what the site is.
        policies: their names in the order asked for, with a line on what each does.
        runs: what ended so far.
        partial: stopped before all runs ended.
    """

    site: str
    summary: str
    policies: Mapping[str, str]
    seeds: tuple[int, ...]
    runs: tuple[RunResult, ...]
    partial: bool = False
