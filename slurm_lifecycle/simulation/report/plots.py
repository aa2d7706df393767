"""The report's plots of amounts: bars of what each policy lost, and of where its node-hours went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_lifecycle.simulation.lab.results import RunResult
from slurm_lifecycle.simulation.report import words
from slurm_lifecycle.simulation.report.figures import Comparison, Contender, Spread, keys_of, lost, out_hours
from slurm_lifecycle.simulation.report.svg import (
    Canvas,
    Markup,
    Node,
    bar,
    clipped,
    drawing,
    fixed,
    line,
    path,
    short,
    tell,
    ticks,
    twice,
    write,
)

POLICY_COLOURS = 8
MAX_CAUSES = 12
LOST_PARTS = ("rollback", "restart", "waiting")
# In the order of a node's way out and back, which is the order of the stacks from the bottom up.
STATES = (
    "draining",
    "waiting",
    "reboot",
    "gpu_reset",
    "repairing",
    "power",
    "reimage",
    "diagnose",
    "verify",
    "verifying",
    "returning",
    "reseat",
    "rma",
    "person",
    "awaiting_person",
    "held",
    "down",
)


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a stacked bar."""

    css: str
    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Row:
    """One stacked bar.

    Attributes:
        extra: a stretch after the bar that is no part of its total, drawn as an outline.
        spread: the total over the seeds, for the whisker.
    """

    name: str
    note: str
    parts: tuple[Part, ...]
    spread: Spread
    extra: Part | None = None


def policy_css(index: int) -> str:
    """The class that gives a policy its colour, the same in all of the report."""
    return f"p{index % POLICY_COLOURS}"


def state_css(key: str) -> str:
    """The class that gives a state or rung its colour, the same in all of the report."""
    return f"s-{key}" if key in STATES else "s-other"


def in_order(keys: Sequence[str]) -> list[str]:
    """States in the order of a node's way out and back; unknown ones last, by name."""
    return [key for key in STATES if key in keys] + sorted(set(keys) - set(STATES))


def mean_of(one: Contender, values: Sequence[Mapping[str, float]], key: str) -> float:
    """The mean over the runs of one entry of a breakdown."""
    return sum(float(each.get(key, 0.0)) for each in values) / max(1, len(one.runs))


def lost_parts(comparison: Comparison) -> list[str]:
    """The parts of what was lost that any run names, in the order they are drawn."""
    seen = {key for one in comparison.with_runs for run in one.runs for key in run.lost_gpu_hours}
    return [part for part in LOST_PARTS if part in seen] + sorted(seen - set(LOST_PARTS))


def lost_plot(comparison: Comparison) -> Markup:
    """What each policy lost, by how it was lost; hot standby as an outline after it."""
    rows = []
    for one in comparison.with_runs:
        total = one.spread(lost)
        assert total is not None
        values = [run.lost_gpu_hours for run in one.runs]
        standby = sum(run.standby_gpu_hours for run in one.runs) / len(one.runs)
        parts = tuple(
            Part(
                f"{policy_css(one.index)} shade{min(place, 3)}",
                words.lost_word(key),
                mean_of(one, values, key),
            )
            for place, key in enumerate(lost_parts(comparison))
        )
        rows.append(
            Row(
                name=words.name(one.name),
                note=f"{words.number(total.mean)} GPU-hours",
                parts=parts,
                spread=total,
                extra=Part(f"{policy_css(one.index)} outline", "idle as hot standby", standby)
                if standby
                else None,
            )
        )
    title = "GPU-hours of training lost under each policy, by how they were lost"
    return twice(lambda canvas: stacked(canvas, rows, "GPU-hours", title))


def rungs(comparison: Comparison) -> list[str]:
    """What nodes out of service were going through, in order."""
    runs = [run for one in comparison.with_runs for run in one.runs]
    return in_order(keys_of(runs, lambda run: run.out_hours_by_rung))


def rung_plot(comparison: Comparison) -> Markup:
    """Node-hours out of service under each policy, by what was going on."""
    rows = []
    for one in comparison.with_runs:
        total = one.spread(out_hours)
        assert total is not None
        values = [run.out_hours_by_rung for run in one.runs]
        parts = tuple(
            Part(state_css(key), words.word(key), mean_of(one, values, key)) for key in rungs(comparison)
        )
        rows.append(Row(words.name(one.name), f"{words.number(total.mean)} node-hours", parts, total))
    title = "Node-hours out of service under each policy, by what was going on"
    return twice(lambda canvas: stacked(canvas, rows, "node-hours", title))


_ROW = 50.0
_BAR = 22.0


def stacked(canvas: Canvas, rows: Sequence[Row], unit: str, title: str) -> Node:
    """Horizontal stacked bars with their names above, totals at the right, and one axis for all."""
    foot = 40.0
    svg = drawing(canvas, len(rows) * _ROW + foot, title)
    ends = [max(row.spread.high, row.spread.mean + (row.extra.value if row.extra else 0.0)) for row in rows]
    marks = ticks(max(ends, default=0.0), 4 if canvas.narrow else 6)
    scale = (canvas.width - 16.0) / marks[-1]
    bottom = len(rows) * _ROW + 4.0
    axis_below(svg, canvas, [(8.0 + value * scale, short(value)) for value in marks], (10.0, bottom), unit)
    for place, row in enumerate(rows):
        _stack(svg, canvas, row, place * _ROW, scale)
    return svg


