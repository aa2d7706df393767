"""What is written is read back, and the database refuses what must never be."""

import sqlite3
from collections.abc import Callable
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    BreakerHit,
    Fence,
    Finding,
    Hold,
    Incident,
    Phase,
    Rung,
    Step,
    Trip,
    Verb,
)
from slurm_lifecycle.core.plan import Event, NodeStatus, Plan
from slurm_lifecycle.errors import InvariantViolation
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore
from slurm_lifecycle.store.status_changes import status_changes
from tests.unit.store import store_values as make
from tests.unit.store.store_values import DAY_S, NOW


def _full_plan() -> Plan:
    opened, closed = make.incident("n1"), make.incident("n2", NOW - DAY_S, Step.CLOSED)
    return Plan(
        incidents=(opened, closed),
        findings=(make.finding("n1"),),
        attempts=(make.attempt(opened), make.ended(make.attempt(closed))),
        fences=(Fence("slc-n1", "n1", opened.id, NOW),),
        trips=(Trip("fleet", NOW, "5 nodes"),),
        hits=(BreakerHit("n1", NOW, "XID79", opened.id),),
        holds=(Hold("n9", NOW, "alice", "looking at it"),),
        events=(Event(NOW, "n1", "opened", "XID79 gpu3", incident_id=opened.id),),
        statuses=(NodeStatus("n1", Phase.LEAVING, "draining"), NodeStatus("n2", Phase.IN_SERVICE, "fine")),
    )


def test_everything_of_a_plan_is_loaded_again(store: SqlStore, path: Path) -> None:
    plan = _full_plan()
    store.apply(plan, NOW)
    store.close()
    with open_store(path, host="admin1", acting=True) as again:
        records = again.load(NOW)
        assert records.incidents == {"n1": plan.incidents[0]}
        assert records.closed_incidents == (plan.incidents[1],)
        assert set(records.attempts) == set(plan.attempts)
        assert records.findings == plan.findings
        assert records.fences == {"slc-n1": plan.fences[0]}
        assert records.trips == plan.trips
        assert records.hits == plan.hits
        assert records.holds == {"n9": plan.holds[0]}
        assert again.node_statuses() == plan.statuses
        assert again.events(node="n1") == plan.events
        assert again.incident(plan.incidents[0].id) == plan.incidents[0]
        assert again.history(plan.incidents[0].id) == ("2027-01-15T08:00:00Z opened: XID79 gpu3 (daemon)",)


def test_ended_rows_leave_the_records_but_not_the_store(store: SqlStore) -> None:
    plan = _full_plan()
    store.apply(plan, NOW)
    later = NOW + 60
    closed = replace(plan.incidents[0], step=Step.CLOSED, closed_at=later, outcome="returned")
    store.apply(
        Plan(
            incidents=(closed,),
            attempts=(make.ended(plan.attempts[0], AttemptOutcome.SUCCEEDED, later),),
            findings=(replace(plan.findings[0], cleared_at=later),),
            fences=(replace(plan.fences[0], closed_at=later),),
            trips=(replace(plan.trips[0], reset_at=later),),
            holds=(replace(plan.holds[0], released_at=later),),
        ),
        later,
    )
    records = store.load(later)
    assert not records.incidents
    assert not records.findings
    assert not records.fences
    assert not records.holds
    assert closed in records.closed_incidents
    # A trip that a person reset within a day is still needed: hits before it do not count again.
    assert records.trips == (replace(plan.trips[0], reset_at=later),)
    assert not store.load(later + 2 * DAY_S).trips
    assert store.findings("n1") == (replace(plan.findings[0], cleared_at=later),)
    assert store.incidents(open_only=True) == ()
    assert store.incidents(node="n1") == (closed,)


def test_load_reaches_back_as_far_as_decisions_need(store: SqlStore) -> None:
    old = make.incident("n1", NOW - 29 * DAY_S, Step.CLOSED)
    recent = make.incident("n2", NOW - 27 * DAY_S, Step.CLOSED)
    waiting = make.incident("n3", NOW - 90 * DAY_S, Step.AWAITING_PERSON)
    tries = [
        make.ended(make.attempt(old, created_at=NOW - 29 * DAY_S)),
        make.ended(make.attempt(recent, created_at=NOW - 8 * DAY_S)),
        make.ended(make.attempt(recent, n=2, created_at=NOW - 6 * DAY_S)),
        make.ended(make.attempt(waiting, created_at=NOW - 90 * DAY_S)),
        make.attempt(waiting, rung=Rung.RMA, created_at=NOW - 89 * DAY_S),
    ]
    store.apply(Plan(incidents=(old, recent, waiting), attempts=tuple(tries)), NOW)
    records = store.load(NOW)
    assert records.closed_incidents == (recent,)
    assert set(records.attempts) == set(tries[2:])


