"""The figures of the report: which runs are compared, and what they come to over the seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from slurm_lifecycle.simulation.lab.results import Repair, RunResult, Study

HOUR_S = 3600.0
DAY_H = 24.0


@dataclass(frozen=True, slots=True)
class Spread:
    """One measure over the seeds of one policy."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return sum(self.values) / len(self.values)

    @property
    def low(self) -> float:
        """The least of the seeds."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The most of the seeds."""
        return max(self.values)


@dataclass(frozen=True, slots=True)
class Contender:
    """One policy of a study, with the runs that its figures are taken from.

    Attributes:
        index: its place among the policies, which gives it its colour everywhere.
        runs: the runs compared, in the order of the seeds; empty where no run of it can be.
    """

    index: int
    name: str
    description: str
    runs: tuple[RunResult, ...]

    def spread(self, measure: Callable[[RunResult], float]) -> Spread | None:
        """A measure over the compared runs; None where there is none."""
        return Spread(tuple(measure(run) for run in self.runs)) if self.runs else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What of a study can be compared.

    Attributes:
        seeds: the seeds that all contenders with runs share, in the order of the study; the averages are
            over these. Empty where they share none.
        cut_short: no run came to its end, so that those cut short are shown instead.
        missing: policy and seed of the runs that are not there at all.
        stopped: the runs that ended before their time.
    """

    contenders: tuple[Contender, ...]
    seeds: tuple[int, ...]
    cut_short: bool
    missing: tuple[tuple[str, int], ...]
    stopped: tuple[RunResult, ...]

    @property
    def with_runs(self) -> tuple[Contender, ...]:
        """The policies that there is something to say about."""
        return tuple(one for one in self.contenders if one.runs)

    @property
    def fair(self) -> bool:
        """Whether all that is compared ran to its end on the same seeds."""
        return bool(self.seeds) and not self.cut_short


def compare(study: Study) -> Comparison:
    """Choose the runs to compare: complete ones, of the seeds that every policy with a complete run has.

    The same seed brings the same faults, so a mean over other seeds would compare luck. Where no seed is
    shared each policy keeps its own; where no run is complete, what was cut short is all there is.
    """
    by_policy: dict[str, dict[int, RunResult]] = {name: {} for name in study.policies}
    for run in study.runs:
        by_policy.setdefault(run.policy, {})[run.seed] = run
    order = [*study.seeds, *sorted({run.seed for run in study.runs} - set(study.seeds))]
    cut_short = not any(run.complete for run in study.runs)
    usable = {
        name: {seed: runs[seed] for seed in order if seed in runs and (cut_short or runs[seed].complete)}
        for name, runs in by_policy.items()
    }
    shared = [seed for seed in order if all(seed in runs for runs in usable.values() if runs)]
    if not any(usable.values()):
        shared = []
    contenders = tuple(
        Contender(
            index=index,
            name=name,
            description=study.policies.get(name, ""),
            runs=tuple(run for seed, run in runs.items() if not shared or seed in shared),
        )
        for index, (name, runs) in enumerate(usable.items())
    )
    return Comparison(
        contenders=contenders,
        seeds=tuple(shared),
        cut_short=cut_short and bool(study.runs),
        missing=tuple((name, seed) for name, runs in by_policy.items() for seed in order if seed not in runs),
        stopped=tuple(run for runs in by_policy.values() for run in runs.values() if not run.complete),
    )


def lost(run: RunResult) -> float:
    """GPU-hours of training lost, all together."""
    return sum(run.lost_gpu_hours.values())


def lost_and_standby(run: RunResult) -> float:
    """GPU-hours lost, and those kept idle on purpose to lose less."""
    return lost(run) + run.standby_gpu_hours


def fleet_gpu_hours(run: RunResult) -> float:
    """All GPU-hours that the fleet had."""
    return run.days * DAY_H * run.nodes * run.gpus_per_node


def out_hours(run: RunResult) -> float:
    """Node-hours out of service."""
    return sum(run.out_hours_by_rung.values()) or sum(run.out_hours_by_cause.values())


def interruptions(run: RunResult) -> float:
    """Jobs' runs that ended before their time."""
    return float(sum(run.interruptions.values()))


def share(part: float, whole: float) -> float:
    """A part of a whole, 0 where there is no whole."""
    return part / whole if whole > 0 else 0.0


def useful_share(run: RunResult) -> float:
    """How much of the fleet's GPU-hours became training that was kept."""
    return share(run.useful_gpu_hours, fleet_gpu_hours(run))


def still_out(run: RunResult) -> float:
    """Repairs that had not ended when the run did."""
    return float(sum(1 for repair in run.repairs if repair.ended_s is None))


def keys_of(runs: Sequence[RunResult], part: Callable[[RunResult], Mapping[str, float]]) -> list[str]:
    """All keys of a breakdown, by their sum over the runs, the largest first."""
    total: dict[str, float] = {}
    for run in runs:
        for key, value in part(run).items():
            total[key] = total.get(key, 0.0) + value
    return sorted(total, key=lambda key: (-total[key], key))


@dataclass(frozen=True, slots=True)
class RepairTimes:
    """How long nodes were gone, as the share that was back within a time.

    A node that was still out when the run ended is known to take longer than it had been out, no more. It
    counts among those waited for up to that time and then leaves the count (Kaplan and Meier's estimate).
    Leaving such nodes out would flatter a policy for what it never brought back.

    Attributes:
        steps: seconds and the share back by then, rising.
        longest_s: the longest that was seen.
        longest_open: whether that one had not ended.
    """

    steps: tuple[tuple[float, float], ...]
    longest_s: float
    longest_open: bool

    def within(self, wanted: float) -> float | None:
        """Seconds by which a share of the nodes was back; None where it never was."""
        return next((at for at, back in self.steps if back >= wanted - 1e-9), None)


def repair_times(runs: Sequence[RunResult]) -> RepairTimes | None:
    """The repair times of some runs taken together; None where no node was ever out."""
    spans = sorted(_span(run, repair) for run in runs for repair in run.repairs)
    if not spans:
        return None
    steps: list[tuple[float, float]] = []
    out = 1.0
    left = len(spans)
    for at, group in groupby(spans, key=itemgetter(0)):
        ends = [is_open for _, is_open in group]
        if not all(ends):
            out *= 1.0 - ends.count(False) / left
            steps.append((at, 1.0 - out))
        left -= len(ends)
    return RepairTimes(steps=tuple(steps), longest_s=spans[-1][0], longest_open=spans[-1][1])


def _span(run: RunResult, repair: Repair) -> tuple[float, bool]:
    """How long a node was gone, and whether it still was when the run ended."""
    if repair.ended_s is not None:
        return max(0.0, repair.ended_s - repair.began_s), False
    return max(0.0, run.days * DAY_H * HOUR_S - repair.began_s), True
