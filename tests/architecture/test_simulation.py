"""A simulation touches nothing real and knows no time and no chance but its own."""

import ast
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, imported, modules, name_of, parse

SIMULATION = PACKAGE / "simulation"
# What could reach a daemon, a machine or a site.
REACHES = {
    "subprocess",
    "socket",
    "ssl",
    "http",
    "asyncio",
    "ctypes",
    "sushy",
    "pyslurm",
}
# These measure how long a run took; no decision in a run may hang on it.
MEASURES = {"run.py", "study.py", "suite.py"}
CLOCKS = {"time", "datetime"}


def _reaching(path: Path) -> list[str]:
    wrong = REACHES if path.name in MEASURES else REACHES | CLOCKS
    return [
        name for name in imported(path) if name.split(".")[0] in wrong or name.startswith("urllib.request")
    ]


def _unseeded(path: Path) -> list[str]:
    """Uses of `random` beyond the class `Random`, which only a seed makes."""
    uses = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Attribute)]
    return [
        f"random.{one.attr}"
        for one in uses
        if isinstance(one.value, ast.Name) and one.value.id == "random" and one.attr != "Random"
    ]


@pytest.mark.parametrize("path", modules(SIMULATION), ids=name_of)
def test_nothing_real_no_clock_no_chance(path: Path) -> None:
    assert _reaching(path) == []
    assert _unseeded(path) == []


@pytest.mark.parametrize("line", ["import subprocess", "from time import time", "import socket as s"])
def test_the_rule_sees_what_reaches_out(tmp_path: Path, line: str) -> None:
    breach = tmp_path / "world.py"
    breach.write_text(line, encoding="utf-8")
    assert _reaching(breach)


def test_the_rule_sees_chance_without_a_seed(tmp_path: Path) -> None:
    breach = tmp_path / "world.py"
    breach.write_text("import random\nrng = random.Random(1)\nx = random.random()", encoding="utf-8")
    assert _unseeded(breach) == ["random.random"]
