"""`agent` and `check`: thin fronts of the node side, which also runs as `python -m slurm_lifecycle.node`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click


@click.command()
@click.option(
    "--config", "agent_config", type=click.Path(dir_okay=False), help="The agent's configuration file."
)
@click.option("--once", is_flag=True, help="One full check, publish, exit: 0 ok or warn, 1 drain.")
@click.option("--boot", is_flag=True, help="The same at boot before slurmd; at most 60 s.")
@click.option("--budget-s", type=click.FloatRange(min=0.5), help="Bound of a one-shot run in seconds.")
def agent(agent_config: str | None, once: bool, boot: bool, budget_s: float | None) -> None:
    """Run the agent on a compute node."""
    from slurm_lifecycle.node.__main__ import main

    if once and boot:
        raise click.UsageError("--once and --boot exclude each other")
    arguments = [f"--config={agent_config}"] if agent_config else []
    arguments += ["--once"] * once + ["--boot"] * boot
    arguments += [f"--budget-s={budget_s}"] if budget_s else []
    sys.exit(main(arguments))


@click.group()
def check() -> None:
    """The checks that run on a node."""


@check.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_checks(as_json: bool) -> None:
    """All checks with what they need."""
    from slurm_lifecycle.node.checks.registry import ALL_CHECKS

    if as_json:
        rows = [
            {"id": c.check_id, "needs": c.needs, "explains": c.explains, "codes": c.codes} for c in ALL_CHECKS
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    width = max(len(c.check_id) for c in ALL_CHECKS)
    for one in ALL_CHECKS:
        click.echo(f"{one.check_id:<{width}}  needs {one.needs}")


@check.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(name: str, as_json: bool) -> None:
    """What a check looks at, or what a finding code such as XID79 means and who acts on it."""
    from slurm_lifecycle.core.fault_catalog import FAULTS
    from slurm_lifecycle.node.checks.registry import ALL_CHECKS

    row: dict[str, Any] | None = None
    for one in ALL_CHECKS:
        if one.check_id == name:
            row = {"check": name, "explains": one.explains, "needs": one.needs, "codes": list(one.codes)}
    fault = FAULTS.get(name)
    if fault is not None:
        row = {
            "code": fault.code,
            "text": fault.text,
            "class": fault.fault_class.value,
            "level": fault.level.value,
            "drained by": fault.drained_by.value,
            "clears by": fault.clears.value,
        }
    if row is None:
        raise click.UsageError(f"no check and no finding code '{name}': see `slurm-lifecycle check list`")
    if as_json:
        click.echo(json.dumps(row, indent=1))
        return
    for key, value in row.items():
        click.echo(f"{key}: {', '.join(value) if isinstance(value, list) else value}")


@check.command()
@click.option(
    "--config", "agent_config", type=click.Path(dir_okay=False), help="The agent's configuration file."
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report.")
def run(agent_config: str | None, as_json: bool) -> None:
    """Run all checks here and now, and print what they find; nothing is published or drained."""
    import tempfile
    from dataclasses import replace

    from slurm_lifecycle.node.agent import EXIT_CONFIG, ONCE_CONFIRM_AFTER_S, Agent
    from slurm_lifecycle.node.checks.registry import CHECK_IDS
    from slurm_lifecycle.node.config import ConfigError, load_config

    try:
        config = load_config(agent_config, CHECK_IDS)
    except ConfigError as error:
        click.echo(f"slurm-lifecycle check: {error}", err=True)
        sys.exit(EXIT_CONFIG)
    with tempfile.TemporaryDirectory(prefix="slurm-lifecycle-check-") as scratch:
        private = replace(config, run_dir=scratch, channel="none", mode="observe", textfile="")
        code = Agent(private, ONCE_CONFIRM_AFTER_S, say=lambda _text: None).run_once(budget_s=30.0)
        report_path = Path(scratch) / "report.json"
        report = json.loads(report_path.read_text(encoding="utf-8")) if report_path.exists() else {}
    if as_json:
        click.echo(json.dumps(report, indent=1))
    else:
        for finding in report.get("findings", []):
            click.echo("{level:<5} {code} {component}: {text}".format(**finding))
        gpus = sum(1 for gpu in report.get("gpus", []) if gpu["answers"])
        click.echo(f"{len(report.get('findings', []))} findings, {gpus} GPUs answer")
    sys.exit(code)
