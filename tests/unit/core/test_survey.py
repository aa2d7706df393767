"""The pass that finds the nodes to decide about leaves nothing out: random fleets against the plain way."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from slurm_lifecycle.core import draft as draft_module
from slurm_lifecycle.core import planner
from slurm_lifecycle.core.fault_catalog import FaultClass, Level, fault_for
from slurm_lifecycle.core.formats import parse_verdict
from slurm_lifecycle.core.invariants import check_plan
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    Fence,
    Finding,
    Fleet,
    Hold,
    Identity,
    Incident,
    JobView,
    NodeView,
    Observation,
    Phase,
    Records,
    Request,
    ReservationView,
    Rung,
    Step,
    Trip,
    Verb,
)
from slurm_lifecycle.core.ownership import is_drained, jobs_by_node
from slurm_lifecycle.core.plan import NodeStatus, Plan, StartAttempt
from slurm_lifecycle.core.planner import plan
from slurm_lifecycle.core.policy import BreakerPolicy, Budget, Cap, Mode, Policy
from slurm_lifecycle.core.survey import Survey

NOW = 1_000_000.0
ME = Identity("inst1", "admin", 3)
POLICY = Policy(
    mode=Mode.ACT,
    partitions=("*",),
    rungs=frozenset({"drain", "return", "reboot", "reimage", "rma"}),
    fleet=Budget(max_out=30, max_working=6),
    domains={f"n{number}": f"rack{number % 3}" for number in range(40)},
    breaker=BreakerPolicy(least=8, most=8),
    adopt_tools=("NHC:",),
)
SEEDS = range(150)

STATES = (
    *(("IDLE",),) * 8,
    *(("ALLOCATED",),) * 8,
    ("MIXED", "PLANNED"),
    ("IDLE", "DRAIN"),
    ("IDLE", "DRAIN"),
    ("IDLE", "DRAIN"),
    ("ALLOCATED", "DRAIN"),
    ("DOWN",),
    ("DOWN", "DRAIN", "NOT_RESPONDING"),
    ("IDLE", "NOT_RESPONDING"),
    ("IDLE", "DRAIN", "REBOOT_ISSUED"),
    ("IDLE", "MAINTENANCE"),
    ("FUTURE",),
    ("IDLE", "INVALID_REG"),
    ("UNREADABLE",),
    (),
)
REASONS = (
    "",
    *("slc:XID79 gpu3 fell off the bus",) * 6,
    "slc:XID79 gpu3 fell off the bus : reboot issued",
    "slc:KILL_TASK - a task could not be killed",
    "fan noise",
    "Not responding",
    "Kill task failed",
    "NHC: disk full",
)
CODES = ("XID79", "XID13", "GPU_LOST", "FS_READONLY", "KILL_TASK", "NO_RESPONSE", "MANUAL")
STEPS = tuple(step for step in Step if step is not Step.CLOSED)


class RandomFleet:
    """One seeded fleet in which anything may stand beside anything."""

    def __init__(self, seed: int, count: int = 40) -> None:
        self.rng = random.Random(f"fleet/{seed}")
        self.names = [f"n{number}" for number in range(count)]
        self.rng.shuffle(self.names)
        self.some = sorted(self.rng.sample(self.names, 14))
        self.confused = self.rng.random() < 0.3
        self.incidents = self._incidents()
        self.attempts = tuple(self._attempts())

    def some_nodes(self) -> list[str]:
        return [name for name in self.some if self.rng.random() < 0.5]

    def fleet(self) -> Fleet:
        nodes = {name: self._view(name) for name in self.names}
        return Fleet(Observation(NOW, nodes, self._jobs(), self._reservations()), self._records(), ME)

    def _boot(self, name: str) -> str:
        return f"{self.rng.randrange(1, 3):08x}-0000-4000-8000-{int(name[1:]):012x}"

    def _view(self, name: str) -> NodeView:
        rng = self.rng
        odd = name in self.some or rng.random() < 0.1
        state = rng.choice(STATES) if odd else rng.choice(STATES[:17])
        if name in self.incidents and rng.random() < 0.6:
            state = ("IDLE", "DRAIN")
        level = rng.choice(("ok", "ok", "warn", "drain")) if odd else "ok"
        code = "- -" if level == "ok" else f"{rng.choice(CODES)} gpu{rng.randrange(4)}"
        extra = rng.choice((f"slc1 {self._boot(name)} 4 {level} {code}",) * 6 + ("", "rack=4", "slc1 broken"))
        comment = rng.choice(("",) * 12 + ("theirs", "slc1[]"))
        if name in self.incidents and rng.random() < 0.5:
            comment = f"slc1[inst1;{self.incidents[name].id};1;verifying]"
        if self.confused and rng.random() < 0.1:
            comment += f"slc1[inst1;{name}.98;2;verifying]"
            comment += rng.choice(("", "", "", "slcd[inst1@admin:2]", "slcd[other@admin:1]"))
        if name == min(self.names) and not self.confused:
            comment = "slcd[inst1@admin:3]"
        return NodeView(
            name,
            frozenset(state),
            rng.choice(REASONS) if odd else "",
            NOW - rng.choice((10.0, 7200.0)),
            comment,
            extra,
            NOW - rng.choice((60.0, 86400.0)),
            partitions=("batch",),
            gpus=8,
        )

    def _incidents(self) -> dict[str, Incident]:
        rng, found = self.rng, {}
        for name in [*self.some_nodes(), "gone1"]:
            step = rng.choice((*STEPS, Step.REPAIRING))
            transient = step not in (Step.AWAITING_PERSON, Step.HELD)
            found[name] = Incident(
                id=f"{name}.{rng.choice((99, 100))}",
                node=name,
                fault_class=rng.choice((FaultClass.REBOOT, FaultClass.TRANSIENT, FaultClass.HARDWARE)),
                code=rng.choice(CODES),
                component="gpu1",
                step=step,
                opened_at=NOW - 5000,
                step_since=NOW - 2500,
                deadline=NOW + rng.choice((-5.0, 500.0)) if transient else None,
                path_index=rng.choice((-1, 0, 1)),
                rung=Rung.REBOOT if step in (Step.REPAIRING, Step.VERIFYING) else None,
                drain_confirmed=rng.random() < 0.5,
                boot_before=rng.choice(("", self._boot(name) if name != "gone1" else "")),
                verify_since=rng.choice((None, NOW - 300)),
                hold=rng.choice(("foreign", "verify", "adopt")) if step is Step.HELD else "",
                revision=rng.randrange(1, 4),
            )
        return found

    def _attempts(self) -> Iterator[Attempt]:
        rng = self.rng
        for name, incident in self.incidents.items():
            for n in range(rng.choice((0, 0, 1, 2, 3))):
                made = Attempt(
                    op_id=f"{incident.id}.reboot.{n + 1}",
                    incident_id=incident.id,
                    node=name,
                    rung=rng.choice((Rung.REBOOT, Rung.REIMAGE)),
                    n=n + 1,
                    created_at=NOW - 4000 + 1000 * n,
                    deadline=NOW + rng.choice((-50.0, 900.0)),
                    sent=rng.random() < 0.7,
                )
                if n < 2 or rng.random() < 0.3:
                    outcome = rng.choice(list(AttemptOutcome))
                    made = replace(made, outcome=outcome, ended_at=made.created_at + 500)
                yield made
        # The store was restored: an attempt whose incident it does not hold any more.
        orphan = self.rng.choice(sorted(set(self.names) - set(self.incidents)))
        yield Attempt(f"{orphan}.8.reboot.1", f"{orphan}.8", orphan, Rung.REBOOT, 1, NOW - 60, NOW + 900)

    def _records(self) -> Records:
        rng = self.rng
        findings = {}
        for name in [*self.some_nodes(), *self.some_nodes()]:
            code, source = rng.choice(CODES), rng.choice((self._boot(name), "slurm"))
            component = "-" if source == "slurm" else f"gpu{rng.randrange(4)}"
            level = fault_for(code).level
            findings[name, code, component] = Finding(
                name, code, component, level, "text", source, NOW - rng.choice((5.0, 9000.0))
            )
        fences = {
            f"slc-{one.id}": Fence(f"slc-{one.id}", one.node, one.id, NOW - 900)
            for one in self.incidents.values()
            if rng.random() < (0.6 if self.confused else 1.0)
        }
        closed = tuple(
            replace(
                one,
                id=f"{one.node}.{int(NOW) + n}",
                step=Step.CLOSED,
                closed_at=NOW - 3600 * n,
                outcome="returned",
                cured_by="reboot",
            )
            for n, one in enumerate(self.incidents.values())
        )
        verbs = [rng.choice(list(Verb)) for _ in range(rng.randrange(4))]
        subjects = (*self.names, "gone1", "XID79", "fleet")
        return Records(
            incidents=self.incidents,
            closed_incidents=closed,
            attempts=self.attempts,
            findings=tuple(findings.values()),
            fences=fences,
            trips=(Trip("domain:rack1", NOW - 50, "hits"),) if rng.random() < 0.3 else (),
            holds={name: Hold(name, NOW - 9, "alice", "mine") for name in self.some_nodes()[:2]},
            requests=tuple(
                Request(n, NOW - 1, "bob", verb, rng.choice(subjects)) for n, verb in enumerate(verbs)
            ),
        )

    def _jobs(self) -> tuple[JobView, ...]:
        rng = self.rng
        return tuple(
            JobView(str(n), "RUNNING", tuple(rng.sample(self.names, rng.choice((1, 1, 2, 6)))), 1000, 0)
            for n in range(rng.choice((0, 2, 6)))
        )

    def _reservations(self) -> Mapping[str, ReservationView]:
        rng = self.rng
        found = [
            ReservationView(f"slc-{one.id}", (one.node,), NOW - 800, NOW + 9e6, frozenset({"MAINT"}))
            for one in self.incidents.values()
            if rng.random() < 0.6
        ]
        for name in ("window1", "window2", "slc-lost.7") if self.confused else ("window1",):
            if rng.random() < 0.4:
                start = NOW - rng.choice((500.0, -500.0))
                nodes = tuple(rng.sample(self.names, 5))
                found.append(ReservationView(name, nodes, start, NOW + 999, frozenset({"MAINT"})))
        return {one.name: one for one in found}


def _plain_survey(nodes: Mapping[str, NodeView]) -> Survey:
    """Every node is looked at, every Comment read."""
    names = tuple(sorted(nodes))
    return Survey(names, frozenset(names), names, names)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_is_the_one_of_a_look_at_every_node(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = RandomFleet(seed).fleet()
    made = plan(fleet, POLICY, NOW)
    monkeypatch.setattr(Survey, "of", staticmethod(_plain_survey))
    monkeypatch.setattr(draft_module, "parse_verdict", parse_verdict.__wrapped__)
    monkeypatch.setattr(planner, "_in_service", lambda name: NodeStatus(name, Phase.UNKNOWN, "not looked at"))
    assert made == plan(fleet, POLICY, NOW)


def test_the_random_fleets_hold_what_plans_consist_of() -> None:
    """Else the comparison would prove little."""
    kinds: set[str] = set()
    rows: dict[str, int] = {}
    quiet = 0
    for seed in SEEDS:
        fleet = RandomFleet(seed).fleet()
        made = plan(fleet, POLICY, NOW)
        kinds |= {type(one).__name__ for one in made.actions}
        for name in ("incidents", "findings", "attempts", "fences", "trips", "hits", "holds", "held"):
            rows[name] = rows.get(name, 0) + len(getattr(made, name))
        quiet += len(fleet.observation.nodes) - len(Survey.of(fleet.observation.nodes).restless)
    expected = {"Drain", "SetComment", "CreateFence", "Undrain", "RemoveFence", "StartAttempt", "Notice"}
    assert expected <= kinds
    assert all(rows.values()), rows
    assert quiet > 20 * len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_in_which_slurm_lists_nodes_and_jobs_is_no_matter(seed: int) -> None:
    fleet = RandomFleet(seed).fleet()
    seen = fleet.observation
    items = list(seen.nodes.items())
    random.Random(f"order/{seed}").shuffle(items)
    turned = replace(seen, nodes=dict(items), jobs=seen.jobs[::-1])
    assert plan(fleet, POLICY, NOW) == plan(replace(fleet, observation=turned), POLICY, NOW)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_nodes_in_service_add_their_words_and_nothing_else(seed: int) -> None:
    fleet = RandomFleet(seed).fleet()
    extra = "slc1 00000001-0000-4000-8000-000000000000 1 ok - -"
    names = [f"z{number}" for number in range(30)]
    more = {
        name: NodeView(name, frozenset({"IDLE"}), extra=extra, partitions=("batch",), gpus=8)
        for name in names
    }
    seen = replace(fleet.observation, nodes={**more, **fleet.observation.nodes})
    before, after = plan(fleet, POLICY, NOW), plan(replace(fleet, observation=seen), POLICY, NOW)
    added = {NodeStatus(name, Phase.IN_SERVICE, "") for name in names}
    assert set(after.statuses) - set(before.statuses) == added
    assert replace(after, statuses=()) == replace(before, statuses=())


def test_a_node_without_a_decision_is_not_restless_and_every_other_is() -> None:
    def restless(state: tuple[str, ...], level: str = "ok", code: str = "- -") -> bool:
        extra = f"slc1 00000001-0000-4000-8000-000000000000 1 {level} {code}"
        return bool(Survey.of({"n1": NodeView("n1", frozenset(state), extra=extra)}).restless)

    for calm in (("IDLE",), ("ALLOCATED",), ("MIXED", "PLANNED"), ("IDLE", "MAINTENANCE")):
        assert not restless(calm)
        assert restless(calm, "warn", "XID13 gpu1")
        assert restless(calm, "drain", "XID79 gpu1")
    for other in (("IDLE", "DRAIN"), ("DOWN",), ("IDLE", "NOT_RESPONDING"), ("FUTURE",), ()):
        assert restless(other)


def test_jobs_are_found_for_each_node_asked_for() -> None:
    jobs = (
        JobView("1", "RUNNING", ("n1", "n2"), 1, 0),
        JobView("2", "SUSPENDED", ("n2",), 1, 0),
        JobView("3", "PENDING", (), 1, 0),
    )
    assert jobs_by_node(jobs, ["n2", "n3"]) == {"n2": [jobs[0], jobs[1]], "n3": []}


def test_a_case_that_begins_as_another_ends_gets_an_id_of_its_own() -> None:
    extra = "slc1 00000001-0000-4000-8000-000000000000 1 drain XID95 gpu2"
    nodes = {"n1": NodeView("n1", frozenset({"IDLE"}), comment="slcd[inst1@admin:3]", extra=extra)}
    old = Incident(
        f"n1.{int(NOW)}", "n1", FaultClass.REBOOT, "XID79", "gpu3", Step.DRAINING, NOW, NOW, NOW + 900
    )
    lift = Request(1, NOW, "bob", Verb.BREAKER_LIFT, "XID79")
    fleet = Fleet(Observation(NOW, nodes), Records(incidents={"n1": old}, requests=(lift,)), ME)
    made = plan(fleet, POLICY, NOW)
    assert [(one.id, one.step) for one in made.incidents] == [
        (f"n1.{int(NOW)}", Step.CLOSED),
        (f"n1.{int(NOW) + 1}", Step.DRAINING),
    ]


# ---------------------------------------------------------------- the checker


def _starts(fleet: RandomFleet, rng: random.Random) -> Plan:
    """Attempts started anywhere, most of them where they must not be."""
    attempts = [
        Attempt(f"{name}.9.reboot.1", f"{name}.9", name, Rung.REBOOT, 1, NOW, NOW + 900)
        for name in rng.sample(fleet.names, 12)
    ]
    return Plan(
        attempts=tuple(attempts),
        actions=tuple(StartAttempt(one, f"slc-{one.incident_id}") for one in attempts),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_checker_sees_what_a_look_at_every_job_and_attempt_sees(seed: int) -> None:
    made = RandomFleet(seed)
    fleet = made.fleet()
    bad = _starts(made, random.Random(f"starts/{seed}"))
    policy = replace(POLICY, caps={Rung.REBOOT: (Cap(1, 7200.0),)})
    problems = check_plan(fleet, bad, policy, NOW)
    for attempt in bad.attempts:
        view = fleet.observation.nodes[attempt.node]
        drained = is_drained(view, fleet.observation.jobs)
        assert (f"{attempt.op_id}: {attempt.node} is not drained" in problems) == (not drained)
        mine = [one for one in fleet.records.attempts if one.node == attempt.node]
        alone = not any(one.outcome is None for one in mine)
        text = f"{attempt.op_id}: not the only unresolved attempt on record for {attempt.node}"
        assert (text in problems) == (not alone)
        counted = [
            one for one in mine if one.rung is Rung.REBOOT and one.outcome is not AttemptOutcome.CANCELLED
        ]
        over = bool(counted)
        assert (f"{attempt.op_id}: over the cap of 1 in 7200 s" in problems) == over


def test_levels_of_findings_in_the_random_fleets_differ() -> None:
    levels = {one.level for seed in range(20) for one in RandomFleet(seed).fleet().records.findings}
    assert levels >= {Level.WARN, Level.DRAIN}
