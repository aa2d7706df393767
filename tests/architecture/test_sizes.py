"""A function has at most 70 lines, a module at most 400: what is longer is two things."""

import ast
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, ROOT, modules, name_of, parse

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 400


def _long_functions(path: Path) -> list[str]:
    return [
        f"{node.name} has {lines} lines"
        for node in ast.walk(parse(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


@pytest.mark.parametrize("path", [*modules(PACKAGE), *modules(ROOT / "tests")], ids=name_of)
def test_no_function_is_too_long(path: Path) -> None:
    assert _long_functions(path) == []


@pytest.mark.parametrize("path", modules(PACKAGE), ids=name_of)
def test_no_module_is_too_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_MODULE_LINES


def test_a_function_that_is_too_long_is_seen(tmp_path: Path) -> None:
    breach = tmp_path / "breach.py"
    breach.write_text("def long():\n" + "    pass\n" * MAX_FUNCTION_LINES, encoding="utf-8")
    assert _long_functions(breach) == ["long has 71 lines"]
