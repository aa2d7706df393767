"""The books of outages, against what an observer sees who looks at every node all the time."""

from math import isclose

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Attempt, Incident, Records, Rung, Step
from slurm_lifecycle.core.plan import Drain, Notice, Plan, StartAttempt, Undrain
from slurm_lifecycle.service.executor import Done
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.fleet import Fleet, FleetSettings
from slurm_lifecycle.simulation.lab.accounts import OUT, Accounts
from slurm_lifecycle.simulation.lab.results import RunResult
from slurm_lifecycle.simulation.machines.arrivals import Arrivals, FaultRates
from slurm_lifecycle.simulation.machines.faults import HOUR_S, KINDS
from slurm_lifecycle.simulation.slurmctld import JobSpec, NodeSpec

FRAME = RunResult("p", 1, 1.0, 1.0, 4, 8)


class Stage:
    """Four nodes with agents, the books, and hands in which a node may be."""

    def __init__(self, *, acting: bool = True, nodes: int = 4, seed: int = 1) -> None:
        specs = tuple(NodeSpec(f"n{number}") for number in range(1, nodes + 1))
        self.fleet = Fleet(FleetSettings(nodes=specs), seed)
        self.timeline, self.ctld = self.fleet.timeline, self.fleet.ctld
        self.timeline.run_until(self.timeline.now + 60)
        self.began = self.timeline.now
        self.hands: dict[str, str] = {}
        self.books = Accounts(
            self.timeline,
            self.ctld,
            self.fleet.machines,
            acting=acting,
            in_persons_hands=lambda node: self.hands.get(node, ""),
        )

    def to(self, seconds: float) -> None:
        self.timeline.run_until(self.began + seconds)

    def ticked(self, *incidents: Incident, done: tuple[Done, ...] = ()) -> None:
        self.books.ticked(TickResult(self.timeline.now, Plan(incidents=incidents), Records(), done, {}))

    def incident(self, step: Step, rung: Rung | None = None, **more: object) -> Incident:
        return Incident("n1.1", "n1", FaultClass.REBOOT, "XID79", "gpu0", step, 0.0, 0.0, rung=rung, **more)  # type: ignore[arg-type]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_persons_maintenance_is_theirs_and_not_a_false_drain(stage: Stage) -> None:
    stage.to(1000)
    stage.ctld.update_node("n1", "DRAIN", "maintenance: fans")
    stage.to(1000 + 2 * HOUR_S)
    stage.ctld.update_node("n1", "UNDRAIN")
    stage.to(3 * HOUR_S)
    result = stage.books.result(FRAME)
    assert result.out_hours_by_cause == {"host maintenance": pytest.approx(2.0, abs=0.01)}
    # The rest is Slurm's: a node does not respond for a moment after an undrain.
    assert result.out_hours_by_rung["person"] == pytest.approx(2.0)
    (repair,) = result.repairs
    assert (repair.node, repair.cured_by, result.false_drains) == ("n1", "person", 0)
    assert repair.began_s == 1000
    assert repair.ended_s == pytest.approx(1000 + 2 * HOUR_S, abs=120)


def test_the_way_of_a_fault_through_the_ladder(stage: Stage) -> None:
    stage.to(100)
    stage.fleet.machines.fault("n1", KINDS["gpu_off_bus"], "gpu0")
    stage.to(200)
    assert "DRAIN" in stage.ctld.view("n1").state
    stage.ticked(stage.incident(Step.DRAINING))
    stage.to(500)
    stage.ticked(stage.incident(Step.REPAIRING, Rung.REBOOT))
    stage.to(1100)
    stage.ticked(stage.incident(Step.VERIFYING, Rung.REBOOT))
    stage.to(1300)
    stage.ticked(stage.incident(Step.RETURNING, Rung.REBOOT, cured_by="reboot"))
    stage.ctld.update_node("n1", "UNDRAIN")
    stage.to(1400)
    result = stage.books.result(FRAME)
    assert result.out_hours_by_cause.keys() == {"faulty GPU"}
    seconds = {rung: hours * HOUR_S for rung, hours in result.out_hours_by_rung.items()}
    # Its agent needs some seconds to see it; the undrain a moment to be seen.
    assert seconds["waiting"] == pytest.approx(400, abs=5)
    assert seconds["reboot"] == pytest.approx(600)
    assert seconds["verify"] == pytest.approx(200, abs=5)
    (repair,) = result.repairs
    assert (repair.cause, repair.began_s, repair.cured_by) == ("faulty GPU", 100, "reboot")
    assert (result.peak_out, result.peak_working, result.false_drains) == (1, 1, 0)


def test_parts_are_what_a_node_goes_back_after_though_it_booted_since(stage: Stage) -> None:
    stage.fleet.machines.fault("n1", KINDS["gpu_dead"], "gpu0")
    stage.to(100)
    stage.ticked(stage.incident(Step.AWAITING_PERSON, Rung.RMA))
    stage.to(HOUR_S)
    stage.ticked(stage.incident(Step.RETURNING, Rung.REBOOT, cured_by="reboot"))
    stage.ctld.update_node("n1", "UNDRAIN")
    stage.to(HOUR_S + 100)
    assert [one.cured_by for one in stage.books.repairs] == ["rma"]