def test_a_closed_incident_that_is_written_again_is_loaded_anew(store: SqlStore) -> None:
    closed = make.incident("n1", NOW - DAY_S, Step.CLOSED)
    store.apply(Plan(incidents=(closed,)), NOW)
    assert store.load(NOW).closed_incidents == (closed,)
    changed = replace(closed, cured_by="power")
    store.apply(Plan(incidents=(changed,)), NOW)
    assert store.load(NOW).closed_incidents == (changed,)


def test_one_plan_may_end_a_row_and_begin_the_next_of_its_key(store: SqlStore) -> None:
    first, raised = make.incident("n1"), make.finding("n1")
    store.apply(Plan(incidents=(first,), attempts=(make.attempt(first),), findings=(raised,)), NOW)
    then = NOW + 100
    closed = replace(first, step=Step.CLOSED, closed_at=then)
    second = make.incident("n1", then)
    again = replace(raised, raised_at=then)
    store.apply(
        Plan(
            # The new ones first, which is the order that would break a naive write.
            incidents=(second, closed),
            attempts=(make.attempt(second), make.ended(make.attempt(first), at=then)),
            findings=(again, replace(raised, cleared_at=then)),
        ),
        then,
    )
    assert store.load(then).incidents == {"n1": second}
    assert store.load(then).findings == (again,)
    assert len(store.findings("n1")) == 2


def test_the_open_finding_of_a_key_is_replaced(store: SqlStore) -> None:
    store.apply(Plan(findings=(make.finding("n1"),)), NOW)
    after_boot = replace(make.finding("n1", NOW + 5), boot_id="boot-2")
    store.apply(Plan(findings=(after_boot,)), NOW)
    assert store.findings("n1") == (after_boot,)


def test_two_open_incidents_of_a_node_are_refused(store: SqlStore) -> None:
    store.apply(Plan(incidents=(make.incident("n1"),)), NOW)
    with pytest.raises(InvariantViolation, match=r"incident\.node"):
        store.apply(Plan(incidents=(make.incident("n1", NOW + 1),)), NOW)


def test_the_same_try_under_another_name_is_refused(store: SqlStore) -> None:
    one = make.incident("n1")
    store.apply(Plan(incidents=(one,), attempts=(make.ended(make.attempt(one)),)), NOW)
    twin = replace(make.ended(make.attempt(one)), op_id="other")
    with pytest.raises(InvariantViolation, match=r"attempt\.incident_id, attempt\.rung, attempt\.n"):
        store.apply(Plan(attempts=(twin,)), NOW)


def test_two_unresolved_attempts_on_a_node_are_refused(store: SqlStore) -> None:
    one = make.incident("n1")
    store.apply(Plan(incidents=(one,), attempts=(make.attempt(one),)), NOW)
    with pytest.raises(InvariantViolation, match=r"attempt\.node"):
        store.apply(Plan(attempts=(make.attempt(one, rung=Rung.POWER),)), NOW)


def test_an_attempt_without_its_incident_is_refused(store: SqlStore) -> None:
    with pytest.raises(InvariantViolation, match="FOREIGN KEY"):
        store.apply(Plan(attempts=(make.attempt(make.incident("n1")),)), NOW)


@pytest.mark.parametrize("step", [Step.CLOSED, Step.DRAINING])
def test_closed_and_its_time_go_together(store: SqlStore, step: Step) -> None:
    wrong = replace(make.incident("n1"), step=step, closed_at=None if step is Step.CLOSED else NOW)
    with pytest.raises(InvariantViolation, match="incident_closed_has_time"):
        store.apply(Plan(incidents=(wrong,)), NOW)


