"""The report of a study as one HTML page that needs nothing else: no network, no script, no other file."""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_lifecycle import __version__
from slurm_lifecycle.service.render import render
from slurm_lifecycle.simulation.lab.results import Study
from slurm_lifecycle.simulation.report import words
from slurm_lifecycle.simulation.report.curves import (
    first_runs,
    repair_curves,
    repair_plot,
    states_shown,
    timeline_plot,
)
from slurm_lifecycle.simulation.report.figures import Comparison, compare
from slurm_lifecycle.simulation.report.plots import (
    cause_plot,
    lost_by_cause,
    lost_parts,
    lost_plot,
    policy_css,
    rung_plot,
    rungs,
    runs_of,
    state_css,
)
from slurm_lifecycle.simulation.report.svg import Markup
from slurm_lifecycle.simulation.report.table import (
    Table,
    cause_table,
    comparison_table,
    cure_table,
    lost_by_cause_table,
    lost_table,
    repair_table,
    run_table,
    rung_table,
    timeline_table,
)


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: the class of its colour, and its words."""

    css: str
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot with what is needed to read it."""

    anchor: str
    title: str
    lead: str
    keys: tuple[Key, ...]
    plot: Markup
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as the page introduces it."""

    css: str
    name: str
    description: str
    note: str


def render_report(study: Study, made_at: str = "") -> str:
    """The report as HTML.

    Args:
        study: what is reported; names and descriptions in it come from files and are escaped.
        made_at: when it was made, as it is to be shown; nothing is said where empty.
    """
    comparison = compare(study)
    wanted = len(comparison.contenders) * max(len(study.seeds), 1)
    answer, asides = words.answer(comparison)
    shortcomings = words.shortcomings(comparison, wanted)
    return render(
        "simulation_report.html.j2",
        site=words.name(study.site),
        summary=words.sentence(study.summary),
        facts=_facts(study, comparison),
        partial=study.partial or bool(shortcomings),
        stopped=study.partial,
        shortcomings=shortcomings,
        answer=answer,
        asides=asides,
        policies=_policies(comparison),
        seeds=_seeds(comparison),
        sections=comparison_table(comparison) if comparison.with_runs else [],
        figures=_figures(comparison),
        causes=_cause_tables(comparison),
        runs=run_table(study),
        made_at=words.sentence(made_at),
        version=__version__,
    )


def _facts(study: Study, comparison: Comparison) -> list[str]:
    """The size of the study, in a line."""
    facts = []
    if study.runs:
        sizes = sorted({run.nodes for run in study.runs})
        span = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
        facts.append(f"{span} nodes × {study.runs[0].gpus_per_node} GPUs")
        facts.append(words.days(max(run.days_wanted for run in study.runs)))
    policies = len(comparison.contenders)
    facts.append(f"{policies} {'policy' if policies == 1 else 'policies'}")
    facts.append(words.counted(len(study.seeds), "seed"))
    return facts


def _policies(comparison: Comparison) -> list[Policy]:
    return [
        Policy(
            css=policy_css(one.index),
            name=words.name(one.name),
            description=words.sentence(one.description),
            note="" if one.runs else "no run of it ended",
        )
        for one in comparison.contenders
    ]


def _seeds(comparison: Comparison) -> str:
    """What the figures of the comparison are means of."""
    if not comparison.with_runs:
        return ""
    if not comparison.fair:
        return "Each policy's own runs, which are not the same seeds or lengths: not to be compared."
    if len(comparison.seeds) == 1:
        of_one = f"One run each, of seed {comparison.seeds[0]}"
        return f"{of_one}: how much of it is luck, only more seeds can show. A tick marks the best."
    return (
        f"Means over {len(comparison.seeds)} seeds, with the range from the least to the most below. The "
        "same seed brings every policy the same faults. A tick marks what is best with every one of them."
    )


def _policy_keys(comparison: Comparison) -> tuple[Key, ...]:
    return tuple(Key(policy_css(one.index), words.name(one.name)) for one in comparison.with_runs)


def _state_keys(states: Sequence[str]) -> tuple[Key, ...]:
    keys: list[Key] = []
    for state in states:
        key = Key(state_css(state), words.word(state))
        if key not in keys:
            keys.append(key)
    return tuple(keys)


def _figures(comparison: Comparison) -> list[Figure]:
    """The plots that there is something to draw for."""
    if not comparison.with_runs:
        return []
    figures = [_lost(comparison)]
    if states_shown(comparison):
        figures.append(_timeline(comparison))
    if lost_by_cause(comparison):
        figures.append(_causes(comparison))
    if repair_curves(comparison):
        figures.append(_repairs(comparison))
    if rungs(comparison):
        figures.append(_rungs(comparison))
    return figures


def _lost(comparison: Comparison) -> Figure:
    keys = [
        Key(f"ink shade{min(place, 3)}", words.lost_word(key))
        for place, key in enumerate(lost_parts(comparison))
    ]
    if any(run.standby_gpu_hours for run in runs_of(comparison)):
        keys.append(Key("ink outline", "idle as hot standby, not in the total"))
    if any(len(one.runs) > 1 for one in comparison.with_runs):
        keys.append(Key("ink range", "range over the seeds"))
    return Figure(
        anchor="lost",
        title="What each policy lost",
        lead="GPU-hours of training: work since the last checkpoint, starting again until the first new "
        "step, and GPUs that a job asked for after an interruption and did not have.",
        keys=tuple(keys),
        plot=lost_plot(comparison),
        tables=(lost_table(comparison),),
    )


def _timeline(comparison: Comparison) -> Figure:
    seeds = sorted({run.seed for _, run in first_runs(comparison)})
    of_seed = f"seed {seeds[0]}" if len(seeds) == 1 else "the first run of each policy, of different seeds"
    return Figure(
        anchor="timeline",
        title="Nodes out of service, day by day",
        lead="How many nodes were out and what was going on with them "
        f"({of_seed}); all others were in service.",
        keys=_state_keys(states_shown(comparison)),
        plot=timeline_plot(comparison),
        tables=(timeline_table(comparison),),
    )


def _causes(comparison: Comparison) -> Figure:
    return Figure(
        anchor="causes",
        title="Lost GPU-hours by cause",
        lead="What interrupted the jobs, and what it cost under each policy.",
        keys=_policy_keys(comparison),
        plot=cause_plot(comparison),
        tables=(lost_by_cause_table(comparison),),
    )


def _repairs(comparison: Comparison) -> Figure:
    curves = repair_curves(comparison)
    keys = tuple(
        Key(
            f"{policy_css(one.index)} marker{one.index % 4}",
            f"{words.name(one.name)}: half within {words.reached(times, 0.5)}, "
            f"95{words.NBSP}% within {words.reached(times, 0.95)}",
        )
        for one, times in curves
    )
    lead = (
        "The share of nodes that were back in service within a time of their fault; further left is quicker."
    )
    if any(times.longest_open or times.steps[-1][1] < 1.0 for _, times in curves if times.steps):
        lead += " A curve that ends below 100 % leaves nodes that were still out when the run ended."
    return Figure(
        anchor="repairs",
        title="How long repairs take",
        lead=lead,
        keys=keys,
        plot=repair_plot(comparison),
        tables=(repair_table(comparison), cure_table(comparison)),
    )


def _rungs(comparison: Comparison) -> Figure:
    return Figure(
        anchor="rungs",
        title="Where the node-hours went",
        lead="Node-hours out of service by what was going on at the time.",
        keys=_state_keys(rungs(comparison)),
        plot=rung_plot(comparison),
        tables=(rung_table(comparison),),
    )


def _cause_tables(comparison: Comparison) -> list[Table]:
    if not comparison.with_runs:
        return []
    found = (
        cause_table(comparison, lambda run: run.interruptions, "interruptions by"),
        cause_table(comparison, lambda run: run.lost_gpu_hours_by_cause, "GPU-hours lost to"),
        cause_table(comparison, lambda run: run.out_hours_by_cause, "node-hours out after"),
    )
    return [table for table in found if table.rows]
