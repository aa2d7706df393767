"""What starts must start light: modules loaded by `--help`, by hooks' helpers, and by the node agent."""

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest

HEAVY = {
    "pydantic",
    "sqlalchemy",
    "alembic",
    "jinja2",
    "pynvml",
    "prometheus_client",
    "rich",
    "ClusterShell",
    "sushy",
    "requests",
}
# A ratchet: what `--help` loads beyond a bare interpreter. Raise it only with a reason.
MAX_MODULES_FOR_HELP = 160


def _loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names: Iterable[str] = json.loads(done.stdout.splitlines()[-1])
    return set(names)


def _help(arguments: list[str]) -> str:
    return f"""
from slurm_lifecycle.cli.main import cli
try:
    cli({arguments!r}, prog_name="slurm-lifecycle")
except SystemExit as end:
    assert end.code == 0, end.code
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["node", "--help"],
        ["node", "why", "--help"],
        ["bmc", "record", "--help"],
        ["render", "--help"],
    ],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded = {name.split(".")[0] for name in _loaded_by(_help(arguments))}
    assert loaded & HEAVY == set()


def test_help_stays_small() -> None:
    bare = _loaded_by("pass")
    loaded = _loaded_by(_help(["--help"])) - bare
    assert len(loaded) <= MAX_MODULES_FOR_HELP, sorted(loaded)
    ours = {name for name in loaded if name.startswith("slurm_lifecycle.")}
    assert ours <= {
        "slurm_lifecycle.cli",
        "slurm_lifecycle.cli.context",
        "slurm_lifecycle.cli.lazy",
        "slurm_lifecycle.cli.main",
        "slurm_lifecycle.errors",
    }


def test_the_node_agent_loads_only_its_own() -> None:
    loaded = _loaded_by("import slurm_lifecycle.node.agent")
    ours = {name for name in loaded if name.startswith("slurm_lifecycle.")}
    strange = {
        name
        for name in ours
        if not name.startswith("slurm_lifecycle.node")
        and name not in ("slurm_lifecycle.core", "slurm_lifecycle.core.fault_catalog")
    }
    assert strange == set()
    assert not ({name.split(".")[0] for name in loaded} & (HEAVY - {"pynvml"}))