def test_a_refused_row_takes_the_whole_plan_with_it(store: SqlStore) -> None:
    store.apply(Plan(incidents=(make.incident("n1"),)), NOW)
    status = NodeStatus("n2", Phase.LEAVING, "draining")
    bad = Plan(
        incidents=(make.incident("n2"), make.incident("n1", NOW + 1)),
        findings=(make.finding("n2"),),
        events=(Event(NOW, "n2", "opened", "x"),),
        statuses=(status,),
    )
    with pytest.raises(InvariantViolation):
        store.apply(bad, NOW)
    assert set(store.load(NOW).incidents) == {"n1"}
    assert store.findings("n2") == ()
    assert store.events() == ()
    # The status was rolled back too, so the next tick has to write it.
    store.apply(Plan(statuses=(status,)), NOW)
    assert store.node_statuses() == (status,)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET text = 'nothing happened'",
        "DELETE FROM event",
        "DELETE FROM event WHERE id = 1",
        "INSERT OR REPLACE INTO event SELECT id, at, node, kind, 'other', actor, incident_id FROM event",
    ],
)
def test_history_is_only_added_to(store: SqlStore, path: Path, statement: str) -> None:
    store.apply(Plan(events=(Event(NOW, "n1", "opened", "x"), Event(NOW, "n1", "closed", "y"))), NOW)
    with sqlite3.connect(path) as raw, pytest.raises(sqlite3.IntegrityError, match="only added to"):
        raw.execute(statement)
    assert [event.text for event in store.events()] == ["x", "y"]


def test_only_changed_statuses_are_written(store: SqlStore, path: Path) -> None:
    first = (NodeStatus("n1", Phase.IN_SERVICE, "fine"), NodeStatus("n2", Phase.IN_SERVICE, "fine"))
    store.apply(Plan(statuses=first), NOW)
    second = (first[0], NodeStatus("n2", Phase.LEAVING, "draining"))
    store.apply(Plan(statuses=second), NOW + 60)
    assert store.node_status("n1") == (first[0], NOW)
    assert store.node_status("n2") == (second[1], NOW + 60)
    with sqlite3.connect(path) as raw:
        before = raw.execute("PRAGMA data_version").fetchone()
        store.apply(Plan(statuses=second), NOW + 120)
        assert raw.execute("PRAGMA data_version").fetchone() == before
    store.apply(Plan(statuses=second[:1]), NOW + 180)
    assert store.node_statuses() == second[:1]
    assert store.node_status("n2") is None


_WORDS = st.builds(
    NodeStatus,
    node=st.sampled_from(["n1", "n2", "n3", "n4"]),
    phase=st.sampled_from([Phase.IN_SERVICE, Phase.OUT]),
    why=st.sampled_from(["", "x"]),
)
_FLEETS = st.lists(_WORDS, unique_by=lambda one: one.node).map(tuple)


@given(stored=_FLEETS, told=_FLEETS)
def test_changes_of_statuses_lead_from_what_is_stored_to_what_is_told(
    stored: tuple[NodeStatus, ...], told: tuple[NodeStatus, ...]
) -> None:
    changed, gone = status_changes(stored, told)
    after = {one.node: one for one in stored if one.node not in gone}
    after |= {one.node: one for one in changed}
    assert after == ({one.node: one for one in told} or {one.node: one for one in stored})
    assert not set(changed) & set(stored)


def test_an_attempt_is_sent_and_ends_once(store: SqlStore) -> None:
    one = make.incident("n1")
    planned = make.attempt(one)
    store.apply(Plan(incidents=(one,), attempts=(planned,)), NOW)
    store.mark_sent(planned.op_id)
    assert store.load(NOW).attempts == (replace(planned, sent=True),)
    store.resolve(planned.op_id, AttemptOutcome.FAILED, "refused", NOW + 5)
    store.resolve(planned.op_id, AttemptOutcome.AMBIGUOUS, "late", NOW + 9)
    (found,) = store.attempts(one.id)
    assert (found.outcome, found.ended_at, found.detail) == (AttemptOutcome.FAILED, NOW + 5, "refused")
    assert [event.text for event in store.events(incident=one.id)] == ["reboot 1: failed refused"]
    with pytest.raises(InvariantViolation, match="not on record"):
        store.mark_sent("n1.0.reboot.9")
    with pytest.raises(InvariantViolation, match="not on record"):
        store.resolve("n1.0.reboot.9", AttemptOutcome.FAILED, "", NOW)


def test_a_request_is_answered(store: SqlStore) -> None:
    number = store.add_request(Verb.HOLD, "n1", "alice", "wait", NOW)
    (pending,) = store.load(NOW).requests
    assert (pending.id, pending.verb, pending.subject, pending.actor) == (number, Verb.HOLD, "n1", "alice")
    waiting = store.answer(number)
    assert waiting is not None
    assert waiting.done_at is None
    store.apply(Plan(requests_done=((number, "held"),)), NOW + 3)
    done = store.answer(number)
    assert done is not None
    assert (done.done_at, done.text) == (NOW + 3, "held")
    assert store.pending_requests() == ()
    assert store.answer(number + 1) is None


