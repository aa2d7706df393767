"""`incidents` and `incident show`."""

import click

from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.output import clean, emit_json, json_option, moment, table, typed


@click.command()
@click.option("--all", "everything", is_flag=True, help="Closed ones too, newest first.")
@click.option("--node", help="Only this node's.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1))
@json_option
@click.pass_obj
def incidents(context: CliContext, everything: bool, node: str | None, limit: int, as_json: bool) -> None:
    """Open incidents, and closed ones on demand."""
    with context.store() as store:
        name = None if node is None else typed(node)
        found = store.incidents(limit=limit, node=name, open_only=not everything)
    if as_json:
        emit_json(found)
        return
    if not found:
        click.echo("none" if everything else "none open")
        return
    rows = [
        (
            one.id,
            one.node,
            f"{one.code} {one.component}",
            one.fault_class.value,
            one.step.value + (f"({one.hold})" if one.hold else ""),
            one.rung.value if one.rung else "",
            one.outcome,
            moment(one.opened_at),
        )
        for one in found
    ]
    table(("INCIDENT", "NODE", "FAULT", "CLASS", "STEP", "RUNG", "OUTCOME", "OPENED"), rows)


@click.group()
def incident() -> None:
    """One incident with its history."""


@incident.command()
@click.argument("incident_id", metavar="ID")
@json_option
@click.pass_context
def show(ctx: click.Context, incident_id: str, as_json: bool) -> None:
    """An incident: its steps, attempts and who did what when."""
    context: CliContext = ctx.obj
    incident_id = typed(incident_id)
    with context.store() as store:
        found = store.incident(incident_id)
        attempts, events = store.attempts(incident_id), store.events(incident=incident_id, limit=1000)
    if found is None:
        told = f"no incident {incident_id}: `incidents --all` lists them"
        click.echo(f"slurm-lifecycle: {told}", err=True)
        ctx.exit(2)
    if as_json:
        emit_json({"incident": found, "attempts": attempts, "events": events})
        return
    click.echo(f"{found.id}: {found.code} {found.component} on {found.node}, class {found.fault_class.value}")
    end = f", closed {moment(found.closed_at)}: {found.outcome}" if found.closed_at else ""
    click.echo(
        f"{found.step.value}{f' ({found.hold})' if found.hold else ''}, opened {moment(found.opened_at)}{end}"
    )
    if found.note:
        click.echo(clean(found.note))
    if attempts:
        click.echo()
        rows = [
            (
                f"{one.rung.value} {one.n}",
                one.outcome.value if one.outcome else ("under way" if one.sent else "not sent"),
                moment(one.created_at),
                moment(one.ended_at),
                one.detail,
            )
            for one in attempts
        ]
        table(("ATTEMPT", "OUTCOME", "BEGAN", "ENDED", "DETAIL"), rows)
    if events:
        click.echo()
        table(("WHEN", "EVENT", "TEXT", "BY"), [(moment(e.at), e.kind, e.text, e.actor) for e in events])
