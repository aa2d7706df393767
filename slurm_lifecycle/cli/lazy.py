"""Groups whose commands are imported when they are used, so that `--help` and hooks start fast."""

import importlib
from collections.abc import Mapping
from typing import NamedTuple

import click


class Lazy(NamedTuple):
    """Where a command lives, and its line in the help, which must not cost an import.

    Attributes:
        target: `module:attribute`.
    """

    target: str
    help: str


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def __init__(self, *args: object, commands_at: Mapping[str, Lazy], **kwargs: object) -> None:
        """Take the table of commands beside what `click.Group` takes."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names in the order of the table."""
        return list(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command."""
        lazy = self.commands_at.get(cmd_name)
        if lazy is None:
            return None
        module, _, attribute = lazy.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self.commands_at.items()])
