"""`daemon`: the service on the admin host."""

import click

from slurm_lifecycle.cli.context import CliContext


@click.command()
@click.option("--once", is_flag=True, help="One tick, then exit.")
@click.pass_context
def daemon(ctx: click.Context, once: bool) -> None:
    """Run the daemon on the admin host. In mode observe it shows its plans and does nothing."""
    from slurm_lifecycle.service import bootstrap

    context: CliContext = ctx.obj
    ctx.exit(bootstrap.run_daemon(context.config(), once=once))
