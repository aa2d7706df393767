"""A tick over twice the nodes takes twice the work, counted in lines that run: the same on every machine."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from slurm_lifecycle.core.invariants import check_plan
from slurm_lifecycle.core.planner import plan

BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "planner.py"))
KINDS = {kind.name: kind for kind in BENCHMARK["KINDS"]}


def _lines(what: Callable[[], object]) -> int:
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: local)
    try:
        what()
    finally:
        sys.settrace(before)
    return count


def _work(kind: str, size: int) -> int:
    records = BENCHMARK["records_of"](KINDS[kind], size)
    fleet = BENCHMARK["fleet_of"](KINDS[kind], size, records)
    policy, now = BENCHMARK["POLICY"], BENCHMARK["NOW"]
    made = plan(fleet, policy, now)
    assert made.actions
    assert not made.not_acting
    return _lines(lambda: check_plan(fleet, plan(fleet, policy, now), policy, now))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_work_of_a_tick_grows_no_faster_than_the_fleet(kind: str) -> None:
    # Small fleets bear the fixed part of a tick, so the ratio may only be below two.
    assert _work(kind, 1600) < 2.1 * _work(kind, 800)


def test_a_node_that_needs_nothing_costs_a_few_lines() -> None:
    few, many = _work("training", 800), _work("training", 2400)
    assert (many - few) / 1600 < 12


def test_a_search_in_a_search_would_be_seen() -> None:
    def square(size: int) -> int:
        return _lines(lambda: sum(1 for one in range(size) if any(other == one for other in range(size))))

    assert square(80) > 3 * square(40)
