"""The report's tables: the comparison of the policies, and the figures behind each plot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_lifecycle.simulation.lab.results import RunResult, Study
from slurm_lifecycle.simulation.report import words
from slurm_lifecycle.simulation.report.curves import first_runs, out_of, repair_curves, states_shown
from slurm_lifecycle.simulation.report.figures import (
    DAY_H,
    Comparison,
    Contender,
    Spread,
    interruptions,
    keys_of,
    lost,
    out_hours,
    repair_times,
    share,
    still_out,
    useful_share,
)
from slurm_lifecycle.simulation.report.plots import (
    causes,
    lost_by_cause,
    lost_parts,
    mean_of,
    rungs,
    runs_of,
    short_number,
)

Measure = Callable[[RunResult], float]
NOTHING = "–"
# Actions in the order of a node's way out and back, and what is added to one that a person did.
ACTIONS = ("drain", "gpu_reset", "reboot", "power", "reimage", "diagnose", "reseat", "rma", "return")
BY_HAND = " by hand"


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure: its mean over the seeds, their range, and whether it is the best of its line."""

    text: str
    range: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One measure for all policies; `part` where it is a part of the line above."""

    label: str
    hint: str
    cells: tuple[Cell, ...]
    part: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of the comparison that belong together."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A plain table beside a plot."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def comparison_table(comparison: Comparison) -> list[Section]:
    """All measures, policies side by side."""
    return [
        Section("Training", tuple(_training(comparison))),
        Section("Nodes", tuple(_nodes(comparison))),
        Section("Actions and people", tuple(_hands(comparison))),
    ]


def _training(comparison: Comparison) -> list[Line]:
    lines = [
        _line(
            comparison,
            "GPU-hours lost",
            "of training",
            lost,
            words.number,
            best=min,
        ),
        *(
            _line(
                comparison, words.lost_word(key), "", _entry("lost_gpu_hours", key), words.number, part=True
            )
            for key in lost_parts(comparison)
        ),
        _line(
            comparison, "useful share", "of all the fleet's GPU-hours", useful_share, words.percent, best=max
        ),
        _line(
            comparison,
            "interruptions",
            "runs of jobs that ended early",
            interruptions,
            words.number,
            best=min,
        ),
    ]
    if any(run.standby_gpu_hours for run in runs_of(comparison)):
        hint = "GPU-hours kept idle on purpose"
        lines.insert(
            -2, _line(comparison, "hot standby", hint, lambda run: run.standby_gpu_hours, words.number)
        )
    return lines


def _nodes(comparison: Comparison) -> list[Line]:
    return [
        _line(comparison, "node-hours out", "out of service", out_hours, words.number, best=min),
        _line(
            comparison,
            "nodes in service",
            "on average over the run",
            lambda run: 1.0 - share(out_hours(run), run.days * DAY_H * run.nodes),
            words.percent,
            best=max,
        ),
        _repair_line(comparison, "half back within", "repair time, p50", 0.5),
        _repair_line(comparison, "95 % back within", "repair time, p95", 0.95),
        _longest_line(comparison),
        _line(comparison, "still out at the end", "nodes", still_out, words.number),
        _line(comparison, "most out at once", "nodes", lambda run: float(run.peak_out), words.number),
        _line(
            comparison,
            "most worked on at once",
            "in repair or checks",
            lambda run: float(run.peak_working),
            words.number,
        ),
    ]


def _hands(comparison: Comparison) -> list[Line]:
    lines = [
        _line(comparison, "pages", "calls to a person", lambda run: float(run.pages), words.number, best=min),
        _line(
            comparison,
            "false drains",
            "of nodes without a fault",
            lambda run: float(run.false_drains),
            words.number,
            best=min,
        ),
        _line(
            comparison,
            "actions",
            "by the daemon and by people",
            lambda run: float(sum(run.actions.values())),
            words.number,
        ),
    ]
    keys = sorted(keys_of(runs_of(comparison), lambda run: run.actions), key=_action_place)
    return lines + [
        _line(comparison, words.word(key), "", _entry("actions", key), words.number, part=True)
        for key in keys
    ]


def _action_place(key: str) -> tuple[int, str]:
    """Actions in the order of a node's way; what a person did beside what the daemon does."""
    plain = key.removesuffix(BY_HAND)
    return (ACTIONS.index(plain) if plain in ACTIONS else len(ACTIONS), key)


def _entry(field: str, key: str) -> Measure:
    def measure(run: RunResult) -> float:
        breakdown: Mapping[str, float] = getattr(run, field)
        return float(breakdown.get(key, 0.0))

    return measure


def _line(
    comparison: Comparison,
    label: str,
    hint: str,
    measure: Measure,
    show: Callable[[float], str],
    *,
    best: Callable[[Sequence[float]], float] | None = None,
    part: bool = False,
) -> Line:
    spreads = [one.spread(measure) for one in comparison.contenders]
    winner = _winner(spreads, best) if best is not None and comparison.fair else None
    cells = tuple(
        Cell(NOTHING)
        if spread is None
        else Cell(show(spread.mean), words.span(show(spread.low), show(spread.high)), place == winner)
        for place, spread in enumerate(spreads)
    )
    return Line(label, hint, cells, part)


def _winner(spreads: Sequence[Spread | None], best: Callable[[Sequence[float]], float]) -> int | None:
    """The policy that is best with each seed, alone: what one seed turns round is no result."""
    there = [(place, spread) for place, spread in enumerate(spreads) if spread is not None]
    if len(there) < 2:
        return None
    won = set()
    for values in zip(*(spread.values for _, spread in there), strict=True):
        first = best(values)
        if values.count(first) > 1:
            return None
        won.add(values.index(first))
    return there[won.pop()][0] if len(won) == 1 else None


