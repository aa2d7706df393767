"""`status` and `nodes`: the fleet as the daemon last saw it."""

import time
from collections import Counter
from enum import Enum
from typing import TypeVar

import click

from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.output import ago, clean, emit_json, json_option, moment, table

_Word = TypeVar("_Word", bound=Enum)
# A tick is late after this many intervals, and never before this many seconds.
_LATE_INTERVALS, _LATE_LEAST_S = 6, 90.0


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """The fleet at a glance: phases, incidents, breaker, last tick.

    Exit 1 when the breaker is tripped, an incident waits for a person, or the daemon's last tick is late.
    """
    from slurm_lifecycle.core.model import Phase, Step

    context: CliContext = ctx.obj
    config = context.config()
    with context.store() as store:
        statuses, incidents = store.node_statuses(), store.incidents(limit=100_000, open_only=True)
        trips, holds, tick = store.trips(), store.holds(), store.last_tick()
    now = time.time()
    late_s = max(_LATE_LEAST_S, _LATE_INTERVALS * config.daemon.interval_s)
    late = tick is None or now - tick.at > late_s
    phases = Counter(one.phase for one in statuses)
    steps = Counter(one.step for one in incidents)
    waiting = [one for one in incidents if one.step in (Step.HELD, Step.AWAITING_PERSON)]
    if as_json:
        emit_json(
            {
                "mode": tick.mode if tick else None,
                "last_tick_at": tick.at if tick else None,
                "late": late,
                "nodes": len(statuses),
                "phases": {phase.value: phases[phase] for phase in Phase if phases[phase]},
                "incidents": {step.value: steps[step] for step in Step if steps[step]},
                "waiting": [one.node for one in waiting],
                "trips": trips,
                "holds": holds,
            }
        )
    else:
        words = " (LATE: is the daemon running?)" if late else ""
        click.echo(f"mode      {tick.mode if tick else '-'}")
        click.echo(f"last tick {ago(tick.at if tick else None, now)}{words}")
        click.echo(f"nodes     {_counts(phases, len(statuses))}")
        click.echo(f"incidents {_counts(steps, len(incidents))}")
        click.echo(
            f"breaker   {'; '.join(f'TRIPPED {t.scope}: {clean(t.reason)}' for t in trips) or 'closed'}"
        )
        if holds:
            click.echo(f"held      {' '.join(hold.node for hold in holds)}")
        if waiting:
            click.echo(
                f"waiting for a person: {' '.join(one.node for one in waiting)}  (node why NAME tells)"
            )
    ctx.exit(1 if late or trips or waiting else 0)


def _counts(counter: "Counter[_Word]", total: int) -> str:
    parts = [f"{key.value} {count}" for key, count in counter.most_common()]
    return f"{total}" + (f": {', '.join(parts)}" if parts else "")


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also those that are simply in service.")
@json_option
@click.pass_obj
def nodes(context: CliContext, everything: bool, as_json: bool) -> None:
    """Every node that is not simply in service, with the reason in words."""
    from slurm_lifecycle.core.model import Phase

    with context.store() as store:
        statuses = store.node_statuses()
        incidents = {one.node: one for one in store.incidents(limit=100_000, open_only=True)}
    shown = [one for one in statuses if everything or one.phase is not Phase.IN_SERVICE or one.why]
    if as_json:
        emit_json([{"status": one, "incident": incidents.get(one.node)} for one in shown])
        return
    if not shown:
        click.echo(f"all {len(statuses)} nodes are in service")
        return
    rows = []
    for one in shown:
        incident = incidents.get(one.node)
        fault = f"{incident.code} {incident.component}" if incident else ""
        since = moment(incident.opened_at) if incident else ""
        rows.append((one.node, one.phase.value, fault, since, one.why))
    table(("NODE", "PHASE", "FAULT", "SINCE", "WHY"), rows)
