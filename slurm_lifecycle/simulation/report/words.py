"""The report's words: figures as text, names of causes and rungs, and the answer in a sentence."""

from collections.abc import Callable, Sequence

from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.simulation.lab.results import RunResult
from slurm_lifecycle.simulation.report.figures import (
    DAY_H,
    HOUR_S,
    Comparison,
    Contender,
    RepairTimes,
    Spread,
    fleet_gpu_hours,
    lost,
    lost_and_standby,
    share,
)

NAME_LIMIT = 60
# Keeps a number and its unit on one line.
NBSP = "\u00a0"
_TEXT_LIMIT = 400
# With more policies than these beside it, the best is compared with the next and with the worst.
_NAMED_OTHERS = 4
_NAMED_RUNS = 8
# Shares of what was lost that are nearer than this are called the same.
_SAME = 0.0005
_WORDS = {
    "rma": "RMA",
    "in_service": "in service",
    "awaiting_person": "waits for a person",
    "person": "with a person",
    "repairing": "in repair",
    "verify": "checks",
    "verifying": "checks",
    "rollback": "rolled back",
    "restart": "starting again",
}
_LOST_WORDS = {"waiting": "waiting for nodes"}
_SHOUTED = frozenset(
    {"gpu", "hbm", "nic", "nvlink", "sram", "gsp", "psu", "ssd", "cpu", "rma", "bmc", "ecc", "sdc"}
)


def name(text: str) -> str:
    """The name of a policy or a site, which came from a file."""
    return plain_line(text, NAME_LIMIT) or "(no name)"


def sentence(text: str) -> str:
    """A line of description, which came from a file."""
    return plain_line(text, _TEXT_LIMIT)


def word(key: str) -> str:
    """A key of a breakdown (`gpu_faulty`, `rma`) as words."""
    if key in _WORDS:
        return _WORDS[key]
    parts = plain_line(key, NAME_LIMIT).replace("_", " ").split()
    return " ".join(part.upper() if part in _SHOUTED else part for part in parts) or "(no cause)"


def lost_word(key: str) -> str:
    """A way of losing GPU-hours as words: jobs wait for nodes, where nodes wait for their turn."""
    return _LOST_WORDS.get(key, word(key))


