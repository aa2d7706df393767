"""How commands print: JSON for programs, tables for people, one way to write times."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """The `--json` of every read command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def emit_json(value: object) -> None:
    """Print a value as JSON; dataclasses become objects, enums their words, sets sorted lists."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=True))


def plain(value: object) -> object:
    """A value as JSON knows it, without what a `repr` hides as well: secrets, and ways to them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value) if item.repr}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def clean(text: str) -> str:
    """One line without control characters: what a node or a user wrote must not drive a terminal."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def typed(text: str) -> str:
    """A word of the command line, fit to be looked up, kept and shown: no name that we know is longer."""
    return clean(text)[:200]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn by rich on a terminal, plain columns elsewhere."""
    lines = [[clean(cell) for cell in row] for row in rows]
    # None where the shell closed it.
    if sys.stdout is not None and sys.stdout.isatty():
        _draw(headers, lines)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headers, *lines, strict=True)]
    for line in (headers, *lines):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _draw(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        drawn.add_column(header, overflow="fold")
    for row in rows:
        # Text, not str: no markup of a node's own is obeyed.
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def moment(at_s: float | None) -> str:
    """A time in local form, for people; `-` where there is none."""
    if at_s is None:
        return "-"
    return datetime.fromtimestamp(at_s, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A length of time in words: `42 s`, `7 min`, `3 h 5 min`, `2 d 4 h`."""
    total = max(0, int(seconds))
    if total < 120:
        return f"{total} s"
    minutes = total // 60
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def ago(at_s: float | None, now: float | None = None) -> str:
    """How long since, in words."""
    return "never" if at_s is None else f"{span((time.time() if now is None else now) - at_s)} ago"
