"""`breaker`: what stops repairs when too much fails at once."""

import click

from slurm_lifecycle.cli.asking import ask, wait_option
from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.output import emit_json, json_option, moment, table, typed


@click.group()
def breaker() -> None:
    """What stops repairs when too much fails at once.

    A trip stops starting repairs; it never stops finishing, restoring or returning, and undrains nothing.
    """


@breaker.command()
@click.option("--all", "everything", is_flag=True, help="Past trips too.")
@json_option
@click.pass_context
def status(ctx: click.Context, everything: bool, as_json: bool) -> None:
    """Open trips. Exit 1 when there is one."""
    context: CliContext = ctx.obj
    with context.store() as store:
        trips = store.trips(open_only=not everything)
    is_open = any(trip.reset_at is None for trip in trips)
    if as_json:
        emit_json(trips)
    elif not trips:
        click.echo("closed")
    else:
        rows = [(one.scope, moment(one.tripped_at), moment(one.reset_at), one.reason) for one in trips]
        table(("SCOPE", "TRIPPED", "RESET", "WHY"), rows)
    ctx.exit(1 if is_open else 0)


@breaker.command()
@click.argument("scope", default="all")
@wait_option
@click.pass_context
def reset(ctx: click.Context, scope: str, wait_s: float) -> None:
    """Let repairs start again, for SCOPE (fleet, domain:NAME) or for all."""
    from slurm_lifecycle.core.model import Verb

    ask(ctx, Verb.BREAKER_RESET, typed(scope), "", wait_s)


@breaker.command()
@click.argument("code")
@click.option("--yes", is_flag=True, help="Do not ask.")
@wait_option
@click.pass_context
def lift(ctx: click.Context, code: str, yes: bool, wait_s: float) -> None:
    """Say that finding CODE is a false alarm: every node drained for it goes back, unchecked."""
    from slurm_lifecycle.core.model import Verb

    if not yes:
        click.confirm(
            f"every node drained for {typed(code)} goes back into service unchecked; go on?", abort=True
        )
    ask(ctx, Verb.BREAKER_LIFT, typed(code.upper()), "", wait_s)
