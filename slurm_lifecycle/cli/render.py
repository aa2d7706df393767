"""`render`: texts for a site, made from its configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.errors import ConfigError

if TYPE_CHECKING:
    from slurm_lifecycle.service.config import Config

F = TypeVar("F", bound=Callable[..., Any])
# Slurm gives a boot up later than we do, so that our own deadline decides.
_RESUME_MARGIN_S = 300

_FILES = {
    "slurm-conf": ("slurm.conf.snippet",),
    "units": ("slurm-lifecycle.service", "slurm-lifecycle-agent.service"),
    "agent-conf": ("agent.conf",),
}
_TEMPLATES = {"slurm.conf.snippet": "slurm.conf.j2"}


def _site_options(command: F) -> F:
    for option in (
        click.option("--hooks-dir", default="/usr/libexec/slurm-lifecycle", show_default=True),
        click.option("--command", default="/usr/bin/slurm-lifecycle", show_default=True),
        click.option("--reboot-program", default="/usr/sbin/reboot", show_default=True),
        click.option("--agent-mode", type=click.Choice(["observe", "drain"]), default="observe"),
        click.option("--expected-gpus", type=click.IntRange(min=0), help="GPUs that every node must have."),
        click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Write files there."),
    ):
        command = option(command)
    return command


@click.group()
def render() -> None:
    """The slurm.conf lines, units and agent.conf for this site.

    Printed, or written into a folder with --output; nothing is installed.
    """


def _texts(config: Config, what: tuple[str, ...], options: dict[str, Any]) -> dict[str, str]:
    from slurm_lifecycle.core.model import Rung
    from slurm_lifecycle.service.render import render as fill

    rules = (rule for path in config.policy.paths.values() for rule in path if rule.rung is Rung.REBOOT)
    deadline_s = int(max((rule.deadline_s for rule in rules), default=0))
    gpus = options["expected_gpus"]
    values = {
        "hooks_dir": options["hooks_dir"],
        "command": options["command"],
        "reboot_program": options["reboot_program"],
        "agent_mode": options["agent_mode"],
        "expected_gpus": "" if gpus is None else gpus,
        "reboot_deadline_s": deadline_s,
        "resume_timeout_s": deadline_s + _RESUME_MARGIN_S,
        "user": config.slurm.user,
        "config_path": config.path.absolute(),
        "writable": sorted({str(config.store_path.parent), str(config.rma_folder.parent)}),
    }
    names = [name for part in what for name in _FILES[part]]
    return {name: fill(_TEMPLATES.get(name, f"{name}.j2"), **values) for name in names}


def _deliver(texts: dict[str, str], output: Path | None) -> None:
    if output is None:
        for name, text in texts.items():
            click.echo(text if len(texts) == 1 else f"# ---- {name}\n{text}", nl=len(texts) > 1)
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (output / name).write_text(text, encoding="utf-8")
            click.echo(str(output / name))
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}; name another --output") from None


def _add(name: str, what: tuple[str, ...], summary: str) -> None:
    @render.command(name=name, help=summary, short_help=summary)
    @_site_options
    @click.pass_obj
    def command(context: CliContext, /, output: Path | None, **options: Any) -> None:
        _deliver(_texts(context.config(), what, options), output)


_add("slurm-conf", ("slurm-conf",), "The lines for slurm.conf that wire the hooks and make reboots safe.")
_add("units", ("units",), "The systemd units: the daemon's for the admin host, the agent's for the nodes.")
_add("agent-conf", ("agent-conf",), "The agent's configuration for the compute nodes.")
_add("all", tuple(_FILES), "All of them.")
