"""People: the technician, whoever is on call, the administrator, and operation by hand."""

from collections import Counter
from dataclasses import replace

import pytest

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.ports import TicketFacts
from slurm_lifecycle.simulation.fleet import Fleet, FleetSettings
from slurm_lifecycle.simulation.machines.arrivals import Arrivals, FaultRates, switch_loss
from slurm_lifecycle.simulation.machines.bmc import BmcSettings
from slurm_lifecycle.simulation.machines.faults import DAY_S, HOUR_S, KINDS
from slurm_lifecycle.simulation.people.admin import Admin, AdminSettings
from slurm_lifecycle.simulation.people.manual import Operator, OperatorSettings
from slurm_lifecycle.simulation.people.on_call import OnCall, OnCallSettings
from slurm_lifecycle.simulation.people.technician import Technician, TechnicianSettings
from slurm_lifecycle.simulation.people.toolbox import Toolbox
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, NodeSpec, SlurmConf
from tests.unit.simulation.toy import QUICK, fault_with

RMA = TechnicianSettings(rma_s=(5 * DAY_S, 14 * DAY_S))


class Town:
    """A fleet with its people."""

    def __init__(self, count: int = 3, seed: int = 1, bmcs: BmcSettings | None = None) -> None:
        nodes = tuple(NodeSpec(f"n{number}") for number in range(1, count + 1))
        settings = FleetSettings(nodes, SlurmConf(), machines=QUICK, bmcs=bmcs or BmcSettings())
        self.fleet = Fleet(settings, seed)
        self.timeline, self.ctld, self.machines = self.fleet.timeline, self.fleet.ctld, self.fleet.machines
        self.asked: list[tuple[str, str, str]] = []
        self.tools = Toolbox(self.machines, self.ctld, self.fleet.bmcs, self._ask)
        self.technician = Technician(self.tools, RMA)
        self.standing: list[Notice] = []
        settings_on_call = OnCallSettings(response_s=600.0, work_s=60.0, reinstall_s=600.0)
        self.on_call = OnCall(
            self.tools, self.technician, self.fleet.agents, settings_on_call, lambda: self.standing
        )
        self.pass_time(5)

    def _ask(self, verb: Verb, subject: str, actor: str, text: str) -> None:
        self.asked.append((verb.value, subject, actor))

    def pass_time(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    def state(self, name: str = "n1") -> frozenset[str]:
        return self.ctld.view(name).state

    def page(self, key: str, node: str = "n1") -> None:
        self.on_call.on_page(Notice(key, "page", node, "look"))


@pytest.fixture
def town() -> Town:
    return Town()


def ticket(node: str, op_id: str) -> TicketFacts:
    return TicketFacts(op_id, node, "XID79", "gpu1", "", 0.0, 0.0, (), None, "")


# ---------------------------------------------------------------- technician


def test_a_part_is_replaced_days_after_the_ticket_and_the_daemon_hears_of_it(town: Town) -> None:
    fault_with(town.machines, "n1", "hbm_remap_failed", 0.99)
    town.technician.on_ticket(ticket("n1", "n1.1.rma.1"))
    began = town.timeline.now
    visits: list[float] = []
    town.technician.on_visit.append(lambda node: visits.append(town.timeline.now - began))
    town.pass_time(5 * DAY_S - 10)
    assert visits == []
    assert "n1" in town.technician.at_work
    town.pass_time(10 * DAY_S)
    assert len(visits) == 1
    assert not town.machines.faulty("n1")
    assert town.asked == [("rma_close", "n1", "technician")]
    assert town.technician.at_work == {}


def test_one_ticket_written_twice_is_one_visit(town: Town) -> None:
    visits: list[str] = []
    town.technician.on_visit.append(visits.append)
    for _ in range(3):
        town.technician.on_ticket(ticket("n1", "n1.1.rma.1"))
    town.pass_time(20 * DAY_S)
    assert visits == ["n1"]


def test_how_long_a_part_takes_is_drawn_per_case_and_not_by_what_else_happens() -> None:
    times = []
    for others in (0, 2):
        town = Town()
        for number in range(others):
            town.technician.on_ticket(ticket(f"n{number + 2}", f"n{number + 2}.1.rma.1"))
        town.technician.on_visit.append(lambda node, town=town: times.append((node, town.timeline.now)))  # type: ignore[misc]
        town.technician.on_ticket(ticket("n1", "n1.1.rma.1"))
        town.pass_time(20 * DAY_S)
    assert len({when for node, when in times if node == "n1"}) == 1
    assert len(times) == 4


def test_a_reseat_is_sooner_and_what_it_does_not_mend_is_replaced(town: Town) -> None:
    fault_with(town.machines, "n1", "cable_down", 0.8)
    fault_with(town.machines, "n2", "nic_dead", 0.99)
    for node in ("n1", "n2"):
        town.technician.on_ticket(ticket(node, f"{node}.1.reseat.1"))
    town.pass_time(4 * DAY_S)
    assert town.machines.usable("n1")
    assert town.machines.usable("n2")
    assert [verb for verb, _, _ in town.asked] == ["rma_close", "rma_close"]


def test_a_node_behind_a_dead_switch_is_visited_again(town: Town) -> None:
    switch_loss(town.machines, ["n1"], town.timeline.now, 15 * DAY_S)
    town.technician.on_ticket(ticket("n1", "n1.1.rma.1"))
    town.pass_time(14.5 * DAY_S)
    assert town.asked == []
    town.pass_time(2 * DAY_S)
    assert town.asked == [("rma_close", "n1", "technician")]


def test_a_case_of_a_node_that_is_taken_out_is_dropped(town: Town) -> None:
    town.technician.on_ticket(ticket("n1", "n1.1.rma.1"))
    town.machines.remove("n1")
    town.pass_time(20 * DAY_S)
    assert town.technician.at_work == {}
    assert town.asked == []


# ---------------------------------------------------------------- on call


def test_a_breaker_is_reset_when_the_common_cause_is_over(town: Town) -> None:
    town.machines.trouble_until = town.timeline.now + 5 * HOUR_S
    town.page("breaker:domain:rack1:1767571200", node="")
    town.pass_time(5 * HOUR_S)
    assert town.asked == []
    town.pass_time(100)
    assert town.asked == [("breaker_reset", "domain:rack1", "oncall")]


def test_a_job_that_hangs_on_a_dead_gpu_is_taken_off(town: Town) -> None:
    keeps = town.ctld.submit(JobSpec("a", nodelist=("n1",)))
    loses = town.ctld.submit(JobSpec("b", nodelist=("n2",), requeue=False))
    works = town.ctld.submit(JobSpec("c", nodelist=("n3",)))
    town.pass_time(5)
    hang = replace(KINDS["gpu_hang"], hang_s=DAY_S)
    for node in ("n1", "n2", "n3"):
        town.page(f"busy:{node}.1", node=node)
        if node != "n3":
            fault_with(town.machines, node, hang, 0.0)
    town.pass_time(950)
    assert town.ctld.jobs()[keeps].restarts == 1
    assert loses not in town.ctld.jobs()
    assert town.ctld.jobs()[works].state == "RUNNING"


def test_who_waits_for_a_good_verdict_gets_an_agent_or_power(town: Town) -> None:
    town.fleet.agents.kill("n1")
    town.machines.crash("n2")
    town.page("waits:n1.1:verify:1")
    town.page("waits:n2.1:verify:1", node="n2")
    town.pass_time(2000)
    assert town.machines.machine("n1").agent
    assert town.machines.usable("n2")
    assert sorted(town.asked) == [("release", "n1", "oncall"), ("release", "n2", "oncall")]


def test_whoever_is_on_call_works_on_one_node_at_a_time() -> None:
    town = Town(30)
    for name in town.machines.names():
        town.page(f"waits:{name}.1:refused:1", node=name)
    town.pass_time(900 + 60 * 12)
    assert 0 < len(town.asked) < 30
    town.pass_time(60 * 30)
    assert len(town.asked) == 30


def test_power_works_although_the_controller_does_not(town: Town) -> None:
    for bmcs in (BmcSettings(hangs=1.0), BmcSettings(deaf=1.0)):
        town = Town(bmcs=bmcs)
        town.machines.crash("n1")
        town.page("waits:n1.1:verify:1")
        town.pass_time(2000)
        assert town.machines.usable("n1")


def test_what_takes_too_long_gets_power_or_the_gpu_that_slurm_waits_for(town: Town) -> None:
    town.machines.crash("n1")
    fault_with(town.machines, "n2", "gpu_dead", 0.99)
    town.ctld.update_node("n2", "DRAIN", "slc:GPU_LOST gpu1 GPU is lost")
    town.ctld.reboot("n2")
    town.pass_time(200)
    assert "INVALID_REG" in town.state("n2")
    for node in ("n1", "n2"):
        town.page(f"overdue:{node}.1:7", node=node)
    town.pass_time(2000)
    assert town.machines.usable("n1")
    assert list(town.technician.at_work) == ["n2"]
    town.pass_time(15 * DAY_S)
    assert "INVALID_REG" not in town.state("n2")


def test_a_host_that_does_not_start_goes_to_the_technician(town: Town) -> None:
    fault_with(town.machines, "n1", "psu_dead", 0.9)
    town.page("waits:n1.1:verify:1")
    town.pass_time(2 * HOUR_S)
    assert "n1" in town.technician.at_work
    assert town.asked == []


@pytest.mark.parametrize(("luck", "mended"), [(0.9, True), (0.99, False)])
def test_an_exhausted_ladder_is_reinstalled_by_hand_or_sent_in(luck: float, mended: bool) -> None:
    town = Town()
    fault_with(town.machines, "n1", "root_read_only", luck)
    town.page("waits:n1.1:awaiting_person:1")
    town.pass_time(2 * HOUR_S)
    assert town.machines.faulty("n1") is not mended
    assert town.asked == ([("release", "n1", "oncall")] if mended else [])
    assert ("n1" in town.technician.at_work) is not mended


def test_who_has_a_ticket_already_is_left_to_the_technician(town: Town) -> None:
    town.technician.on_ticket(ticket("n1", "n1.1.rma.1"))
    town.page("waits:n1.1:awaiting_person:1")
    town.pass_time(4 * DAY_S)
    assert town.asked == []
    assert town.machines.machine("n1").boots == 0


def test_jobs_that_do_not_end_are_taken_off_before_the_release(town: Town) -> None:
    job = town.ctld.submit(JobSpec("a", nodelist=("n1",)))
    town.pass_time(5)
    town.page("waits:n1.1:drain_timeout:1")
    town.pass_time(1100)
    assert town.ctld.jobs()[job].restarts == 1
    assert town.asked == [("release", "n1", "oncall")]


def test_what_still_waits_hours_later_is_looked_at_again(town: Town) -> None:
    notice = Notice("waits:n1.1:refused:1", "page", "n1", "look")
    town.standing.append(notice)
    town.on_call.on_page(notice)
    town.pass_time(10 * HOUR_S)
    assert len(town.asked) >= 2
    town.standing.clear()
    before = len(town.asked)
    town.pass_time(20 * HOUR_S)
    assert len(town.asked) - before <= 1
    assert town.on_call.answered["waits"] == len(town.asked)


# ---------------------------------------------------------------- administrator


def test_planned_maintenance_takes_the_job_off_and_gives_the_node_back(town: Town) -> None:
    admin = Admin(town.tools, AdminSettings())
    job = town.ctld.submit(JobSpec("a", nodelist=("n1",)))
    town.pass_time(5)
    for told in town.machines.on_maintenance:
        told("n1")
    town.pass_time(5)
    fault = town.machines.strikes.blame(job)
    assert fault is not None
    assert fault.kind.cause == "host maintenance"
    town.pass_time(600)
    assert town.ctld.view("n1").reason.startswith("maintenance: planned work")
    assert not town.machines.machine("n1").powered
    town.pass_time(9 * HOUR_S)
    assert not town.state() & {"DRAIN", "DOWN"}
    assert town.machines.usable("n1")
    assert admin.done == {"maintenance": 1}
    assert admin.in_hands == set()


def test_a_node_that_is_out_already_is_not_maintained_on_top(town: Town) -> None:
    admin = Admin(town.tools, AdminSettings())
    town.ctld.update_node("n1", "DRAIN", "slc:XID79 gpu3 fell off the bus")
    town.machines.on_maintenance[0]("n1")
    town.pass_time(DAY_S)
    assert admin.done == {}
    assert town.ctld.view("n1").reason == "slc:XID79 gpu3 fell off the bus"


DEEDS = ("drain", "undrain", "down", "take_over", "reserve", "hold", "remediate", "return", "reboot")
ALL_DEEDS = dict.fromkeys((*DEEDS, "comment"), 400.0)


def test_every_deed_is_done_and_in_the_end_undone() -> None:
    town = Town(6)
    admin = Admin(town.tools, AdminSettings(per_1000_node_days=ALL_DEEDS, lasts_s=(600.0, HOUR_S)))
    admin.start()
    for _ in range(40):
        fault = fault_with(town.machines, "n3", "gpu_hang", 0.0)
        town.pass_time(DAY_S / 2)
        town.machines.clear("n3", fault.key)
        town.pass_time(DAY_S / 2)
    admin.stop()
    town.pass_time(DAY_S)
    assert set(ALL_DEEDS) <= set(admin.done)
    for name in town.machines.names():
        view = town.ctld.view(name)
        assert not view.state & {"DRAIN", "DOWN"} or view.reason.startswith("slc:"), view
    before = dict(admin.done)
    town.pass_time(10 * DAY_S)
    assert admin.done == before


def test_what_died_under_a_forgotten_reason_is_put_right_within_a_day_or_sent_in(town: Town) -> None:
    Admin(town.tools, AdminSettings(), town.technician)
    for node in ("n1", "n2", "n3"):
        town.ctld.update_node(node, "DOWN", "fan noise" if node != "n3" else "somebody else has it")
    fault_with(town.machines, "n2", "nic_dead", 0.9)
    town.pass_time(DAY_S + 100)
    assert not town.state("n1") & {"DRAIN", "DOWN"}
    assert list(town.technician.at_work) == ["n2"]
    town.pass_time(15 * DAY_S)
    assert not town.state("n2") & {"DRAIN", "DOWN"}
    assert "DOWN" in town.state("n3")


def test_deeds_on_one_node_do_not_move_with_others() -> None:
    seen = []
    for count in (2, 5):
        town = Town(count)
        admin = Admin(town.tools, AdminSettings(per_1000_node_days={"hold": 500.0}))
        admin.start()
        town.pass_time(30 * DAY_S)
        seen.append([one for one in town.asked if one[1] in ("n1", "n2") and one[0] == "hold"])
    assert Counter(seen[0]) == Counter(seen[1])
    assert len(seen[0]) > 10


# ---------------------------------------------------------------- by hand


def by_hand(town: Town, **settings: float) -> tuple[Operator, list[tuple[str, str]], list[tuple[str, str]]]:
    operator = Operator(town.tools, town.technician, replace(OperatorSettings(), **settings))  # type: ignore[arg-type]
    actions: list[tuple[str, str]] = []
    phases: list[tuple[str, str]] = []
    operator.on_action.append(lambda action, node: actions.append((action, node)))
    operator.on_phase.append(lambda node: phases.append((node, operator.phase(node))))
    return operator, actions, phases


def test_a_person_reboots_looks_and_gives_back_after_two_hours(town: Town) -> None:
    _, actions, phases = by_hand(town)
    fault_with(town.machines, "n1", "gpu_hang", 0.0)
    town.pass_time(HOUR_S)
    assert "DRAIN" in town.state()
    assert actions == []
    town.pass_time(3 * HOUR_S)
    assert actions == [("reboot", "n1"), ("return", "n1")]
    assert [phase for _, phase in phases] == ["waiting", "draining", "reboot", "verify", "reboot", ""]
    assert not town.state() & {"DRAIN", "DOWN"}
    assert town.machines.machine("n1").boots == 1


def test_what_a_reboot_does_not_mend_is_sent_in(town: Town) -> None:
    operator, actions, _ = by_hand(town)
    fault_with(town.machines, "n1", "hbm_remap_failed", 0.9)
    town.pass_time(5 * HOUR_S)
    assert operator.phase("n1") == "rma"
    assert "DRAIN" in town.state()
    town.pass_time(15 * DAY_S)
    assert [action for action, _ in actions] == ["reboot", "rma", "return"]
    assert not town.state() & {"DRAIN", "DOWN"}
    assert town.asked == []


def test_software_is_reinstalled_once(town: Town) -> None:
    _, actions, _ = by_hand(town)
    fault_with(town.machines, "n1", "driver_down", 0.9)
    town.pass_time(8 * HOUR_S)
    assert [action for action, _ in actions] == ["drain", "reboot", "reimage", "return"]
    assert not town.machines.faulty("n1")


@pytest.mark.parametrize("kind", ["chassis", "cpu_machine_check"])
def test_a_dead_or_rebooted_host_is_brought_back(town: Town, kind: str) -> None:
    _, actions, _ = by_hand(town)
    fault_with(town.machines, "n1", kind, 0.0)
    town.pass_time(6 * HOUR_S)
    assert ("return", "n1") in actions
    assert not town.state() & {"DRAIN", "DOWN", "NOT_RESPONDING"}


def test_what_goes_by_itself_needs_nobody(town: Town) -> None:
    operator, actions, _ = by_hand(town)
    cable = fault_with(town.machines, "n1", "cable_down", 0.0)
    town.pass_time(900)
    assert operator.phase("n1") == "waiting"
    town.machines.clear("n1", cable.key)
    town.pass_time(5 * HOUR_S)
    assert actions == []
    assert operator.phase("n1") == ""


def test_one_person_does_one_thing_at_a_time() -> None:
    town = Town(40)
    _, actions, _ = by_hand(town, work_s=900.0)
    for name in town.machines.names():
        fault_with(town.machines, name, "gpu_hang", 0.0)
    # Two times a quarter of an hour for each of forty nodes.
    town.pass_time(15 * HOUR_S)
    returned = sum(action == "return" for action, _ in actions)
    assert 0 < returned < 40
    town.pass_time(15 * HOUR_S)
    assert sum(action == "return" for action, _ in actions) == 40


def test_while_a_leaf_is_gone_nothing_is_done_to_its_nodes(town: Town) -> None:
    _, actions, _ = by_hand(town)
    switch_loss(town.machines, ["n1", "n2"], town.timeline.now + 10, 12 * HOUR_S)
    town.pass_time(11 * HOUR_S)
    assert [one for one in actions if one[0] != "drain"] == []
    town.pass_time(8 * HOUR_S)
    assert not town.state("n1") & {"DRAIN", "DOWN"}
    assert not town.state("n2") & {"DRAIN", "DOWN"}


def test_a_persons_own_drain_is_no_case(town: Town) -> None:
    operator, _, _ = by_hand(town)
    town.ctld.update_node("n1", "DRAIN", "fan noise")
    town.pass_time(DAY_S)
    assert operator.cases == 0
    assert "DRAIN" in town.state()


def history(seed: int) -> tuple[list[tuple[float, str, str]], Town]:
    town = Town(48, seed)
    lines: list[tuple[float, str, str]] = []
    operator, _, _ = by_hand(town)
    Admin(town.tools, AdminSettings())
    operator.on_action.append(lambda action, node: lines.append((town.timeline.now, action, node)))
    town.ctld.on_node_change.append(
        lambda name: lines.append((town.timeline.now, name, "+".join(sorted(town.state(name)))))
    )
    arrivals = Arrivals(town.machines, FaultRates(scale=8.0, false_alarms_per_1000_node_days=1.0))
    arrivals.on_alarm.append(town.fleet.agents.false_alarm)
    arrivals.start()
    town.pass_time(40 * DAY_S)
    arrivals.stop()
    town.pass_time(30 * DAY_S)
    return lines, town


def test_a_fleet_run_by_hand_comes_to_rest_and_the_same_way_twice() -> None:
    lines, town = history(1)
    assert lines == history(1)[0]
    assert lines != history(2)[0]
    left = {name: town.ctld.view(name) for name in town.machines.names() if town.state(name) != {"IDLE"}}
    assert left == {}
    assert not [name for name in town.machines.names() if town.machines.machine(name).stuck]
    done = Counter(what for _, what, _ in lines if what not in town.machines)
    assert min(done[what] for what in ("drain", "reboot", "rma", "return")) > 0, done