def number(value: float) -> str:
    """A count or an amount with what digits it needs: whole from 100 up, three of them from 100,000 up."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        scaled = value / size
        if value >= 99_999.5 and scaled >= 0.9995:
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{NBSP}{letter}"
    if abs(value) >= 99.95 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 0.95 else f"{value:.2f}"


def span(low: str, high: str) -> str:
    """`3 to 5 %`: two figures with what they end in said once; empty where they read the same."""
    if low == high:
        return ""
    first, _, unit = low.partition(NBSP)
    return f"{first} to {high}" if unit and high.endswith(f"{NBSP}{unit}") else f"{low} to {high}"


def percent(part: float) -> str:
    """A share as per cent."""
    value = 100.0 * part
    if value == 0 or value >= 99.995:
        return f"{value:.0f}{NBSP}%"
    if value >= 99.0:
        return f"{value:.2f}{NBSP}%"
    return f"{value:.1f}{NBSP}%" if value >= 0.95 else f"{value:.2g}{NBSP}%"


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    for unit, size, limit in (("s", 1.0, 90.0), ("min", 60.0, 5400.0), ("h", HOUR_S, 48 * HOUR_S)):
        if seconds < limit:
            value = seconds / size
            return f"{value:.1f}{NBSP}{unit}" if unit == "h" and value < 9.95 else f"{value:.0f}{NBSP}{unit}"
    return f"{seconds / (DAY_H * HOUR_S):.1f}{NBSP}d"


def days(value: float) -> str:
    """A number of days."""
    return f"{value:.3g} day" + ("" if value == 1 else "s")


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))


def counted(count: int, thing: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def reached(times: RepairTimes, wanted: float) -> str:
    """When a share of the nodes was back, or that it never was in the time simulated."""
    at = times.within(wanted)
    return f">{NBSP}{duration(times.longest_s)}" if at is None else duration(at)


def longest(times: RepairTimes) -> str:
    """The longest repair seen, marked where it had not ended."""
    return (f">{NBSP}" if times.longest_open else "") + duration(times.longest_s)


def answer(comparison: Comparison) -> tuple[str, list[str]]:
    """What the reader came for: one sentence, and the few that it should not be read without."""
    rated = _rated(comparison)
    if not rated:
        return "No run has ended yet, so there is nothing to compare.", []
    if not comparison.fair:
        why = (
            "No run came to its end"
            if comparison.cut_short
            else "The policies have no seed in common that ended"
        )
        return f"{why}: the figures below cannot be compared with each other.", []
    best, least = rated[0]
    if least.mean <= 0:
        winners = [name(one.name) for one, total in rated if total.mean <= 0]
        return f"{listed(winners)} lost no GPU-hours at all.", []
    of_fleet = share(least.mean, _mean(best.runs, fleet_gpu_hours))
    amount = f"{number(least.mean)} GPU-hours ({percent(of_fleet)} of the fleet's)"
    if len(rated) == 1:
        return f"{name(best.name)} lost {amount}.", _asides(best, least, rated)
    first = [name(one.name) for one, total in rated if _saved(least, total) < _SAME]
    others = [_against(least, other, total) for other, total in rated[len(first) :]]
    if len(others) > _NAMED_OTHERS:
        others = [f"{others[0]}, the next best,", f"{others[-1]}, the worst"]
    each = amount if len(first) == 1 else f"{amount} each"
    if not others:
        return f"{listed(first)} lost the same: {each}.", _asides(best, least, rated)
    return f"{listed(first)} lost the least: {each}, {listed(others)}.", _asides(best, least, rated)


def _saved(least: Spread, total: Spread) -> float:
    return 1.0 - least.mean / total.mean


def _against(least: Spread, other: Contender, total: Spread) -> str:
    saved = 100.0 * _saved(least, total)
    return f"{saved:.{0 if saved >= 1 else 1}f}{NBSP}% less than {name(other.name)}"


def _asides(best: Contender, least: Spread, rated: Sequence[tuple[Contender, Spread]]) -> list[str]:
    idle = share(least.mean, best.runs[0].days * DAY_H)
    gpus = best.runs[0].nodes * best.runs[0].gpus_per_node
    few = number(round(idle) if idle >= 10 else idle)
    said = f"That is as if {few} of {gpus:,} GPUs had stood idle from the first day to the last"
    lucky = [
        run.seed
        for place, run in enumerate(best.runs)
        if any(total.values[place] < lost(run) for _, total in rated[1:])
    ]
    if lucky:
        seeds = listed([str(seed) for seed in lucky])
        said += f". It is so on average: another policy lost less with seed {seeds}"
    elif len(rated) > 1 and len(best.runs) > 1 and _saved(least, rated[1][1]) >= _SAME:
        said += f". It lost the least with every one of the {len(best.runs)} seeds"
    return [f"{said}.", *_standby_aside(rated)]


def _standby_aside(rated: Sequence[tuple[Contender, Spread]]) -> list[str]:
    """What hot standby cost, which no figure of training lost shows, and whether it was worth it."""
    idle = [(one, _mean(one.runs, lambda run: run.standby_gpu_hours)) for one, _ in rated]
    kept = [
        f"{name(one.name)} kept {number(hours)} GPU-hours idle as hot standby"
        for one, hours in idle
        if hours > 0
    ]
    if not kept:
        return []
    said = f"{listed(kept)}, which no figure of what was lost counts."
    if len(rated) == 1:
        return [said]
    costs = [(_mean(one.runs, lost_and_standby), one) for one, _ in rated]
    least, cheapest = min(costs, key=lambda cost: (cost[0], cost[1].index))
    still = "is still" if cheapest is rated[0][0] else "is"
    return [f"{said} With them {name(cheapest.name)} {still} the cheapest, at {number(least)}."]


def _rated(comparison: Comparison) -> list[tuple[Contender, Spread]]:
    """Policies with runs and what they lost, the least first."""
    rated = [(one, total) for one in comparison.with_runs if (total := one.spread(lost)) is not None]
    return sorted(rated, key=lambda pair: (pair[1].mean, pair[0].index))


def _mean(runs: Sequence[RunResult], measure: Callable[[RunResult], float]) -> float:
    return sum(measure(run) for run in runs) / len(runs)


def _which(comparison: Comparison) -> list[str]:
    """The runs that are missing, whole seeds in one word."""
    policies = len(comparison.contenders)
    seeds = [seed for _, seed in comparison.missing]
    whole = [seed for seed in dict.fromkeys(seeds) if policies > 1 and seeds.count(seed) == policies]
    said = [f"{name(policy)} seed {seed}" for policy, seed in comparison.missing if seed not in whole]
    if len(said) > _NAMED_RUNS:
        said = [*said[:_NAMED_RUNS], f"{len(said) - _NAMED_RUNS} more"]
    if whole:
        said.append(f"all of seed {listed([str(seed) for seed in whole])}")
    return said


def shortcomings(comparison: Comparison, wanted_runs: int) -> list[str]:
    """What of the study is not there, for the mark at its head; empty where all of it is."""
    said: list[str] = []
    if comparison.missing:
        which = listed(_which(comparison))
        said.append(f"{len(comparison.missing)} of {wanted_runs} runs are missing: {which}.")
    for run in comparison.stopped[:_NAMED_RUNS]:
        said.append(
            f"{name(run.policy)} seed {run.seed} was cut short at {run.days:.1f} of {days(run.days_wanted)}."
        )
    if len(comparison.stopped) > _NAMED_RUNS:
        said.append(f"{len(comparison.stopped) - _NAMED_RUNS} more were cut short too.")
    if said and comparison.fair:
        seeds = listed([str(seed) for seed in comparison.seeds])
        said.append(
            f"All figures are of the runs that ended with seed {seeds}, which every policy shown has."
        )
    return said
