"""The entry point of `slurm-lifecycle`. Imports click and nothing heavy; commands are loaded when used."""

from pathlib import Path
from typing import Any

import click

from slurm_lifecycle import __version__
from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.lazy import Lazy, LazyGroup
from slurm_lifecycle.errors import ConfigError, LifecycleError

EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_STOPPED = 130

_DEFAULT_CONFIG = Path("/etc/slurm-lifecycle/slurm-lifecycle.toml")
_AT = "slurm_lifecycle.cli."

COMMANDS = {
    "status": Lazy(_AT + "status:status", "The fleet at a glance: phases, incidents, breaker, last tick."),
    "nodes": Lazy(_AT + "status:nodes", "Every node that is not simply in service."),
    "node": Lazy(_AT + "node:node", "One node: show, why, hold, release, return, remediate."),
    "incidents": Lazy(_AT + "incidents:incidents", "Open incidents, and closed ones on demand."),
    "incident": Lazy(_AT + "incidents:incident", "One incident with its history."),
    "rma": Lazy(_AT + "rma:rma", "Nodes that wait for a part: list, show, close."),
    "bmc": Lazy(_AT + "bmc:bmc", "The nodes' BMCs: list, show, check, record. None switches power."),
    "breaker": Lazy(_AT + "breaker:breaker", "What stops repairs when too much fails at once."),
    "doctor": Lazy(_AT + "doctor:doctor", "Prove what this site's Slurm must be for us to act safely."),
    "config": Lazy(_AT + "config:config", "Check the configuration, or show all of it."),
    "render": Lazy(_AT + "render:render", "The slurm.conf lines, units and agent.conf for this site."),
    "db": Lazy(_AT + "db:db", "The store: upgrade, backup, claim."),
    "daemon": Lazy(_AT + "daemon:daemon", "Run the daemon on the admin host."),
    "agent": Lazy(_AT + "agent:agent", "Run the agent on a compute node."),
    "check": Lazy(_AT + "agent:check", "The checks that run on a node: run, list, explain."),
    "simulate": Lazy(_AT + "simulate:simulate", "What a policy would have cost, on a simulated fleet."),
    "sandbox": Lazy(_AT + "sandbox:sandbox", "A real local Slurm with emulated GPU nodes."),
}


class RootGroup(LazyGroup):
    """Ends every error that we raise on purpose as one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except LifecycleError as error:
            from slurm_lifecycle.plain_text import plain_line

            # What a command printed or a file holds may be in it.
            click.echo(f"slurm-lifecycle: {plain_line(error, 2000)}", err=True)
            ctx.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_UNREACHABLE)
        except KeyboardInterrupt:
            click.echo("slurm-lifecycle: stopped", err=True)
            ctx.exit(EXIT_STOPPED)


@click.group(cls=RootGroup, commands_at=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=_DEFAULT_CONFIG,
    envvar="SLURM_LIFECYCLE_CONFIG",
    show_default=True,
    help="The site's configuration; also taken from SLURM_LIFECYCLE_CONFIG.",
)
@click.version_option(__version__, prog_name="slurm-lifecycle")
@click.pass_context
def cli(ctx: click.Context, config_path: Path) -> None:
    """Keep Slurm GPU clusters healthy: detect, drain, repair, check, return.

    Exit codes: 0 fine, 1 found a problem, 2 wrong use or configuration, 3 could not reach what it needs.
    """
    ctx.obj = CliContext(config_path)


def main() -> None:
    """Entry point of the console script."""
    cli()
