"""What each room of the package may import: the allow-lists that an import graph cannot show."""

import sys
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, imported, modules, name_of

# functools for `lru_cache` on pure functions: what it keeps changes the time of a decision, not the decision.
CORE_MAY = {"dataclasses", "enum", "typing", "collections", "functools", "itertools", "math", "re"}
NODE_MAY_OF_OURS = (
    "slurm_lifecycle.node",
    "slurm_lifecycle.core.fault_catalog",
    "slurm_lifecycle.__version__",
)


def _strange_in_core(path: Path) -> list[str]:
    return [
        name
        for name in imported(path)
        if name.split(".")[0] not in CORE_MAY and not name.startswith("slurm_lifecycle.core.")
    ]


def _strange_in_node(path: Path) -> list[str]:
    return [
        name
        for name in imported(path)
        if not name.startswith(NODE_MAY_OF_OURS)
        and name.split(".")[0] != "pynvml"
        and (name.split(".")[0] not in sys.stdlib_module_names or name.startswith("slurm_lifecycle"))
    ]


@pytest.mark.parametrize("path", modules(PACKAGE / "core"), ids=name_of)
def test_core_imports_nothing_that_could_look_outside(path: Path) -> None:
    assert _strange_in_core(path) == []


@pytest.mark.parametrize("path", modules(PACKAGE / "node"), ids=name_of)
def test_a_node_needs_only_the_standard_library_and_pynvml(path: Path) -> None:
    assert _strange_in_node(path) == []


@pytest.mark.parametrize("line", ["import time", "from os import path", "import slurm_lifecycle.ports"])
def test_the_rule_for_core_sees_a_breach(tmp_path: Path, line: str) -> None:
    breach = tmp_path / "breach.py"
    breach.write_text(line, encoding="utf-8")
    assert _strange_in_core(breach)


@pytest.mark.parametrize(
    "line", ["import click", "from slurm_lifecycle.core import model", "import requests"]
)
def test_the_rule_for_nodes_sees_a_breach(tmp_path: Path, line: str) -> None:
    breach = tmp_path / "breach.py"
    breach.write_text(line, encoding="utf-8")
    assert _strange_in_node(breach)
