"""`node why`: what it says comes from values alone."""

from dataclasses import replace

import pytest

from slurm_lifecycle.cli.why import WhyFacts, explain
from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    Hold,
    Incident,
    JobView,
    NodeView,
    Rung,
    Step,
    Trip,
)
from slurm_lifecycle.core.policy import Mode, Policy

NOW = 100_000.0
POLICY = Policy(mode=Mode.ACT, partitions=("*",), rungs=frozenset({"drain", "return", "reboot"}))
VIEW = NodeView(
    "n1", frozenset({"IDLE", "DRAIN"}), reason="slc:XID79 gpu3 fell off the bus", partitions=("gpu",)
)
INCIDENT = Incident(
    id="n1.1",
    node="n1",
    fault_class=FaultClass.REBOOT,
    code="XID79",
    component="gpu3",
    step=Step.DRAINING,
    opened_at=NOW - 300,
    step_since=NOW - 120,
    deadline=NOW + 3600,
)
FACTS = WhyFacts("n1", NOW, POLICY, view=VIEW, jobs=(), incident=INCIDENT, tick_at=NOW - 5, mode="act")


def _said(facts: WhyFacts, label: str) -> str:
    return "\n".join(text for said, text in explain(facts) if said == label)


def _at(step: Step, **changes: object) -> WhyFacts:
    deadline = None if step in (Step.HELD, Step.AWAITING_PERSON) else NOW + 600
    return replace(FACTS, incident=replace(INCIDENT, step=step, deadline=deadline, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ({"IDLE", "DRAIN"}, "slc:XID79 gpu3 x", "drained by this suite"),
        ({"IDLE", "DRAIN"}, "bob: fan", "drained by a person: never touched"),
        ({"IDLE", "DRAIN"}, "", "drained by a person: never touched"),
        ({"DOWN"}, "Not responding", "taken out by Slurm itself"),
        ({"IDLE"}, "slc:XID79 gpu3 x", "leftover"),
    ],
)
def test_whose_drain_it_is(state: set[str], reason: str, words: str) -> None:
    view = replace(VIEW, state=frozenset(state), reason=reason)
    assert words in _said(replace(FACTS, view=view, incident=None), "slurm")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (FACTS, "when its jobs have ended and a working place is free: reboot (attempt 1 of 1)"),
        (_at(Step.REPAIRING, path_index=1, rung=Rung.POWER), "rma (attempt 1 of 1) (no power here)"),
        (_at(Step.VERIFYING), "a good verdict of this boot for 90 s"),
        (_at(Step.RETURNING), "the drain is lifted, then the fence"),
        (_at(Step.AWAITING_PERSON, note="replace gpu3"), "replace gpu3"),
        (_at(Step.HELD, hold="foreign"), "nothing while the person's drain stands"),
        (_at(Step.HELD, hold="verify", note="no verdict"), "no verdict"),
        (replace(FACTS, mode="observe"), "only observes"),
        (replace(FACTS, hold=Hold("n1", NOW, "ada", "fan")), "nothing new is started while the hold stands"),
        (replace(FACTS, trips=(Trip("fleet", NOW, "7 nodes"),)), "breaker is tripped for fleet"),
        (
            replace(FACTS, view=replace(VIEW, state=frozenset({"DOWN", "DRAIN"}))),
            "reboot needs a node that responds",
        ),
    ],
)
def test_what_happens_next(facts: WhyFacts, words: str) -> None:
    assert words in _said(facts, "next")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("bob: fan", "the person's who drained it"),
        ("Kill task failed", "once Slurm's reason has stood for 10 min"),
        ("slc:XID79 gpu3 x", "nothing is to be done"),
    ],
)
def test_what_happens_next_without_an_incident(reason: str, words: str) -> None:
    facts = replace(FACTS, incident=None, view=replace(VIEW, reason=reason))
    assert words in _said(facts, "next")


def test_an_open_attempt_must_be_proven_and_an_ended_one_tells_how() -> None:
    going = Attempt("n1.1.reboot.1", "n1.1", "n1", Rung.REBOOT, 1, NOW - 60, NOW + 600, sent=True)
    facts = replace(_at(Step.REPAIRING, path_index=0, rung=Rung.REBOOT), attempts=(going,))
    assert "under way, 10 min left to prove it" in _said(facts, "attempt")
    assert "the reboot is proven or times out; then checked" in _said(facts, "next")
    ended = replace(going, outcome=AttemptOutcome.AMBIGUOUS, ended_at=NOW, detail="no new boot")
    facts = replace(facts, attempts=(ended,))
    assert "ambiguous no new boot" in _said(facts, "attempt")
    assert "rma (attempt 1 of 1)" in _said(facts, "next")


def test_jobs_that_still_list_the_node_are_named() -> None:
    jobs = tuple(JobView(str(number), "SUSPENDED", ("n1",), 1000, 0) for number in range(7))
    assert "7 jobs (0 suspended, 1 suspended" in _said(replace(FACTS, jobs=jobs), "slurm")


def test_a_deadline_that_passed_is_loud() -> None:
    late = replace(FACTS, incident=replace(INCIDENT, deadline=NOW - 600))
    assert "10 min OVER its deadline" in _said(late, "incident")


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        (replace(FACTS, hold=Hold("n1", NOW, "ada", "fan")), "node release n1"),
        (_at(Step.AWAITING_PERSON), "node release n1"),
        (_at(Step.HELD, hold="foreign"), "State=UNDRAIN"),
        (FACTS, "node hold n1"),
        (FACTS, "breaker lift XID79"),
    ],
)
def test_what_a_person_can_do(facts: WhyFacts, command: str) -> None:
    assert command in _said(facts, "you can")


def test_an_agent_that_is_silent_is_said_to_be() -> None:
    assert "no agent has written its verdict" in _said(FACTS, "node says")


def test_nothing_is_known_of_a_node_that_nobody_knows() -> None:
    assert _said(WhyFacts("n9", NOW, POLICY), "slurm") == "does not know this node"
