"""Documents and CLI say the same."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from slurm_lifecycle.cli.lazy import LazyGroup
from slurm_lifecycle.cli.main import COMMANDS, cli
from tests.architecture.source import ROOT

README = ROOT / "README.md"


def _all_commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _all_commands(command, (*path, name))


ALL = list(_all_commands(cli))


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_explains_itself(path: tuple[str, ...], command: click.Command) -> None:
    assert command.help
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_in_the_help_and_in_the_readme(name: str) -> None:
    assert COMMANDS[name].help in " ".join(
        CliRunner().invoke(cli, ["--help"], terminal_width=200).output.split()
    )
    assert re.search(rf"`(?:slurm-lifecycle )?{name}\b", README.read_text(encoding="utf-8"))


def _named_in_readme() -> list[str]:
    """Commands as they stand in code: after a backtick, or in an indented line."""
    named = re.compile(r"(?:`|^ {4})slurm-lifecycle ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", flags=re.MULTILINE)
    return sorted(set(named.findall(README.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("words", _named_in_readme())
def test_every_command_that_the_readme_names_exists(words: str) -> None:
    first, _, second = words.partition(" ")
    known = {path for path, _ in ALL}
    assert (first,) in known
    group = dict(ALL)[(first,)]
    if second and isinstance(group, click.Group):
        assert (first, second) in known


def test_the_root_lists_without_loading() -> None:
    assert isinstance(cli, LazyGroup)
    assert cli.list_commands(click.Context(cli)) == list(COMMANDS)


@pytest.mark.parametrize("target", ["setup", "demo", "test", "check", "clean"])
def test_every_make_target_of_the_readme_exists(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    if target in ("demo", "test"):
        assert f"make {target}" in README.read_text(encoding="utf-8")


def test_every_relative_link_of_the_documents_leads_somewhere() -> None:
    for document in (README, ROOT / "CHANGELOG.md", ROOT / "docs" / "simulation.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
