"""`db`: the store of record."""

import time
from pathlib import Path

import click

from slurm_lifecycle.cli.context import CliContext, actor


@click.group()
def db() -> None:
    """The store: upgrade, backup, claim."""


@db.command()
@click.pass_obj
def upgrade(context: CliContext) -> None:
    """Bring the store to this release's schema; a copy is put beside it first. Stop the daemon before."""
    from slurm_lifecycle.service import bootstrap

    copy = bootstrap.upgrade_store(context.config())
    click.echo(f"upgraded; the store as it was is {copy}" if copy else "the store has this release's schema")


@db.command()
@click.argument("destination", type=click.Path(path_type=Path))
@click.pass_obj
def backup(context: CliContext, destination: Path) -> None:
    """Write a consistent copy of the store to DESTINATION while the daemon runs."""
    with context.store() as store:
        store.backup(destination)
    click.echo(f"{destination}: {destination.stat().st_size} bytes")


@db.command()
@click.pass_obj
def claim(context: CliContext) -> None:
    """Make this store and this host the ones that act, over whatever claim the cluster bears now.

    For a store that was restored, lost or moved to another host. No daemon may be running on the store, here
    or elsewhere. Work of the former daemon that this store does not know is held for a person afterwards.
    """
    from slurm_lifecycle.core.formats import parse_claim
    from slurm_lifecycle.service import bootstrap

    claims = [found for view in context.slurm().nodes().values() if (found := parse_claim(view.comment))]
    with context.store_for_requests() as store:
        mine = store.identity().instance
        others = sorted({one.instance for one in claims if one.instance != mine})
        if len(others) > 1:
            raise click.UsageError(
                f"nodes bear claims of several instances ({', '.join(others)}): take the slcd[...] of those "
                "that are gone out of the nodes' Comment"
            )
        identity = store.claim(
            bootstrap.host_name(),
            actor=actor(),
            now=time.time(),
            took_over=others[0] if others else "",
            generation=max((one.generation for one in claims), default=0),
        )
    over = f", over instance {others[0]}" if others else ""
    click.echo(f"the daemon on {identity.host} acts from its next start on{over}")
