"""`node`: one node, in words, and what a person can ask for it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from slurm_lifecycle.cli.asking import ask, wait_option
from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.output import ago, clean, emit_json, json_option, moment, table

if TYPE_CHECKING:
    from slurm_lifecycle.cli.why import WhyFacts

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _check_name(_ctx: click.Context, _param: click.Parameter, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is no node name (one node, not a list)")
    return name


name_argument = click.argument("name", callback=_check_name)


@click.group()
def node() -> None:
    """One node: show, why, hold, release, return, remediate."""


@node.command()
@name_argument
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """What is on record about a node: status, findings, incidents, the last events."""
    context: CliContext = ctx.obj
    with context.store() as store:
        status = store.node_status(name)
        record: dict[str, Any] = {
            "node": name,
            "status": status[0] if status else None,
            "since": status[1] if status else None,
            "holds": [hold for hold in store.holds() if hold.node == name],
            "findings": store.findings(name, limit=20),
            "incidents": store.incidents(limit=20, node=name),
            "events": store.events(node=name, limit=20),
        }
    if status is None and not record["incidents"]:
        click.echo(
            f"slurm-lifecycle: the daemon has not seen a node {name}: `nodes --all` lists them", err=True
        )
        ctx.exit(2)
    if as_json:
        emit_json(record)
        return
    if status is not None:
        since = ago(status[1]).removesuffix(" ago")
        click.echo(f"{name}: {status[0].phase.value} for {since} {clean(status[0].why)}")
    for hold in record["holds"]:
        click.echo(f"held by {hold.actor} since {moment(hold.at)}: {clean(hold.text)}")
    if record["findings"]:
        click.echo()
        rows = [
            (
                one.code,
                one.component,
                one.level.value,
                moment(one.raised_at),
                moment(one.cleared_at),
                one.text,
            )
            for one in record["findings"]
        ]
        table(("FINDING", "WHERE", "LEVEL", "RAISED", "CLEARED", "TEXT"), rows)
    if record["incidents"]:
        click.echo()
        rows = [
            (one.id, one.step.value, one.code, one.outcome, moment(one.opened_at), moment(one.closed_at))
            for one in record["incidents"]
        ]
        table(("INCIDENT", "STEP", "FAULT", "OUTCOME", "OPENED", "CLOSED"), rows)
    if record["events"]:
        click.echo()
        table(
            ("WHEN", "EVENT", "TEXT", "BY"),
            [(moment(e.at), e.kind, e.text, e.actor) for e in record["events"]],
        )


@node.command()
@name_argument
@json_option
@click.pass_context
def why(ctx: click.Context, name: str, as_json: bool) -> None:
    """In words: whose drain it is, what the node says, where its incident stands, what happens next.

    Asks Slurm now and reads the store; changes nothing.
    """
    from slurm_lifecycle.cli.why import explain

    facts = _gather(ctx.obj, name)
    if facts.view is None and facts.status is None and facts.incident is None and not facts.view_problem:
        click.echo(f"slurm-lifecycle: neither Slurm nor the store knows a node {name}", err=True)
        ctx.exit(2)
    told = explain(facts)
    if as_json:
        lines = [{"label": label, "text": text} for label, text in told]
        emit_json({"node": name, "told": lines, "incident": facts.incident, "status": facts.status})
        return
    click.echo(name)
    for label, text in told:
        click.echo(f"  {label:10} {clean(text)}")


def _gather(context: CliContext, name: str) -> WhyFacts:
    from slurm_lifecycle.cli.why import WhyFacts
    from slurm_lifecycle.errors import BackendError, PermanentError

    view, jobs, problem = None, None, ""
    try:
        slurm = context.slurm()
        view = slurm.node(name)
        jobs = slurm.jobs_on(name)
    except PermanentError:
        pass
    except BackendError as error:
        problem = str(error)
    with context.store() as store:
        status = store.node_status(name)
        open_ones = store.incidents(limit=1, node=name, open_only=True)
        incident = open_ones[0] if open_ones else None
        return WhyFacts(
            node=name,
            now=time.time(),
            policy=context.config().policy,
            view=view,
            view_problem=problem,
            jobs=jobs,
            status=status[0] if status else None,
            incident=incident,
            attempts=store.attempts(incident.id) if incident else (),
            findings=tuple(one for one in store.findings(name) if one.cleared_at is None),
            hold=next((one for one in store.holds() if one.node == name), None),
            trips=store.trips(),
            tick_at=tick.at if (tick := store.last_tick()) else None,
            mode=tick.mode if tick else "",
        )


@node.command()
@name_argument
@click.option("--reason", required=True, help="Why, for the next person who looks.")
@wait_option
@click.pass_context
def hold(ctx: click.Context, name: str, reason: str, wait_s: float) -> None:
    """Start nothing new on a node until it is released; what is under way is finished."""
    from slurm_lifecycle.core.model import Verb

    ask(ctx, Verb.HOLD, name, clean(reason)[:200], wait_s)


@node.command()
@name_argument
@wait_option
@click.pass_context
def release(ctx: click.Context, name: str, wait_s: float) -> None:
    """End a hold, or let an incident that waits for a person go on: checks first, then back in service."""
    from slurm_lifecycle.core.model import Verb

    ask(ctx, Verb.RELEASE, name, "", wait_s)


@node.command(name="return")
@name_argument
@wait_option
@click.pass_context
def return_(ctx: click.Context, name: str, wait_s: float) -> None:
    """Say that a waiting node is repaired: it is checked, then returned. Never returns it unchecked."""
    from slurm_lifecycle.core.model import Verb

    ask(ctx, Verb.RETURN, name, "", wait_s)


@node.command()
@name_argument
@click.option("--reason", default="", help="Why, for the history.")
@wait_option
@click.pass_context
def remediate(ctx: click.Context, name: str, reason: str, wait_s: float) -> None:
    """Open an incident by hand: the node is drained, then repaired from the first rung."""
    from slurm_lifecycle.core.model import Verb

    ask(ctx, Verb.REMEDIATE, name, clean(reason)[:200], wait_s)
