"""The report's plots over time: nodes by state, and the share of nodes back in service within a time."""

import math
from collections.abc import Sequence

from slurm_lifecycle.simulation.lab.results import RunResult, Sample
from slurm_lifecycle.simulation.report import words
from slurm_lifecycle.simulation.report.figures import (
    DAY_H,
    HOUR_S,
    Comparison,
    Contender,
    RepairTimes,
    repair_times,
    share,
)
from slurm_lifecycle.simulation.report.plots import axis_below, in_order, policy_css, state_css
from slurm_lifecycle.simulation.report.svg import (
    Canvas,
    Markup,
    Node,
    clipped,
    drawing,
    fixed,
    line,
    mark,
    path,
    short,
    stairs,
    ticks,
    twice,
    write,
)

# A node in one of these is not out of service, so it is not in the stack but in the room above it.
WELL = frozenset({"in_service", "standby", "idle", "allocated"})
_DAY_S = DAY_H * HOUR_S


def first_runs(comparison: Comparison) -> list[tuple[Contender, RunResult]]:
    """The run of each policy whose course is drawn: its first, the same seed where the seeds are shared."""
    return [(one, one.runs[0]) for one in comparison.with_runs]


def states_shown(comparison: Comparison) -> list[str]:
    """States that any node was in while out of service, in order."""
    seen = {
        key
        for _, run in first_runs(comparison)
        for sample in run.samples
        for key, count in sample.nodes.items()
        if count and key not in WELL
    }
    return in_order(sorted(seen))


def out_of(sample: Sample) -> int:
    """Nodes out of service at a moment."""
    return sum(count for key, count in sample.nodes.items() if key not in WELL)


