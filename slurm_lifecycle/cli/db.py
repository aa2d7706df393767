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
@click.option(
    "--took-over", default="", help="Instance of a lost store whose marks on nodes become this one's."
)
@click.pass_obj
def claim(context: CliContext, took_over: str) -> None:
    """Make this host the one whose daemon acts. No daemon may be running on the store, here or elsewhere."""
    from slurm_lifecycle.service import bootstrap

    with context.store_for_requests() as store:
        identity = store.claim(bootstrap.host_name(), actor=actor(), now=time.time(), took_over=took_over)
    click.echo(f"the daemon on {identity.host} acts from now on (instance {identity.instance or 'new'})")