def test_retention_keeps_what_is_open_and_forgets_what_is_old(store: SqlStore) -> None:
    old = make.incident("n1", NOW - 181 * DAY_S, Step.CLOSED)
    young = make.incident("n2", NOW - 179 * DAY_S, Step.CLOSED)
    waiting = make.incident("n3", NOW - 300 * DAY_S, Step.AWAITING_PERSON)
    events = tuple(
        Event(item.opened_at, item.node, "opened", "x", incident_id=item.id) for item in (old, young, waiting)
    )
    store.apply(
        Plan(
            incidents=(old, young, waiting),
            attempts=tuple(make.ended(make.attempt(item)) for item in (old, young, waiting)),
            hits=(BreakerHit("n1", NOW - 2 * DAY_S, "XID79", "a"), BreakerHit("n2", NOW, "XID79", "b")),
            events=events,
        ),
        NOW,
    )
    pruned = store.prune(NOW)
    assert (pruned.incidents, pruned.attempts, pruned.events, pruned.others) == (1, 1, 1, 1)
    assert {item.id for item in store.incidents()} == {young.id, waiting.id}
    assert {event.node for event in store.events()} == {"n2", "n3"}
    assert store.attempts(old.id) == ()
    again = store.prune(NOW)
    assert (again.incidents, again.attempts, again.events, again.others) == (0, 0, 0, 0)


def test_partial_indexes_are_used(store: SqlStore) -> None:
    statements: list[tuple[str, Any]] = []

    def note(*details: Any) -> None:
        statements.append((details[2], details[3]))

    sa.event.listen(store._engine, "before_cursor_execute", note, named=False)
    store.load(NOW)
    plans = []
    with store._engine.connect() as connection:
        for statement, parameters in [item for item in statements if item[0].startswith("SELECT")]:
            plans += [
                str(row[-1])
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            ]
    scans = [line for line in plans if line.startswith("SCAN") and "USING" not in line]
    # A fleet has a handful of trips and holds; what grows with time is found by index.
    assert not [line for line in scans if any(name in line for name in ("incident", "attempt", "finding"))], (
        plans
    )


# ------------------------------------------------------------- round trips

_TIMES = st.floats(min_value=0, max_value=4e9, allow_nan=False)
_TEXT = st.text(max_size=40) | st.sampled_from(["a\x00b", "\ud800", "Ω 'x'; DROP TABLE incident;--", ""])


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: _TEXT,
        float: _TIMES,
        int: st.integers(-(2**40), 2**40),
        bool: st.booleans(),
    }
    if hint in simple:
        return simple[hint]
    return st.one_of(*(st.none() if item is type(None) else _strategy(item) for item in get_args(hint)))


def _values(cls: Callable[..., Any]) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{item.name: _strategy(item.type) for item in fields(cls)})  # type: ignore[arg-type]


def _storable(value: Any) -> Any:
    """What comes back: half characters are written out."""
    texts = {item.name: getattr(value, item.name) for item in fields(value)}
    return replace(
        value,
        **{
            name: text.encode("utf-8", "backslashreplace").decode()
            for name, text in texts.items()
            if isinstance(text, str)
        },
    )


_MIXED = st.tuples(*map(_values, (Incident, Attempt, Finding, Fence, Trip, Hold, Event, NodeStatus)))


@settings(max_examples=60, deadline=None)
@given(_MIXED)
def test_any_value_comes_back_as_it_was(mixed: tuple[Any, ...]) -> None:
    one, tried, found, fence, trip, hold, event, status = mixed
    one = replace(one, closed_at=(one.closed_at or 1.0) if one.step is Step.CLOSED else None)
    tried = replace(tried, incident_id=one.id, ended_at=None if tried.outcome is None else tried.created_at)
    plan = Plan(
        incidents=(one,),
        attempts=(tried,),
        findings=(found,),
        fences=(fence,),
        trips=(trip,),
        holds=(hold,),
        events=(event,),
        statuses=(status,),
    )
    with TemporaryDirectory() as folder, open_store(Path(folder) / "s.db", host="h", acting=True) as store:
        store.apply(plan, 5.0)
        store.apply(replace(plan, events=()), 6.0)
        assert store.incident(_storable(one).id) == _storable(one)
        assert store.attempts(_storable(one).id) == (_storable(tried),)
        assert store.findings(_storable(found).node) == (_storable(found),)
        assert store.trips(open_only=False) == (_storable(trip),)
        assert store.holds() == ((_storable(hold),) if hold.released_at is None else ())
        assert store.events() == (_storable(event),)
        assert store.node_statuses() == (_storable(status),)
        fences = store.load(0.0).fences
        assert fences == ({_storable(fence).name: _storable(fence)} if fence.closed_at is None else {})
