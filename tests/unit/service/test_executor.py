"""The executor at its edges: what one action comes to, and that it costs no other one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    Fence,
    Incident,
    NodeView,
    ProvisionState,
    ProvisionStatus,
    Rung,
    Step,
)
from slurm_lifecycle.core.plan import Drain, Notice, Plan, RemoveFence, SetComment, StartAttempt
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.errors import PermanentError, StoreError
from slurm_lifecycle.ports import CommandResult, TicketFacts
from slurm_lifecycle.provision.command import CommandProvisioner
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.executor import Done, Executor, Ports
from slurm_lifecycle.service.notify import LogNotifier
from slurm_lifecycle.service.reconciler import Reconciler
from slurm_lifecycle.service.tickets import FileTickets
from slurm_lifecycle.service.without_bmc import WithoutBmc
from slurm_lifecycle.slurm.scontrol import ScontrolSlurm
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore

INCIDENT = Incident("n1.1", "n1", FaultClass.HARDWARE, "XID79", "gpu3", Step.REPAIRING, 1.0, 1.0, 99.0)
TICKET = Attempt("n1.1.rma.1", "n1.1", "n1", Rung.RMA, 1, 1.0, 99.0)


class OddSlurm(ScontrolSlurm):
    """Node n2 cannot be read; n3 is a defect."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def node(self, name: str) -> NodeView:
        if name == "gone":
            raise PermanentError(f"read node {name}", "Node gone not found")
        if name == "n3":
            raise KeyError("a defect")
        return NodeView(name, frozenset({"UNREADABLE" if name == "n2" else "IDLE"}))

    def drain(self, node: str, reason: str) -> None:
        del reason
        self.written.append(f"drain {node}")

    def remove_fence(self, name: str) -> None:
        self.written.append(f"unfence {name}")

    def set_comment(self, node: str, text: str) -> None:
        self.written.append(f"comment {node} {text}")


class Reports:
    """Every node answers with the same text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self, node: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        del node, argv, timeout_s
        return CommandResult(0, self.text, "")


def carry_out(
    folder: Path, store: SqlStore, plan: Plan, report: str = "{}"
) -> tuple[OddSlurm, tuple[Done, ...]]:
    slurm = OddSlurm()
    ports = Ports(
        slurm=slurm,
        store=store,
        clock=SystemClock(),
        provisioner=CommandProvisioner((), ()),
        bmc=WithoutBmc(),
        node_command=Reports(report),
        tickets=FileTickets(folder / "tickets"),
        notifier=LogNotifier(),
        history=store.history,
    )
    return slurm, Executor(ports, Policy()).execute(plan, {"n1": INCIDENT})


class Clock(SystemClock):
    """Stands still unless it is moved."""

    at = 100.0

    def now(self) -> float:
        return self.at


class SlowTickets(FileTickets):
    """Each ticket takes so long that the clock moves on."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder)
        self._clock = clock

    def write(self, facts: TicketFacts) -> str:
        self._clock.at += 20.0
        return super().write(facts)


class HangingProvisioner(CommandProvisioner):
    """Each question costs ten seconds and gets no answer."""

    def __init__(self) -> None:
        super().__init__((), ())
        self.time = 0.0
        self.asked: list[str] = []

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        del node
        self.time += 10.0
        self.asked.append(op_id)
        return ProvisionStatus(ProvisionState.UNKNOWN)


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    made = open_store(tmp_path / "store.db", host="h", acting=True)
    made.apply(Plan(incidents=(INCIDENT,), attempts=(TICKET,), fences=(Fence("f", "n1", "n1.1", 1.0),)), 1.0)
    return made


def test_a_defect_in_one_action_costs_no_other(tmp_path: Path, store: SqlStore) -> None:
    plan = Plan(
        actions=(Drain("n3", "slc:XID79 x"), Drain("n4", "slc:XID79 x"), Notice("k", "info", "", "t"))
    )
    slurm, done = carry_out(tmp_path, store, plan)
    assert [one.result for one in done] == ["failed", "done", "done"]
    assert "KeyError" in done[0].detail
    assert slurm.written == ["drain n4"]