def test_a_drain_for_what_is_not_there_is_a_false_one(stage: Stage) -> None:
    stage.fleet.agents.false_alarm("n2", "GPU_LOST", "gpu1", 3000.0)
    stage.to(100)
    assert "DRAIN" in stage.ctld.view("n2").state
    assert stage.books.result(FRAME).false_drains == 1
    assert stage.books.result(FRAME).out_hours_by_cause.keys() == {"false alarm"}


def test_a_fault_that_is_over_is_still_why_a_node_is_out(stage: Stage) -> None:
    fault = stage.fleet.machines.fault("n1", KINDS["nvlink"], "gpu0")
    stage.to(1)
    stage.fleet.machines.clear("n1", fault.key)
    stage.to(100)
    stage.ctld.update_node("n1", "DRAIN", "slc:XID74 gpu0 NVLink error")
    assert stage.books.false_drains == 0
    assert stage.books.result(FRAME).repairs[0].cause == "faulty GPU"


def test_a_node_that_drains_with_its_job_is_draining(stage: Stage) -> None:
    stage.ctld.submit(JobSpec("a", nodes_min=4, nodes_max=4))
    stage.to(100)
    stage.ctld.update_node("n1", "DRAIN", "slc:XID79 gpu0 x")
    stage.to(100 + HOUR_S)
    assert stage.books.result(FRAME).out_hours_by_rung == {"draining": pytest.approx(1.0)}
    assert stage.books.cause_among(["n2", "n1"]) == "false alarm"
    assert stage.books.cause_among(["n2"]) == ""


def test_what_an_observing_daemon_would_do_is_not_what_is_done() -> None:
    stage = Stage(acting=False)
    stage.fleet.machines.fault("n1", KINDS["gpu_off_bus"], "gpu0")
    stage.to(100)
    stage.ticked(stage.incident(Step.REPAIRING, Rung.REBOOT))
    stage.to(HOUR_S)
    assert stage.books.result(FRAME).out_hours_by_rung.keys() == {"person"}
    stage.hands["n1"] = "reboot"
    stage.books.look("n1")
    stage.to(2 * HOUR_S)
    assert stage.books.result(FRAME).out_hours_by_rung["reboot"] == pytest.approx(1.0)


def test_actions_are_counted_where_something_was_sent(stage: Stage) -> None:
    attempt = Attempt("n1.1.reboot.1", "n1.1", "n1", Rung.REBOOT, 1, 0.0, 1.0)
    stage.ticked(
        done=(
            Done(Drain("n1", "slc:X y"), "done"),
            Done(Drain("n2", "slc:X y"), "skipped"),
            Done(StartAttempt(attempt, "f"), "ambiguous"),
            Done(StartAttempt(attempt, "f"), "failed"),
            Done(Undrain("n1", "n1.1", False), "done"),
            Done(Notice("k", "page", "n1", "t"), "done"),
        )
    )
    stage.books.paged()
    result = stage.books.result(FRAME)
    assert result.actions == {"drain": 1, "reboot": 1, "return": 1}
    assert result.pages == 1


@pytest.mark.parametrize("seed", range(3))
def test_hours_are_those_that_an_observer_counts(seed: int) -> None:
    stage = Stage(acting=False, nodes=24, seed=seed)
    arrivals = Arrivals(stage.fleet.machines, FaultRates(scale=60.0, false_alarms_per_1000_node_days=5.0))
    arrivals.on_alarm.append(stage.fleet.agents.false_alarm)
    arrivals.start()
    names = sorted(stage.ctld.views())
    counted, most = 0.0, 0
    for minute in range(1, 24 * 60):
        stage.to(60.0 * minute)
        out = sum(1 for name in names if not stage.ctld.view(name).state.isdisjoint(OUT))
        counted += 60.0 * out
        most = max(most, out)
        if minute % 400 == 0:
            stage.ctld.update_node("n1", "DRAIN", "maintenance: x")
        if minute > 400 and minute % 400 == 300:
            stage.ctld.update_node("n1", "RESUME")
    result = stage.books.result(FRAME)
    assert most >= 5
    assert result.peak_out >= most
    assert isclose(sum(result.out_hours_by_cause.values()), counted / HOUR_S, rel_tol=0.02)
    assert isclose(sum(result.out_hours_by_cause.values()), sum(result.out_hours_by_rung.values()))
    assert all(sum(sample.nodes.values()) == 24 for sample in result.samples)
    assert [sample.at_s for sample in result.samples] == [HOUR_S * hour for hour in range(24)]
    ended = [one for one in result.repairs if one.ended_s is not None]
    assert all(one.ended_s >= one.began_s for one in ended if one.ended_s is not None)
    assert "unknown" not in result.out_hours_by_cause
