"""The executor at its edges: what one action comes to, and that it costs no other one."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, Fence, Incident, NodeView, Rung, Step
from slurm_lifecycle.core.plan import Drain, Notice, Plan, SetComment, StartAttempt
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.errors import StoreError
from slurm_lifecycle.ports import CommandResult
from slurm_lifecycle.provision.command import CommandProvisioner
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.executor import Done, Executor, Ports
from slurm_lifecycle.service.notify import LogNotifier
from slurm_lifecycle.service.tickets import FileTickets
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
        if name == "n3":
            raise KeyError("a defect")
        return NodeView(name, frozenset({"UNREADABLE" if name == "n2" else "IDLE"}))

    def drain(self, node: str, reason: str) -> None:
        del reason
        self.written.append(f"drain {node}")

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
        node_command=Reports(report),
        tickets=FileTickets(folder / "tickets"),
        notifier=LogNotifier(),
        history=store.history,
    )
    return slurm, Executor(ports, Policy()).execute(plan, {"n1": INCIDENT})


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
