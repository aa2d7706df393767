"""A person's request: put into the store's inbox, answered by the daemon within a tick."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurm_lifecycle.cli.context import CliContext, actor
from slurm_lifecycle.cli.output import ago, clean

if TYPE_CHECKING:
    from slurm_lifecycle.core.model import Verb

F = TypeVar("F", bound=Callable[..., Any])
_POLL_S = 0.2


def wait_option(command: F) -> F:
    """How long to wait for the daemon's answer."""
    return click.option(
        "--wait",
        "wait_s",
        type=click.FloatRange(min=0),
        default=30.0,
        show_default=True,
        help="Seconds to wait for the daemon's answer; 0 leaves the request and returns.",
    )(command)


def ask(ctx: click.Context, verb: Verb, subject: str, text: str, wait_s: float) -> None:
    """Leave a request and say what the daemon made of it.

    Ends the command: exit 0 when it was accepted, 1 when it was refused, 3 when nobody answered in time.
    """
    context: CliContext = ctx.obj
    with context.store_for_requests() as store:
        number = store.add_request(verb, subject, actor(), text, time.time())
        if not wait_s:
            click.echo(f"request {number} is left for the daemon")
            return
        deadline = time.monotonic() + wait_s
        while True:
            answer = store.answer(number)
            if answer is not None and answer.done_at is not None:
                click.echo(f"{subject or verb.value}: {clean(answer.text)}")
                ctx.exit(1 if answer.text.startswith("refused") else 0)
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        tick = store.last_tick()
    click.echo(
        f"slurm-lifecycle: no answer within {wait_s:g} s (last tick {ago(tick.at if tick else None)}); "
        f"request {number} stays and is answered when the daemon runs: systemctl status slurm-lifecycle",
        err=True,
    )
    ctx.exit(3)
