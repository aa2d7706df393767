"""The observer and what is concluded from its record: on a real recording, and on spoilt copies of it.

`data/demo_observed.jsonl` is what the observer wrote in a whole demonstration on real daemons (Slurm 22.05);
`data/demo_facts.jsonl` holds what the judgements knew beside it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox import observer
from slurm_lifecycle.sandbox.observer import NodeChange
from slurm_lifecycle.sandbox.scenarios_record import Record
from tests.unit.sandbox.recording import BY_NAME as _BY_NAME
from tests.unit.sandbox.recording import Event, Events
from tests.unit.sandbox.recording import events_seen as _events
from tests.unit.sandbox.recording import facts_of as _facts
from tests.unit.sandbox.recording import judge as _judge
from tests.unit.sandbox.recording import spoilt as _spoilt
from tests.unit.sandbox.recording import with_more as _with


def _last_node_event(events: Events, node: str, before: float) -> Event:
    return next(
        e for e in reversed(events) if e["kind"] == "node" and e["name"] == node and e["at"] <= before
    )


def _first(name: str, good: Callable[[Event], bool]) -> Event:
    since = _facts(name).at.get("injected", 0.0)
    return next(event for event in _events() if event["at"] >= since and good(event))


def _is_node(event: Event, node: str) -> bool:
    return (event["kind"], event.get("name")) == ("node", node)


# ---------------------------------------------------------------- the observer itself


def test_observer_imports_nothing_of_the_package() -> None:
    tree = ast.parse(Path(observer.__file__).read_text())
    found = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or "."] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert found
    assert found <= set(sys.stdlib_module_names)


_NODE = (
    "NodeName=n1 Arch=x86_64 OS=Linux State=IDLE+DRAIN #1 SMP  RealMemory=64000 State={state} Weight=1 "
    "BootTime=2026-11-30T15:59:41 SlurmdStartTime=2026-11-30T15:59:42 "
    "CfgTRES=cpu=16,mem=62.50G AllocTRES= CapWatts=n/a AveWatts=0 ExtSensorsTemp=n/s{tail}\n"
)


_SET = " [root@2026-11-30T15:59:57]"


@pytest.mark.parametrize(
    ("tail", "reason", "comment", "extra"),
    [
        ("", "", "", ""),
        (f" Reason=slc:XID79 gpu3 t : reboot issued{_SET} ", "slc:XID79 gpu3 t : reboot issued", "", ""),
        (f" Reason=a [b] Extra=c = d{_SET} Comment=x Extra=e 1", "a [b] Extra=c = d", "x", "e 1"),
        (" Comment=a b Reason=fake State=DOWN Extra=e", "", "a b Reason=fake State=DOWN", "e"),
    ],
)
def test_node_record_is_read(tail: str, reason: str, comment: str, extra: str) -> None:
    found = observer.parse_nodes(_NODE.format(state="MIXED+DRAIN", tail=tail), 7.0)["n1"]
    by = _SET.strip(" []") if reason else ""
    boot = "2026-11-30T15:59:41"
    assert found == NodeChange(7.0, "MIXED+DRAIN", reason, by, boot, extra, comment)


def test_a_star_is_not_responding() -> None:
    found = observer.parse_nodes(_NODE.format(state="DOWN*+DRAIN", tail=""), 1.0)["n1"]
    assert found.tokens == {"DOWN", "DRAIN", "NOT_RESPONDING"}
    assert not found.in_service


def test_jobs_reservations_hostlists_and_log_lines_are_read() -> None:
    jobs = observer.parse_jobs("12|COMPLETED|n[1-2]|0|0|\n13|PENDING||1|0|\nnonsense\n", 1.0)
    assert (jobs["12"].nodes, jobs["13"].restarts, len(jobs)) == (("n1", "n2"), 1, 2)
    text = (
        "ReservationName=slc-x StartTime=a Nodes=n[09-10],m7 NodeCnt=3 Flags=MAINT,IGNORE_JOBS Users=root\n"
    )
    assert observer.parse_reservations(text, 1.0)["slc-x"].nodes == ("n09", "n10", "m7")
    assert observer.parse_reservations("No reservations in the system\n", 1.0) == {}
    assert observer.parse_log_line("no date here") is None
    parsed = observer.parse_log_line("[2026-11-30T15:59:56.308] reboot request queued for nodes n1")
    assert parsed is not None
    assert (round(parsed[0] % 1, 3), parsed[1]) == (0.308, "reboot request queued for nodes n1")


def test_boot_times_that_differ_by_a_second_are_one_boot() -> None:
    record = Record()
    for at, boot in (
        (1.0, "2026-11-30T15:00:00"),
        (2.0, "2026-11-30T15:00:01"),
        (3.0, "2026-11-30T15:02:00"),
    ):
        record.feed({"kind": "node", "name": "n1", "at": at, "state": "IDLE", "boot_time": boot})
    assert record.boots("n1", 0.0) == [3.0]


# ---------------------------------------------------------------- the real recording


@pytest.mark.parametrize("name", list(_BY_NAME))
def test_the_real_recording_is_judged_good(name: str) -> None:
    judgement = _judge(name, _events())
    assert judgement.problems == []
    assert len(judgement.seen) >= 5


@pytest.mark.parametrize("name", list(_BY_NAME))
def test_a_scenario_that_did_not_happen_is_no_success(name: str) -> None:
    facts = _facts(name)
    before = [event for event in _events() if event["at"] < facts.at.get("injected", facts.began)]
    watched = [{"kind": "poll", "at": facts.began + i} for i in range(int(facts.ended - facts.began) + 1)]
    assert not _judge(name, before + watched, facts).ok
    assert not _judge(name, [], facts).ok


@pytest.mark.parametrize("name", list(_BY_NAME))
def test_the_suites_own_word_is_no_proof_and_must_agree(name: str) -> None:
    facts = _facts(name)
    facts.claims, facts.findings = (), ()
    # The breaker's trip is the one fact that only the suite can tell; it comes by `at`.
    if name == "breaker":
        del facts.at["tripped"]
    assert not _judge(name, _events(), facts).ok


@pytest.mark.parametrize("name", list(_BY_NAME))
def test_what_nobody_watched_is_not_judged_good(name: str) -> None:
    facts = _facts(name)
    middle = (facts.began + facts.ended) / 2
    seen = [e for e in _events() if not (e["kind"] == "poll" and middle - 5 < e["at"] < middle + 5)]
    assert "nobody watched" in _judge(name, seen, facts).observed


# ---------------------------------------------------------------- spoilt: jobs


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"state": "CANCELLED"}, "CANCELLED"),
        ({"state": "NODE_FAIL"}, "NODE_FAIL"),
        ({"restarts": 1}, "requeued"),
        ({"exit_code": "9"}, "exit 9"),
    ],
)
def test_a_job_that_was_killed_or_requeued_is_seen(changes: Event, word: str) -> None:
    job = _facts("xid79-busy").text["job"]

    def spoil(event: Event) -> None:
        if event["kind"] == "job" and event["name"] == job and event["state"] == "COMPLETED":
            event.update(changes)

    judgement = _spoilt("xid79-busy", spoil)
    assert any(word in problem for problem in judgement.problems)


@pytest.mark.parametrize("name", ["driver-mismatch-reimage", "app-xid13", "breaker"])
def test_another_users_job_that_was_killed_is_seen(name: str) -> None:
    node = _BY_NAME[name].nodes[-1]

    def spoil(event: Event) -> None:
        if event["kind"] == "job" and node in event["nodes"] and event["state"] == "COMPLETED":
            event["state"] = "FAILED"

    assert any("FAILED" in problem for problem in _spoilt(name, spoil).problems)


def test_a_reboot_before_the_jobs_end_is_seen() -> None:
    drained = _first("xid79-busy", lambda e: _is_node(e, "n1") and "DRAIN" in e["state"])

    def spoil(event: Event) -> None:
        if event["kind"] == "log" and event["text"] == "reboot request queued for nodes n1":
            event["at"] = drained["at"] + 1.0

    assert "rebooted before its job ended" in _spoilt("xid79-busy", spoil).problems


def test_a_job_started_on_a_node_under_repair_is_seen() -> None:
    drained = _first("xid79-busy", lambda e: _is_node(e, "n1") and "DRAIN" in e["state"])
    job = {"kind": "job", "name": "999", "at": drained["at"] + 20.0, "state": "RUNNING", "nodes": ["n1"]}
    judgement = _with("xid79-busy", job)
    assert any("jobs started there" in problem for problem in judgement.problems)


# ---------------------------------------------------------------- spoilt: reboots, fences, returns


@pytest.mark.parametrize("name", ["xid79-busy", "driver-mismatch-reimage", "daemon-killed"])
def test_a_second_reboot_is_seen(name: str) -> None:
    node = _BY_NAME[name].nodes[0]
    at = _facts(name).ended - 1.0
    log = {"kind": "log", "at": at, "text": f"reboot request queued for nodes n9,{node}"}
    assert any("2 reboots asked" in problem for problem in _with(name, log).problems)


@pytest.mark.parametrize("name", list(_BY_NAME.keys() - {"breaker"}))
def test_a_boot_that_nobody_asked_slurm_for_is_seen(name: str) -> None:
    node, facts = _BY_NAME[name].nodes[0], _facts(name)
    events = _events()
    last = dict(_last_node_event(events, node, facts.ended - 0.5))
    last.update(at=facts.ended - 0.4, boot_time="2026-11-30T23:59:00")
    assert any(" boots; must be " in problem for problem in _with(name, last).problems)


@pytest.mark.parametrize("name", ["xid79-busy", "driver-mismatch-reimage", "daemon-killed"])
def test_a_reboot_without_a_fence_is_seen(name: str) -> None:
    events = [event for event in _events() if event["kind"] != "reservation"]
    assert "rebooted without a fence" in _judge(name, events).problems


@pytest.mark.parametrize("name", ["xid79-busy", "driver-mismatch-reimage", "daemon-killed"])
def test_a_return_without_checks_of_the_new_boot_is_seen(name: str) -> None:
    node = _BY_NAME[name].nodes[0]
    before = _first(name, lambda e: _is_node(e, node) and "DRAIN" in e["state"])["extra"]

    def spoil(event: Event) -> None:
        if _is_node(event, node) and "DRAIN" not in event["state"]:
            event["extra"] = before

    assert any("in service unchecked" in problem for problem in _spoilt(name, spoil).problems)


@pytest.mark.parametrize("name", ["xid79-busy", "driver-mismatch-reimage", "daemon-killed"])
def test_a_node_that_is_out_again_is_seen(name: str) -> None:
    node, facts = _BY_NAME[name].nodes[0], _facts(name)
    last = dict(_last_node_event(_events(), node, facts.ended - 0.5), at=facts.ended - 0.4, state="DOWN")
    assert any("left service again" in problem for problem in _with(name, last).problems)


def test_a_drain_that_comes_late_is_seen() -> None:
    facts = _facts("daemon-killed")
    facts.at["injected"] -= 30.0
    facts.began -= 30.0
    judgement = _judge("daemon-killed", _events(), facts)
    assert any("must be within" in problem for problem in judgement.problems)


def test_a_daemon_killed_at_another_time_is_seen() -> None:
    facts = _facts("daemon-killed")
    facts.at["killed"] = facts.began
    judgement = _judge("daemon-killed", _events(), facts)
    assert "the daemon was not killed while the node rebooted" in judgement.problems


def test_a_reimage_that_did_not_happen_is_seen() -> None:
    facts = _facts("driver-mismatch-reimage")
    facts.text["image_after"] = facts.text["image_before"]
    assert "the node was not reimaged" in _judge("driver-mismatch-reimage", _events(), facts).problems


def test_checks_that_passed_after_the_reboot_make_the_reimage_wrong() -> None:
    def spoil(event: Event) -> None:
        if _is_node(event, "n3"):
            event["extra"] = event["extra"].replace("drain DRIVER_MISMATCH driver", "ok - -")

    assert any("verdicts by boot" in p for p in _spoilt("driver-mismatch-reimage", spoil).problems)


# ---------------------------------------------------------------- spoilt: what must stay as it is


def test_a_foreign_reason_changed_by_one_byte_is_seen() -> None:
    facts, events = _facts("admin-drain-untouched"), _events()
    last = dict(_last_node_event(events, "n4", facts.ended), at=facts.ended - 3.0)
    last["reason"] = last["reason"].replace("NOT", "N0T")
    assert not _with("admin-drain-untouched", last).ok
    longer = {**last, "reason": facts.text["reason"] + " "}
    assert not _with("admin-drain-untouched", longer).ok


def test_a_foreign_reason_that_was_set_again_between_two_looks_is_seen() -> None:
    facts = _facts("admin-drain-untouched")
    text = f"update_node: node n4 reason set to: {facts.text['reason']}"
    judgement = _with("admin-drain-untouched", {"kind": "log", "at": facts.ended - 3.0, "text": text})
    assert any("reasons given" in problem for problem in judgement.problems)
    again = dict(_last_node_event(_events(), "n4", facts.ended), at=facts.ended - 3.0)
    again["reason_by"] = "root@2026-11-30T23:00:00"
    assert any("author and time" in p for p in _with("admin-drain-untouched", again).problems)


def test_a_foreign_drain_that_was_lifted_for_a_moment_is_seen() -> None:
    facts, events = _facts("admin-drain-untouched"), _events()
    last = _last_node_event(events, "n4", facts.ended)
    judgement = _with(
        "admin-drain-untouched",
        {**last, "at": facts.ended - 3.0, "state": "IDLE"},
        {**last, "at": facts.ended - 2.9},
    )
    assert any("IDLE" in problem for problem in judgement.problems)


def test_a_fence_over_a_persons_node_is_seen() -> None:
    at = _facts("admin-drain-untouched").ended - 3.0
    fence = {
        "kind": "reservation",
        "name": "slc-x",
        "at": at,
        "there": True,
        "nodes": ["n4"],
        "flags": "MAINT",
    }
    assert any("fenced by" in p for p in _with("admin-drain-untouched", fence).problems)


@pytest.mark.parametrize("name", ["remap-failure-rma", "dead-node"])
def test_a_node_that_should_stay_out_but_came_back_is_seen(name: str) -> None:
    node, facts = _BY_NAME[name].nodes[0], _facts(name)
    last = _last_node_event(_events(), node, facts.ended)
    judgement = _with(name, {**last, "at": facts.ended - 1.0, "state": "IDLE", "reason": ""})
    assert "did not stay drained" in judgement.problems


@pytest.mark.parametrize("cut", ["1650000200005", "REMAP_FAILURE", ""])
def test_a_ticket_without_serial_or_evidence_is_seen(cut: str) -> None:
    facts = _facts("remap-failure-rma")
    facts.text["ticket"] = facts.text["ticket"].replace(cut, "") if cut else ""
    assert any("ticket" in problem for problem in _judge("remap-failure-rma", _events(), facts).problems)


def test_a_drain_for_an_application_fault_is_seen_even_between_two_looks() -> None:
    at = _facts("app-xid13").ended - 2.0
    log = {"kind": "log", "at": at, "text": "update_node: node n5 reason set to: slc:XID13 gpu2"}
    assert any("reasons were given" in p or "reasons given" in p for p in _with("app-xid13", log).problems)
    last = _last_node_event(_events(), "n5", at)
    drained = {**last, "at": at, "state": "MIXED+DRAIN", "reason": "slc:XID13 gpu2"}
    assert any("MIXED+DRAIN" in problem for problem in _with("app-xid13", drained).problems)


def test_an_adoption_before_its_time_is_seen() -> None:
    facts = _facts("dead-node")
    facts.text["adopt_after_s"] = "600"
    assert any("before the 600 s" in problem for problem in _judge("dead-node", _events(), facts).problems)


# ---------------------------------------------------------------- spoilt: the breaker


@pytest.mark.parametrize(
    "text",
    ["reboot request queued for nodes n7", "update_node: node n7 reason set to: slc:DRIVER_MISMATCH driver"],
)
def test_work_that_begins_while_the_breaker_is_open_is_seen(text: str) -> None:
    at = _facts("breaker").at["tripped"] + 6.0
    judgement = _with("breaker", {"kind": "log", "at": at, "text": text})
    assert any("after the trip" in problem for problem in judgement.problems)


def test_a_breaker_that_stopped_the_return_of_a_repaired_node_is_seen() -> None:
    facts = _facts("breaker")

    def spoil(event: Event) -> None:
        in_time = facts.at["tripped"] < event["at"] < facts.at["reset"]
        if _is_node(event, "n6") and in_time and "DRAIN" not in event["state"]:
            event["state"] = "IDLE+DRAIN"

    assert "n6 was not returned while the breaker was open" in _spoilt("breaker", spoil).problems


def test_nodes_that_stay_out_after_the_reset_are_seen() -> None:
    facts = _facts("breaker")
    last = _last_node_event(_events(), "n5", facts.ended)
    judgement = _with("breaker", {**last, "at": facts.ended - 0.1, "state": "IDLE+DRAIN"})
    assert "still out: n5" in judgement.problems


def test_a_breaker_that_was_reset_at_once_proves_nothing() -> None:
    facts = _facts("breaker")
    facts.at["reset"] = facts.at["tripped"] + 1.0
    assert any("not held for long enough" in p for p in _judge("breaker", _events(), facts).problems)


def test_a_trip_that_undrains_by_itself_is_seen() -> None:
    facts = _facts("breaker")
    drained = [
        node
        for node in _BY_NAME["breaker"].nodes[1:]
        if "DRAIN" in _last_node_event(_events(), node, facts.at["tripped"] + 2.5)["state"]
    ]
    assert drained, "the recording has a node that was drained when the breaker tripped"
    last = _last_node_event(_events(), drained[0], facts.at["lifted"])
    judgement = _with("breaker", {**last, "at": facts.at["lifted"] - 1.0, "state": "IDLE"})
    assert f"{drained[0]} was let go while the breaker was open" in judgement.problems
