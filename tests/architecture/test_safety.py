"""Rules about what the code must never do, and what the tree must never hold."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source import HOOKS, PACKAGE, modules, name_of, parse, tracked_files

_FORBIDDEN_CALLS = {"eval", "exec", "system", "popen"}
# A call that may block has a deadline; Popen's is in the wait that follows it.
_NEED_TIMEOUT = {"run", "check_output", "check_call"}
# An address of another host, and the home folder of whoever wrote the line.
_ELSEWHERE = re.compile(r"https?://(?!127\.0\.0\.1|localhost|\[::1\])[a-z0-9]|(?<![\w.-])/home/[a-z]")
_TEXT_SUFFIXES = {
    "",
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".sh",
    ".cfg",
    ".ini",
    ".c",
    ".j2",
    ".mako",
    ".service",
    ".conf",
}


def _breaches(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        last = called.rsplit(".", 1)[-1]
        keywords = {word.arg: word.value for word in node.keywords}
        shell = keywords.get("shell")
        if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
            found.append(f"line {node.lineno}: shell=")
        if called in ("eval", "exec") or (called.startswith("os.") and last in _FORBIDDEN_CALLS):
            found.append(f"line {node.lineno}: {called}()")
        if called.startswith("subprocess.") and last in _NEED_TIMEOUT and "timeout" not in keywords:
            found.append(f"line {node.lineno}: {called}() without timeout")
    return found


@pytest.mark.parametrize("path", modules(PACKAGE), ids=name_of)
def test_no_shell_no_eval_and_a_timeout_on_every_call(path: Path) -> None:
    assert _breaches(parse(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.Popen('x', shell=True)",
        "eval('1')",
        "os.system('x')",
        "subprocess.run(['x'])",
    ],
)
def test_a_breach_is_seen(line: str) -> None:
    assert len(_breaches(ast.parse(line))) == 1


@pytest.mark.parametrize("path", HOOKS, ids=name_of)
def test_hooks_are_single_files_of_plain_sh(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/sh\n")
    assert path.stat().st_mode & 0o111
    sourced = re.findall(r"^\s*(?:\.|source)\s+\S+", text, flags=re.MULTILINE)
    assert sourced == []
    assert "import slurm_lifecycle" not in text


def test_the_tree_names_no_other_host_and_nobodys_home() -> None:
    found = []
    for path in tracked_files():
        if path.suffix not in _TEXT_SUFFIXES:
            continue
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        ):
            if _ELSEWHERE.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize("line", ["see /" + "home/kim/x", "http" + "://example.org/a"])
def test_such_a_line_is_seen(line: str) -> None:
    assert _ELSEWHERE.search(line)