def test_a_store_that_is_gone_ends_the_plan(tmp_path: Path, store: SqlStore) -> None:
    store.close()
    plan = Plan(actions=(StartAttempt(TICKET, ""), Drain("n4", "slc:XID79 x")))
    with pytest.raises(StoreError):
        carry_out(tmp_path, store, plan)


def test_the_comment_of_a_node_that_cannot_be_read_is_left_alone(tmp_path: Path, store: SqlStore) -> None:
    slurm, done = carry_out(tmp_path, store, Plan(actions=(SetComment("n2", "slcd[x@h:1]", ""),)))
    assert done[0].result == "skipped"
    assert slurm.written == []


def test_commands_of_the_site_come_last_and_get_a_share_of_the_tick(tmp_path: Path, store: SqlStore) -> None:
    names = [f"n{number}" for number in range(4, 9)]
    incidents = {name: replace(INCIDENT, id=f"{name}.1", node=name) for name in names}
    attempts = [replace(TICKET, op_id=f"{n}.1.rma.1", incident_id=f"{n}.1", node=n) for n in names]
    store.apply(Plan(incidents=tuple(incidents.values()), attempts=tuple(attempts)), 2.0)
    clock = Clock()
    ports = Ports(
        slurm=OddSlurm(),
        store=store,
        clock=clock,
        provisioner=CommandProvisioner((), ()),
        bmc=WithoutBmc(),
        node_command=Reports("{}"),
        tickets=SlowTickets(tmp_path / "tickets", clock),
        notifier=LogNotifier(),
        history=store.history,
    )
    plan = Plan(actions=(*(StartAttempt(one, "") for one in attempts), Drain("n4", "slc:XID79 x")))
    done = Executor(ports, Policy()).execute(plan, incidents)
    assert isinstance(done[0].action, Drain)
    assert [one.result for one in done[1:]] == ["done", "done", "skipped", "skipped", "skipped"]
    left = [one.op_id for one in store.load(200.0).attempts if one.outcome is None]
    # Not ended: the next tick sends them again.
    assert left == ["n1.1.rma.1", *(one.op_id for one in attempts[2:])]


def test_the_fence_of_a_node_that_is_gone_is_removed(tmp_path: Path, store: SqlStore) -> None:
    slurm, done = carry_out(tmp_path, store, Plan(actions=(RemoveFence("slc-gone.1", "gone"),)))
    assert done[0].result == "done"
    assert slurm.written == ["unfence slc-gone.1"]


def test_reimages_that_do_not_answer_are_asked_in_turn_within_a_share_of_the_tick(store: SqlStore) -> None:
    names = [f"n{number}" for number in range(4, 9)]
    reimage = replace(TICKET, rung=Rung.REIMAGE)
    store.apply(
        Plan(
            incidents=tuple(replace(INCIDENT, id=f"{name}.1", node=name) for name in names),
            attempts=tuple(replace(reimage, op_id=n, incident_id=f"{n}.1", node=n) for n in names),
        ),
        2.0,
    )
    site = HangingProvisioner()
    reconciler = Reconciler(
        slurm=OddSlurm(),
        store=store,
        provisioner=site,
        bmc=WithoutBmc(),
        health=WithoutBmc(),
        executor=Executor.__new__(Executor),
        clock=Clock(),
        policy=Policy(),
        stopwatch=lambda: site.time,
    )
    records = store.load(3.0)
    for _ in range(5):
        reconciler._poll(records)
    assert len(site.asked) == 10
    assert {name: site.asked.count(name) for name in names} == dict.fromkeys(names, 2)


@pytest.mark.parametrize(
    "report",
    [
        "[" * 100_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
        '{"evidence": ' + "[" * 600 + "]" * 600 + "}",
        "\x00",
        "NaN",
    ],
    ids=("endless", "deep", "deep list", "nul", "no object"),
)
def test_whatever_a_node_reports_its_ticket_is_written(tmp_path: Path, store: SqlStore, report: str) -> None:
    _, done = carry_out(tmp_path, store, Plan(actions=(StartAttempt(TICKET, ""),)), report)
    assert done[0].result == "done", done[0].detail
    assert "report.json" in (tmp_path / "tickets" / "n1.1.rma.1.md").read_text()
    assert store.attempts("n1.1")[0].outcome is AttemptOutcome.SUCCEEDED
