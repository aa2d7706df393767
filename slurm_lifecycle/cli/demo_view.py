"""How the demonstration shows itself: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from slurm_lifecycle.sandbox.demo import Row

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_WORDS = 90


class TerminalView:
    """Shows rows; `with` it, so that the terminal is left in order.

    Args:
        out: where to write; a table only when it is a terminal.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()
        self._shown: dict[str, tuple[object, ...]] = {}
        self._live: Live | None = None

    def __enter__(self) -> TerminalView:
        if self._out.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._out), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """One line."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
            return
        self._out.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        self._out.flush()

    def show(self, rows: Sequence[Row]) -> None:
        """The present state of all scenarios."""
        if self._live is not None:
            self._live.update(rows_table(rows))
            return
        for row in rows:
            key = (row.state, row.reason, row.word, row.ok)
            if row.word and self._shown.get(row.name) != key:
                self._shown[row.name] = key
                result = {None: "", True: "OK: ", False: "FAILED: "}[row.ok]
                reason = f" [{row.reason}]" if row.reason else ""
                word = row.word if row.ok is None else _short(row.word)
                self.say(f"{row.name:24} {row.nodes.split()[0]:3} {row.state}{reason}  {result}{word}")


def _short(text: str) -> str:
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 3].rstrip()}..."


def rows_table(rows: Sequence[Row]) -> Table:
    """The table that a terminal shows."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="slurm-lifecycle on a real Slurm, judged from outside")
    for name in ("scenario", "node", "state in Slurm", "reason in Slurm", "s", "now"):
        table.add_column(name, overflow="fold")
    for row in rows:
        colour = {None: "", True: "green", False: "red"}[row.ok]
        result = {None: "", True: "OK  ", False: "FAILED  "}[row.ok]
        cells = (row.name, row.nodes, row.state, row.reason, f"{row.seconds:.0f}" if row.word else "")
        table.add_row(*map(escape, cells), escape(result + _short(row.word)), style=colour)
    return table


def summary(scenarios: Sequence[dict[str, object]], jobs: int, hurt: Sequence[str], seconds: float) -> str:
    """The closing words."""
    lines = [""]
    for one in scenarios:
        lines.append(
            f"{'OK    ' if one['ok'] else 'FAILED'}  {one['name']} ({one['node']}, {one['seconds']} s)"
        )
        lines.append(f"        must be:  {one['expected']}")
        lines.append(f"        observed: {one['observed']}")
    good = sum(1 for one in scenarios if one["ok"])
    lines.append("")
    lines.append(
        f"users' jobs: {jobs} seen, " + (f"HURT: {', '.join(hurt)}" if hurt else "none killed or requeued")
    )
    lines.append(f"{good} of {len(scenarios)} scenarios ended as they must, in {seconds:.0f} s")
    return "\n".join(lines)


def default_view(*, quiet_stdout: bool) -> TerminalView:
    """A view on standard output, or on standard error where the output is for a program."""
    return TerminalView(sys.stderr if quiet_stdout else sys.stdout)