def thinned(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """At most so many samples: of each stretch the one with the most nodes out, at the stretch's begin."""
    size = -(-len(samples) // max(1, limit))
    if size <= 1:
        return list(samples)
    chosen = []
    for start in range(0, len(samples), size):
        worst = max(samples[start : start + size], key=out_of)
        chosen.append(Sample(samples[start].at_s, worst.nodes))
    return chosen


def timeline_plot(comparison: Comparison) -> Markup:
    """Nodes out of service over the run by state, one panel a policy, the same axes for all."""
    title = "Nodes out of service over the days of the run, by state, one panel for each policy"
    return twice(lambda canvas: _timeline(canvas, comparison, title))


def _timeline(canvas: Canvas, comparison: Comparison, title: str) -> Node:
    shown = first_runs(comparison)
    tall, gap, left = (90.0 if canvas.narrow else 110.0), 34.0, 44.0
    svg = drawing(canvas, len(shown) * (tall + gap) + 36.0, title)
    highest = max((out_of(sample) for _, run in shown for sample in run.samples), default=0)
    marks = [value for value in ticks(float(highest), 4) if value == round(value)]
    longest = max((max(run.days, run.days_wanted) for _, run in shown), default=0.0) or 1.0
    across = (canvas.width - left - 8.0) / longest
    dates = [day for day in ticks(longest, 5 if canvas.narrow else 9) if day <= longest + 1e-9]
    for place, (one, run) in enumerate(shown):
        top = place * (tall + gap) + gap
        scale = tall / marks[-1]
        peak = max((out_of(sample) for sample in run.samples), default=0)
        note = f"most at once {peak:,} ({words.percent(share(peak, run.nodes))})"
        room = canvas.width - 70.0 - len(note) * canvas.font * 0.56
        write(svg, (left, top - 10.0), clipped(words.name(one.name), room, canvas.font), "strong")
        write(svg, (canvas.width - 8.0, top - 10.0), note, anchor="end")
        for value in marks:
            y = top + tall - value * scale
            line(svg, (left, y), (canvas.width - 8.0, y), "grid" if value else "axis")
            write(svg, (left - 6.0, y + 4.0), short(value), "small", "end")
        for day in dates[1:]:
            line(svg, (left + day * across, top), (left + day * across, top + tall), "grid faint")
        _areas(svg, canvas, run, (left, top + tall, across, scale), comparison)
        if not run.complete:
            end = left + run.days * across
            line(svg, (end, top), (end, top + tall), "cut")
            write(svg, (end + 4.0, top + 12.0), f"cut short at day {run.days:.1f}", "small")
    bottom = len(shown) * (tall + gap)
    axis_below(
        svg, canvas, [(left + day * across, short(day)) for day in dates], (bottom, bottom + 3.0), "days"
    )
    return svg


def _areas(
    svg: Node,
    canvas: Canvas,
    run: RunResult,
    frame: tuple[float, float, float, float],
    comparison: Comparison,
) -> None:
    """The stack, its top layer first, so that each is drawn over what it stands on."""
    left, bottom, across, scale = frame
    samples = thinned(run.samples, 360 if canvas.narrow else 720)
    if not samples:
        return
    end = left + run.days * across
    # What lasts longest lies at the bottom: what comes and goes within an hour shakes nothing above it.
    states = states_shown(comparison)[::-1]
    for count in range(len(states), 0, -1):
        below = states[:count]
        if not any(sample.nodes.get(states[count - 1]) for sample in samples):
            continue
        points = [
            (
                left + sample.at_s / _DAY_S * across,
                bottom - scale * sum(sample.nodes.get(state, 0) for state in below),
            )
            for sample in samples
        ]
        steps = f"M{fixed(points[0][0])} {fixed(bottom)}{stairs(points, end)}V{fixed(bottom)}Z"
        state = states[count - 1]
        path(svg, steps, f"fill {state_css(state)}", f"{words.name(run.policy)}: {words.word(state)}")


_TIMES = (
    (60.0, "1 min"),
    (600.0, "10 min"),
    (HOUR_S, "1 h"),
    (6 * HOUR_S, "6 h"),
    (_DAY_S, "1 d"),
    (7 * _DAY_S, "7 d"),
    (28 * _DAY_S, "28 d"),
    (168 * _DAY_S, "168 d"),
)


def repair_curves(comparison: Comparison) -> list[tuple[Contender, RepairTimes]]:
    """The repair times of each policy that had any, all its seeds together."""
    found = [(one, repair_times(one.runs)) for one in comparison.with_runs]
    return [(one, times) for one, times in found if times is not None]


def repair_plot(comparison: Comparison) -> Markup:
    """The share of nodes back in service within a time, on a logarithmic time axis."""
    title = "Share of nodes back in service within a time of their fault, one curve for each policy"
    return twice(lambda canvas: _repairs(canvas, comparison, title))


def _repairs(canvas: Canvas, comparison: Comparison, title: str) -> Node:
    curves = repair_curves(comparison)
    tall, top, left = (230.0 if canvas.narrow else 300.0), 12.0, 48.0
    svg = drawing(canvas, top + tall + 38.0, title)
    axis = _time_axis([times for _, times in curves])
    low, high = axis[0][0], axis[-1][0]
    room = canvas.width - left - 12.0

    def across(seconds: float) -> float:
        return left + room * _log_place(seconds, low, high)

    def up(back: float) -> float:
        return top + tall * (1.0 - back)

    for value in (0.0, 0.25, 0.5, 0.75, 0.95, 1.0):
        css = "axis" if value == 0 else "grid guide" if value in (0.5, 0.95) else "grid"
        line(svg, (left, up(value)), (canvas.width - 12.0, up(value)), css)
        write(svg, (left - 6.0, up(value) + 4.0), f"{100 * value:.0f} %", "small", "end")
    labels = [(across(at), label) for at, label in axis]
    axis_below(svg, canvas, labels, (top, top + tall), "time from fault to service")
    for one, times in curves:
        points = [(across(at), up(back)) for at, back in times.steps]
        css = f"curve {policy_css(one.index)} dash{one.index // 8 % 2}"
        start = f"M{fixed(across(low))} {fixed(up(0.0))}"
        path(svg, start + _curve(points, across(times.longest_s)), css, words.name(one.name))
    for one, times in curves:
        for wanted, label in ((0.5, "half"), (0.95, "95 %")):
            at = times.within(wanted)
            if at is not None:
                said = f"{words.name(one.name)}: {label} back within {words.duration(at)}"
                mark(svg, (across(at), up(wanted)), one.index, f"mark {policy_css(one.index)}", said)
    return svg


def _curve(points: Sequence[tuple[float, float]], end: float) -> str:
    """Stairs without the steps that nobody could see."""
    seen: list[tuple[float, float]] = []
    for x, y in points:
        if not seen or x - seen[-1][0] >= 0.5 or seen[-1][1] - y >= 1.0:
            seen.append((x, y))
    if points and seen[-1] != points[-1]:
        seen.append(points[-1])
    return "".join(f"H{fixed(x)}V{fixed(y)}" for x, y in seen) + f"H{fixed(end)}"


def _time_axis(all_times: Sequence[RepairTimes]) -> list[tuple[float, str]]:
    """The marks of the time axis, from the last below the shortest time to the first above the longest."""
    shortest = min((times.steps[0][0] for times in all_times if times.steps), default=_TIMES[0][0])
    longest = max((times.longest_s for times in all_times), default=_TIMES[1][0])
    first = max((place for place, (at, _) in enumerate(_TIMES) if at <= shortest), default=0)
    last = min((place for place, (at, _) in enumerate(_TIMES) if at >= longest), default=len(_TIMES) - 1)
    first = min(first, last - 1) if last else 0
    return list(_TIMES[first : max(last, first + 1) + 1])


def _log_place(seconds: float, low: float, high: float) -> float:
    within = min(max(seconds, low), high)
    return math.log(within / low) / math.log(high / low)