def _repair_line(comparison: Comparison, label: str, hint: str, wanted: float) -> Line:
    """When a share of the nodes was back, all seeds together, since the tail of one is a handful of nodes."""
    return Line(label, hint, tuple(_repair_cell(one.runs, wanted) for one in comparison.contenders))


def _repair_cell(runs: Sequence[RunResult], wanted: float) -> Cell:
    times = repair_times(runs)
    if times is None:
        return Cell(NOTHING)
    each = [one.within(wanted) for run in runs if (one := repair_times([run])) is not None]
    reached = [at for at in each if at is not None]
    low_high = (words.duration(min(reached)), words.duration(max(reached))) if reached == each else ("", "")
    return Cell(words.reached(times, wanted), words.span(*low_high))


def _longest_line(comparison: Comparison) -> Line:
    found = [repair_times(one.runs) for one in comparison.contenders]
    cells = tuple(Cell(NOTHING if times is None else words.longest(times)) for times in found)
    return Line("longest repair", "all seeds", cells)


def _names(contenders: Sequence[Contender]) -> tuple[str, ...]:
    return tuple(words.name(one.name) for one in contenders)


def lost_by_cause_table(comparison: Comparison) -> Table:
    """GPU-hours lost by cause."""
    rows = [
        (cause.label, *(words.number(value) for value in cause.values)) for cause in lost_by_cause(comparison)
    ]
    return Table(("GPU-hours lost to", *_names(comparison.with_runs)), tuple(rows))


def cause_table(
    comparison: Comparison, part: Callable[[RunResult], Mapping[str, float]], title: str
) -> Table:
    """Another breakdown by cause, all causes."""
    contenders = comparison.with_runs
    shown = causes(contenders, [[part(run) for run in one.runs] for one in contenders], limit=1000)
    rows = [(cause.label, *(words.number(value) for value in cause.values)) for cause in shown]
    return Table((title, *_names(contenders)), tuple(rows))


def lost_table(comparison: Comparison) -> Table:
    """GPU-hours lost by how they were lost."""
    labels = {key: words.lost_word(key) for key in lost_parts(comparison)}
    return _means(comparison, "GPU-hours", labels, lambda run: run.lost_gpu_hours)


def rung_table(comparison: Comparison) -> Table:
    """Node-hours out of service by what was going on."""
    labels = {key: words.word(key) for key in rungs(comparison)}
    return _means(comparison, "node-hours", labels, lambda run: run.out_hours_by_rung)


def _means(
    comparison: Comparison,
    title: str,
    labels: Mapping[str, str],
    part: Callable[[RunResult], Mapping[str, float]],
) -> Table:
    contenders = comparison.with_runs
    rows = [
        (label, *(words.number(mean_of(one, [part(run) for run in one.runs], key)) for one in contenders))
        for key, label in labels.items()
    ]
    return Table((title, *_names(contenders)), tuple(rows))


def repair_table(comparison: Comparison) -> Table:
    """Repair times by how many nodes were back."""
    curves = repair_curves(comparison)
    rows = [
        (f"{100 * wanted:.0f} % back within", *(words.reached(times, wanted) for _, times in curves))
        for wanted in (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    ]
    rows.append(("longest", *(words.longest(times) for _, times in curves)))
    return Table(("repairs of all seeds", *_names([one for one, _ in curves])), tuple(rows))


def cure_table(comparison: Comparison) -> Table:
    """What brought the nodes back: repairs by what they went back after, as means over the seeds."""

    def cured(run: RunResult) -> Mapping[str, float]:
        count: dict[str, float] = {}
        for repair in run.repairs:
            key = repair.cured_by or "unknown" if repair.ended_s is not None else "still_out_at_the_end"
            count[key] = count.get(key, 0.0) + 1.0
        return count

    return cause_table(comparison, cured, "repairs ended by")


def timeline_table(comparison: Comparison) -> Table:
    """Nodes out of service: mean and most at one moment of each state, of the run that is drawn."""
    shown = first_runs(comparison)
    rows = [
        (
            words.word(state),
            *(_course([sample.nodes.get(state, 0) for sample in run.samples]) for _, run in shown),
        )
        for state in states_shown(comparison)
    ]
    rows.append(
        ("all out of service", *(_course([out_of(sample) for sample in run.samples]) for _, run in shown))
    )
    return Table(("nodes: mean, most at once", *_names([one for one, _ in shown])), tuple(rows))


def _course(counts: Sequence[int]) -> str:
    return f"{words.number(sum(counts) / len(counts))}, {max(counts):,}" if counts else NOTHING


def run_table(study: Study) -> Table:
    """Every run that there is, one by one."""
    rows = [
        (
            words.name(run.policy),
            str(run.seed),
            f"{run.days:.1f}" + ("" if run.complete else f" of {run.days_wanted:g}, cut short"),
            words.number(interruptions(run)),
            words.number(lost(run)),
            words.number(out_hours(run)),
            short_number(float(run.events)),
            short_number(float(run.ticks)),
            f"{run.wall_s:.1f} s",
        )
        for run in study.runs
    ]
    head = (
        "policy",
        "seed",
        "days",
        "interruptions",
        "GPU-hours lost",
        "node-hours out",
        "events",
        "ticks",
        "took",
    )
    return Table(head, tuple(rows))