def _stack(svg: Node, canvas: Canvas, row: Row, top: float, scale: float) -> None:
    room = canvas.width - 16.0 - len(row.note) * canvas.font * 0.56
    write(svg, (14.0, top + 17.0), clipped(row.name, room, canvas.font), "strong")
    write(svg, (canvas.width - 14.0, top + 17.0), row.note, anchor="end")
    x = 8.0
    for part in row.parts:
        if part.value > 0:
            said = f"{row.name}: {part.label} {words.number(part.value)}"
            bar(svg, (x, top + 22.0), (part.value * scale, _BAR), f"fill edge {part.css}", said)
        x += part.value * scale
    if row.extra is not None:
        said = f"{row.name}: {row.extra.label} {words.number(row.extra.value)}"
        bar(svg, (x, top + 22.0), (row.extra.value * scale, _BAR), row.extra.css, said)
    if row.spread.high > row.spread.low:
        _whisker(svg, 8.0 + row.spread.low * scale, 8.0 + row.spread.high * scale, top + 22.0 + _BAR / 2, row)


def _whisker(svg: Node, low: float, high: float, y: float, row: Row) -> None:
    steps = f"M{fixed(low)} {fixed(y - 4)}v8m0 -4H{fixed(high)}m0 -4v8"
    said = f"{row.name}: {words.number(row.spread.low)} to {words.number(row.spread.high)} over the seeds"
    path(svg, steps, "halo")
    path(svg, steps, "whisker", said)


def axis_below(
    svg: Node, canvas: Canvas, marks: Sequence[tuple[float, str]], span: tuple[float, float], unit: str
) -> None:
    """Upright grid lines with their values below, and the unit under the last."""
    top, bottom = span
    for place, (x, label) in enumerate(marks):
        line(svg, (x, top), (x, bottom), "grid" if place else "axis")
        anchor = "start" if place == 0 and len(label) > 2 else "end" if x > canvas.width - 30 else "middle"
        write(svg, (x, bottom + 16.0), label, "small", anchor)
    write(svg, (canvas.width - 8.0, bottom + 31.0), unit, "small", "end")


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause with what each policy lost to it, in the order of the policies."""

    label: str
    values: tuple[float, ...]


def lost_by_cause(comparison: Comparison) -> list[Cause]:
    """GPU-hours lost by cause, the worst causes first and the rest in one line."""
    contenders = comparison.with_runs
    return causes(contenders, [[run.lost_gpu_hours_by_cause for run in one.runs] for one in contenders])


def causes(
    contenders: Sequence[Contender], tables: Sequence[Sequence[Mapping[str, float]]], limit: int = MAX_CAUSES
) -> list[Cause]:
    """A breakdown by cause as means over the seeds, the largest first, what is over the limit in one line."""
    keys = keys_of_tables(tables)
    means = {
        key: tuple(mean_of(one, table, key) for one, table in zip(contenders, tables, strict=True))
        for key in keys
    }
    ordered = sorted((key for key in keys if any(means[key])), key=lambda key: (-sum(means[key]), key))
    kept = ordered if len(ordered) <= limit else ordered[: limit - 1]
    shown = [Cause(words.word(key), means[key]) for key in kept]
    rest = ordered[len(kept) :]
    if rest:
        columns = zip(*(means[key] for key in rest), strict=True)
        shown.append(Cause(f"{len(rest)} other causes", tuple(sum(column) for column in columns)))
    return shown


def keys_of_tables(tables: Sequence[Sequence[Mapping[str, float]]]) -> list[str]:
    """All keys of some breakdowns, by name."""
    return sorted({key for table in tables for each in table for key in each})


def cause_plot(comparison: Comparison) -> Markup:
    """GPU-hours lost by cause, the policies side by side."""
    shown = lost_by_cause(comparison)
    title = "GPU-hours of training lost by cause of the interruption, policies side by side"
    return twice(lambda canvas: _grouped(canvas, shown, comparison.with_runs, title))


def _grouped(canvas: Canvas, shown: Sequence[Cause], contenders: Sequence[Contender], title: str) -> Node:
    thick = 11.0
    head = canvas.font + 6.0 if canvas.narrow else 0.0
    group = len(contenders) * thick + head + 9.0
    left = 8.0 if canvas.narrow else 190.0
    svg = drawing(canvas, len(shown) * group + 48.0, title)
    marks = ticks(max((max(cause.values) for cause in shown), default=0.0), 4 if canvas.narrow else 6)
    scale = (canvas.width - left - 60.0) / marks[-1]
    bottom = len(shown) * group + 8.0
    axis_below(
        svg, canvas, [(left + value * scale, short(value)) for value in marks], (4.0, bottom), "GPU-hours"
    )
    for place, cause in enumerate(shown):
        top = 8.0 + place * group
        if canvas.narrow:
            label = write(svg, (left, top + canvas.font), clipped(cause.label, canvas.width, canvas.font))
        else:
            middle = top + len(contenders) * thick / 2 + canvas.font * 0.36
            label = write(
                svg, (left - 10.0, middle), clipped(cause.label, left - 14.0, canvas.font), anchor="end"
            )
        tell(label, cause.label)
        for row, (one, value) in enumerate(zip(contenders, cause.values, strict=True)):
            y = top + head + row * thick
            said = f"{cause.label}, {words.name(one.name)}: {words.number(value)} GPU-hours"
            bar(svg, (left, y), (max(value * scale, 0.8), thick - 1.5), f"fill {policy_css(one.index)}", said)
            if value > 0:
                write(svg, (left + value * scale + 4.0, y + 8.6), short_number(value), "tiny")
    return svg


def short_number(value: float) -> str:
    """A value beside its bar: three digits are enough there."""
    return f"{value / 1e3:.3g}{words.NBSP}k" if 9_999.5 <= value < 99_999.5 else words.number(value)


def runs_of(comparison: Comparison) -> list[RunResult]:
    """All runs compared."""
    return [run for one in comparison.with_runs for run in one.runs]
