"""The executor and commands to BMCs: a last look before each, all at once, what came of each on record."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.machine import AttemptStep, MachineCommand, MachineReading, StepOutcome
from slurm_lifecycle.core.model import Attempt, Incident, Rung, Step
from slurm_lifecycle.core.plan import AbortImage, Action, Plan, SendStep
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.provision.command import CommandProvisioner
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.executor import Done, Executor, Ports
from slurm_lifecycle.service.notify import LogNotifier
from slurm_lifecycle.service.tickets import FileTickets
from slurm_lifecycle.simulation.port import SimSlurm
from slurm_lifecycle.simulation.slurmctld import JobSpec, NodeSpec, SlurmConf, Slurmctld
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore
from tests.unit.service.test_executor import Reports

NODES = ("n1", "n2")
OURS = "slc:XID79 gpu3"
TAKES = (MachineCommand.GRACEFUL_OFF, MachineCommand.FORCE_OFF, MachineCommand.AC_CYCLE)


@dataclass
class Bmcs:
    """Answers each command as it is told to."""

    answers: dict[str, Sent] = field(default_factory=dict)
    calls: list[dict[str, MachineCommand]] = field(default_factory=list)

    def read(self, nodes: Collection[str], deadline_s: float) -> Mapping[str, MachineReading]:
        del deadline_s
        return {node: MachineReading(node, 0.0) for node in nodes}

    def send(self, commands: Mapping[str, MachineCommand], deadline_s: float) -> Mapping[str, Sent]:
        assert deadline_s > 0
        self.calls.append(dict(commands))
        return {node: self.answers[node] for node in commands if node in self.answers}


class Cluster:
    """Two drained, fenced nodes with a power attempt each, in a real store over a simulated slurmctld."""

    def __init__(self, folder: Path, rung: Rung = Rung.POWER) -> None:
        self.timeline = Timeline()
        self.ctld = Slurmctld(
            self.timeline, [NodeSpec(one) for one in NODES], SlurmConf(), stream(0, "slurmctld", "test")
        )
        self.slurm = SimSlurm(self.ctld)
        self.store: SqlStore = open_store(folder / "store.db", host="h", acting=True)
        self.bmcs = Bmcs()
        self.folder = folder
        self.attempts = {}
        for name in NODES:
            self.ctld.update_node(name, "DRAIN", OURS)
            self.slurm.create_fence(f"slc-{name}.1", name)
            case = Incident(f"{name}.1", name, FaultClass.REBOOT, "XID79", "gpu3", Step.REPAIRING, 1.0, 1.0)
            op_id = f"{name}.1.{rung.value}.1"
            self.attempts[name] = Attempt(op_id, case.id, name, rung, 1, 1.0, 99.0)
            self.store.apply(Plan(incidents=(case,), attempts=(self.attempts[name],)), 1.0)

    def sends(self, node: str, command: MachineCommand, fence: str = "") -> SendStep:
        attempt = self.attempts[node]
        step = AttemptStep(attempt.op_id, 1, command, 2.0)
        return SendStep(attempt, step, fence or f"slc-{node}.1")

    def execute(self, *actions: Action, start: tuple[str, ...] = ()) -> tuple[Done, ...]:
        steps = tuple(one.step for one in actions if isinstance(one, SendStep))
        plan = Plan(steps=steps, actions=actions)
        self.store.apply(plan, 2.0)
        ports = Ports(
            slurm=self.slurm,
            store=self.store,
            clock=SystemClock(),
            provisioner=CommandProvisioner(start, ()),
            bmc=self.bmcs,
            node_command=Reports("{}"),
            tickets=FileTickets(self.folder / "tickets"),
            notifier=LogNotifier(),
            history=self.store.history,
        )
        return Executor(ports, Policy()).execute(plan, {})

    def outcomes(self) -> dict[str, StepOutcome | None]:
        return {one.op_id.split(".")[0]: one.outcome for one in self.store.load(3.0).steps}

    def sent(self) -> dict[str, bool]:
        return {one.node: one.sent for one in self.store.load(3.0).attempts}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_all_are_sent_at_once_and_each_gets_its_own_outcome(cluster: Cluster) -> None:
    cluster.bmcs.answers = {"n1": Sent(StepOutcome.ACCEPTED), "n2": Sent(StepOutcome.REFUSED, "409")}
    done = cluster.execute(
        cluster.sends("n1", MachineCommand.FORCE_OFF), cluster.sends("n2", MachineCommand.FORCE_OFF)
    )
    assert cluster.bmcs.calls == [dict.fromkeys(NODES, MachineCommand.FORCE_OFF)]
    assert [one.result for one in done] == ["done", "refused"]
    assert cluster.outcomes() == {"n1": StepOutcome.ACCEPTED, "n2": StepOutcome.REFUSED}
    assert cluster.sent() == {"n1": True, "n2": False}


def test_one_without_an_answer_may_have_been_sent(cluster: Cluster) -> None:
    done = cluster.execute(cluster.sends("n1", MachineCommand.GRACEFUL_OFF))
    assert done[0].result == "ambiguous"
    assert cluster.outcomes() == {"n1": StepOutcome.AMBIGUOUS}
    assert cluster.sent()["n1"]


@pytest.mark.parametrize(
    "command", [MachineCommand.GRACEFUL_OFF, MachineCommand.FORCE_OFF, MachineCommand.AC_CYCLE]
)
@pytest.mark.parametrize("what", ["job", "person", "undrained", "fence"])
def test_power_is_not_taken_where_the_world_moved_on(
    cluster: Cluster, command: MachineCommand, what: str
) -> None:
    fence = ""
    if what == "job":
        cluster.ctld.update_node("n1", "UNDRAIN", "")
        cluster.ctld.delete_reservation("slc-n1.1")
        cluster.ctld.submit(JobSpec("job", nodelist=("n1",)))
        cluster.timeline.run_until(cluster.timeline.now + 30)
    elif what == "person":
        cluster.ctld.update_node("n1", "DRAIN", "fan noise")
    elif what == "undrained":
        cluster.ctld.update_node("n1", "UNDRAIN", "")
    else:
        fence = "slc-other"
    done = cluster.execute(cluster.sends("n1", command, fence))
    assert cluster.bmcs.calls == []
    assert done[0].result == "refused"
    assert cluster.outcomes() == {"n1": StepOutcome.REFUSED}
    assert not cluster.sent()["n1"]


@pytest.mark.parametrize("command", [MachineCommand.ON, MachineCommand.BOOT_CLEAR])
def test_what_puts_a_machine_in_order_is_sent_whoever_has_the_node(
    cluster: Cluster, command: MachineCommand
) -> None:
    cluster.bmcs.answers = {"n1": Sent(StepOutcome.ACCEPTED)}
    cluster.ctld.update_node("n1", "DRAIN", "fan noise")
    assert cluster.execute(cluster.sends("n1", command))[0].result == "done"


def test_an_outcome_on_record_is_not_changed(cluster: Cluster) -> None:
    cluster.bmcs.answers = {"n1": Sent(StepOutcome.ACCEPTED)}
    cluster.execute(cluster.sends("n1", MachineCommand.ON))
    cluster.store.end_step("n1.1.power.1", 1, StepOutcome.REFUSED, "late", 9.0)
    assert cluster.outcomes() == {"n1": StepOutcome.ACCEPTED}


@pytest.mark.parametrize(
    ("start", "outcome"),
    [
        (("true",), StepOutcome.ACCEPTED),
        (("sh", "-c", "exit 75"), StepOutcome.REFUSED),
        (("sh", "-c", "exit 3"), StepOutcome.UNSUPPORTED),
        (("sh", "-c", "kill -9 $$"), StepOutcome.AMBIGUOUS),
    ],
)
def test_an_image_is_staged_by_the_site_s_own_command(
    tmp_path: Path, start: tuple[str, ...], outcome: StepOutcome
) -> None:
    cluster = Cluster(tmp_path, Rung.REIMAGE)
    cluster.execute(cluster.sends("n1", MachineCommand.STAGE), start=start)
    assert cluster.bmcs.calls == []
    assert cluster.outcomes() == {"n1": outcome}


def test_other_actions_go_first(cluster: Cluster) -> None:
    cluster.bmcs.answers = {"n1": Sent(StepOutcome.ACCEPTED)}
    done = cluster.execute(cluster.sends("n1", MachineCommand.ON), AbortImage("n2", "n2.0.reimage.1"))
    assert isinstance(done[-1].action, SendStep)
