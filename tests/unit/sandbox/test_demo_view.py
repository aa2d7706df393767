"""How the demonstration shows itself, on a terminal and in a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from slurm_lifecycle.cli.demo_view import TerminalView, rows_table, summary
from slurm_lifecycle.sandbox.demo import Row, choose
from slurm_lifecycle.sandbox.settings import SandboxError


def test_table_shows_each_scenario_and_takes_no_markup_from_a_reason() -> None:
    rows = [
        Row("app-xid13", "n5", "IDLE", "", 3.0, "in service", True),
        Row("breaker", "n6 n1", "IDLE+DRAIN", "drained [red]by[/red] kim", 9.0, "NOT AS IT MUST BE", False),
    ]
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(rows_table(rows))
    text = console.export_text()
    assert "OK  in service" in text
    assert "drained [red]by[/red] kim" in text
    assert "FAILED  NOT AS IT MUST BE" in text


def test_lines_tell_a_change_once() -> None:
    out = io.StringIO()
    row = Row("app-xid13", "n5", "IDLE", "", 0.0, "its job")
    with TerminalView(out) as view:
        view.show([row])
        row.seconds = 1.0
        view.show([row])
        row.state, row.reason = "IDLE+DRAIN", "because"
        view.show([row])
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("IDLE+DRAIN [because]  its job")


def test_summary_counts_and_names_what_failed() -> None:
    one = {"name": "a", "node": "n1", "seconds": 1.0, "expected": "x", "observed": "y", "ok": True}
    text = summary([one, {**one, "name": "b", "ok": False}], 7, ["job 3: CANCELLED"], 60.0)
    assert "FAILED  b" in text
    assert "job 3: CANCELLED" in text
    assert "1 of 2 scenarios" in text


def test_scenarios_are_chosen_by_name() -> None:
    assert len(choose(())) == 11
    assert [one.name for one in choose(("breaker",))] == ["breaker"]
    with pytest.raises(SandboxError, match="choose from xid79-busy"):
        choose(("breakers",))
