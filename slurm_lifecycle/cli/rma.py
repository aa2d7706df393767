"""`rma`: nodes whose ladder ended with a ticket."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from slurm_lifecycle.cli.asking import ask, wait_option
from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.node import name_argument
from slurm_lifecycle.cli.output import emit_json, json_option, moment, table

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_lifecycle.core.model import Attempt, Incident

_MAX_TICKET_BYTES = 1 << 20


@click.group()
def rma() -> None:
    """Nodes that wait for a part: list, show, close."""


def _waiting(context: CliContext) -> list[tuple[Incident, Attempt, Path]]:
    """Open incidents with a ticket, the ticket's attempt, and its file."""
    from slurm_lifecycle.core.model import Rung

    folder = context.config().rma_folder
    with context.store() as store:
        found = []
        for incident in store.incidents(limit=100_000, open_only=True):
            tickets = [one for one in store.attempts(incident.id) if one.rung in (Rung.RMA, Rung.RESEAT)]
            if tickets:
                found.append((incident, tickets[-1], folder / f"{tickets[-1].op_id}.md"))
    return found


@rma.command(name="list")
@json_option
@click.pass_obj
def list_(context: CliContext, as_json: bool) -> None:
    """Nodes with an open ticket."""
    found = _waiting(context)
    if as_json:
        emit_json([{"incident": one, "attempt": attempt, "ticket": path} for one, attempt, path in found])
        return
    if not found:
        click.echo("none")
        return
    rows = [
        (one.node, f"{one.code} {one.component}", attempt.rung.value, moment(attempt.created_at), str(path))
        for one, attempt, path in found
    ]
    table(("NODE", "FAULT", "TICKET", "SINCE", "FILE"), rows)


@rma.command()
@name_argument
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """A node's open ticket."""
    for incident, attempt, path in _waiting(ctx.obj):
        if incident.node != name:
            continue
        text = ""
        with contextlib.suppress(OSError):
            text = path.read_bytes()[:_MAX_TICKET_BYTES].decode("utf-8", "replace")
        if as_json:
            emit_json({"incident": incident, "attempt": attempt, "ticket": path, "text": text})
        elif text:
            click.echo(
                "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in text.split("\n"))
            )
        else:
            click.echo(f"{path} cannot be read here; the attempt says: {attempt.detail}")
        return
    click.echo(f"slurm-lifecycle: {name} has no open ticket: `rma list` shows those that have", err=True)
    ctx.exit(2)


@rma.command()
@name_argument
@wait_option
@click.pass_context
def close(ctx: click.Context, name: str, wait_s: float) -> None:
    """Say that the part is replaced: the node is checked, then returned."""
    from slurm_lifecycle.core.model import Verb

    ask(ctx, Verb.RMA_CLOSE, name, "", wait_s)
