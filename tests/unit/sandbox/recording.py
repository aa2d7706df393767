"""What the observer wrote in a whole demonstration on real daemons, and the same spoilt on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox.scenarios import SCENARIOS
from slurm_lifecycle.sandbox.scenarios_case import Facts, Judgement
from slurm_lifecycle.sandbox.scenarios_record import Record

_DATA = Path(__file__).parent / "data"
Event = dict[str, Any]
Events = list[Event]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def events_seen() -> Events:
    return [json.loads(line) for line in (_DATA / "demo_observed.jsonl").read_text().splitlines()]


def facts_of(name: str) -> Facts:
    for line in (_DATA / "demo_facts.jsonl").read_text().splitlines():
        raw = json.loads(line)
        if raw.pop("name") == name:
            return Facts(**raw)
    raise AssertionError(name)


def judge(name: str, events: Events, facts: Facts | None = None) -> Judgement:
    record = Record()
    for event in events:
        record.feed(event)
    scenario = BY_NAME[name]
    return scenario.judge(record, scenario.nodes[0], facts or facts_of(name))


def spoilt(name: str, spoil: Callable[[Event], None]) -> Judgement:
    """The judgement after `spoil` was called on every event within the scenario's time."""
    facts, events = facts_of(name), events_seen()
    for event in events:
        if facts.began <= event["at"] <= facts.ended:
            spoil(event)
    return judge(name, events, facts)


def with_more(name: str, *extra: Event) -> Judgement:
    return judge(name, sorted([*events_seen(), *extra], key=lambda event: event["at"]))
