"""The power rung in the planner: off politely, off, off seen, on, booted; whatever the BMC does."""

from dataclasses import replace

import pytest

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, PowerState, StepOutcome
from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step, Verb
from slurm_lifecycle.core.plan import SendStep
from tests.unit.core.machine import Machine
from tests.unit.core.world import ACT, ALL_RUNGS, TICK_S, World

GRACEFUL, FORCE, ON = MachineCommand.GRACEFUL_OFF, MachineCommand.FORCE_OFF, MachineCommand.ON
POLICY = replace(
    ACT,
    rungs=ALL_RUNGS | {"power"},
    effects=ACT.effects | {Rung.POWER},
    bmc=frozenset({"n1", "n2", "n3"}),
)


def cluster(machine: Machine | None = None, **changes: object) -> World:
    """A node that its reboot does not cure and its power cycle does."""
    world = World(policy=replace(POLICY, **changes) if changes else POLICY)  # type: ignore[arg-type]
    world.machines["n1"] = machine or Machine()
    world.fault("n1", "XID79", cured_by="power")
    world.agent_drains("n1")
    return world


def power(world: World) -> AttemptOutcome | None:
    tries = [one for one in world.records.attempts if one.rung is Rung.POWER]
    return tries[-1].outcome if tries else None


def until_over(world: World) -> AttemptOutcome:
    world.run_until(lambda one: power(one) is not None, 1000)
    found = power(world)
    assert found is not None
    return found


def detail(world: World) -> str:
    return [one for one in world.records.attempts if one.rung is Rung.POWER][-1].detail


def begun(world: World) -> None:
    world.run_until(lambda one: bool(one.machines["n1"].accepted))


def test_polite_off_then_on_then_checks_then_back() -> None:
    world = cluster()
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert world.machines["n1"].accepted == [GRACEFUL, ON]
    assert "slc-" + world.incident("n1").id in world.reservations  # type: ignore[union-attr]
    world.run_until(lambda one: one.incident("n1") is None)
    assert world.closed("n1").outcome == "returned"
    assert world.closed("n1").cured_by == "power"


def test_an_operating_system_that_does_not_obey_is_cut_off_after_its_time() -> None:
    world = cluster(Machine(deaf_os=True))
    begun(world)
    asked_at = world.now
    world.run_until(lambda one: FORCE in one.machines["n1"].accepted)
    assert world.now - asked_at >= POLICY.machine.graceful_off_s
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert world.machines["n1"].accepted == [GRACEFUL, FORCE, ON]


def test_it_stays_off_for_its_time() -> None:
    world = cluster()
    begun(world)
    world.run_until(lambda one: not one.machines["n1"].on)
    off_at = world.now
    world.run_until(lambda one: one.machines["n1"].on)
    assert world.now - off_at >= POLICY.machine.off_dwell_s


def test_a_machine_found_off_is_switched_on() -> None:
    world = cluster()
    machine = world.machines["n1"]
    world.run_until(lambda one: one.step("n1") is Step.REPAIRING)
    machine.goes_off()
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert ON in machine.accepted
    assert FORCE not in machine.accepted


@pytest.mark.parametrize("command", [GRACEFUL, FORCE, ON])
def test_a_command_that_is_done_and_not_answered_is_not_sent_again(command: MachineCommand) -> None:
    world = cluster(Machine(deaf_os=command is FORCE, unheard={command}))
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert world.machines["n1"].accepted.count(command) == 1


@pytest.mark.parametrize("command", [GRACEFUL, FORCE, ON])
def test_a_daemon_killed_between_sending_and_writing_it_down_sends_nothing_twice(
    command: MachineCommand,
) -> None:
    world = cluster(Machine(deaf_os=command is FORCE))
    world.killed = lambda step: step.command is command
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert world.machines["n1"].accepted.count(command) == 1


@pytest.mark.parametrize("command", [GRACEFUL, FORCE, ON])
def test_a_daemon_killed_before_it_sent_what_it_wrote_down_leaves_no_machine_off(
    command: MachineCommand,
) -> None:
    world = cluster(Machine(deaf_os=command is FORCE))
    lost: list[object] = []

    def lose(action: object) -> bool:
        if isinstance(action, SendStep) and action.step.command is command and not lost:
            lost.append(action)
            return True
        return False

    world.lose = lose
    outcome = until_over(world)
    assert lost
    world.tick(20)
    assert world.machines["n1"].on
    # A cut that was perhaps sent is not sent again: the machine stays on, and the rung has failed.
    assert outcome is (AttemptOutcome.FAILED if command is FORCE else AttemptOutcome.SUCCEEDED)


def test_on_that_is_refused_right_after_off_is_tried_again_until_it_is_taken() -> None:
    """LP#2162995: iDRAC10 answers 409 to `On` just after off."""
    world = cluster(Machine(refuse={ON: 5}))
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert world.machines["n1"].accepted == [GRACEFUL, ON]


def test_on_that_does_nothing_is_sent_again_because_the_machine_reads_as_off() -> None:
    machine = Machine(lost={ON})
    world = cluster(machine)
    world.run_until(lambda one: machine.accepted.count(ON) == 1)
    first = world.now
    world.run_until(lambda one: machine.accepted.count(ON) == 2)
    assert world.now - first >= POLICY.machine.on_s
    machine.lost.clear()
    assert until_over(world) is AttemptOutcome.SUCCEEDED


def test_on_is_tried_again_past_the_deadline_while_its_bmc_is_dark() -> None:
    world = cluster()
    machine = world.machines["n1"]
    begun(world)
    world.run_until(lambda one: not machine.on)
    machine.problem = BmcProblem.BUSY
    world.tick(int(2 * 3600 / TICK_S))
    assert power(world) is None
    assert any(getattr(one, "urgency", "") == "page" for one in world.log)
    machine.problem = BmcProblem.NONE
    world.run_until(lambda one: machine.on)


def test_a_bmc_that_says_off_of_a_machine_that_is_on_is_not_believed() -> None:
    machine = Machine(lost={GRACEFUL, FORCE}, says=PowerState.OFF)
    world = cluster(machine)
    assert until_over(world) is AttemptOutcome.FAILED
    assert machine.offs == 0
    assert "stays off" in detail(world)


def test_a_machine_that_never_reads_as_off_is_told_to_go_on_all_the_same() -> None:
    machine = Machine(deaf_os=True, says=PowerState.ON)
    world = cluster(machine)
    world.run_until(lambda one: FORCE in machine.accepted)
    assert not machine.on
    world.run_until(lambda one: machine.on)
    assert until_over(world) in (AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED)


def test_one_that_cannot_be_cut_off_ends_as_failed_and_stays_on() -> None:
    world = cluster(Machine(deaf_os=True, refuse={FORCE: 99}))
    assert until_over(world) is AttemptOutcome.FAILED
    assert world.machines["n1"].on
    assert "refused 8 times" in detail(world)


def test_a_bmc_that_is_silent_costs_no_attempt_and_says_nothing_of_the_host() -> None:
    world = cluster(Machine(problem=BmcProblem.TIMEOUT))
    assert until_over(world) is AttemptOutcome.CANCELLED
    assert world.machines["n1"].accepted == []
    world.run_until(lambda one: one.step("n1") is Step.HELD, 2000)
    incident = world.incident("n1")
    assert incident is not None
    assert incident.hold == "refused"
    assert "no answer" in incident.note


@pytest.mark.parametrize("problem", [BmcProblem.WRONG_MACHINE, BmcProblem.AUTH, BmcProblem.TLS])
def test_what_only_a_person_can_mend_is_not_waited_for(problem: BmcProblem) -> None:
    world = cluster(Machine(problem=problem))
    world.run_until(lambda one: power(one) is not None, 150)
    assert power(world) is AttemptOutcome.CANCELLED


def test_a_node_without_a_bmc_on_record_is_passed_over() -> None:
    world = cluster(bmc=frozenset())
    world.run_until(lambda one: any(a.rung is Rung.RMA for a in one.records.attempts))
    assert not [one for one in world.records.attempts if one.rung is Rung.POWER]


def test_a_persons_drain_in_the_middle_ends_with_the_machine_on() -> None:
    world = cluster()
    machine = world.machines["n1"]
    begun(world)
    world.run_until(lambda one: not machine.on)
    world.admin_drains("n1", "mine now")
    world.run_until(lambda one: machine.on)
    world.run_until(lambda one: power(one) is not None)
    assert world.nodes["n1"].reason == "mine now"
    assert machine.accepted == [GRACEFUL, ON]


def test_a_persons_drain_before_the_cut_keeps_the_power_on() -> None:
    machine = Machine(deaf_os=True)
    world = cluster(machine)
    begun(world)
    world.admin_drains("n1", "mine now")
    assert until_over(world) is AttemptOutcome.FAILED
    assert machine.accepted == [GRACEFUL]
    assert machine.on


def test_a_job_that_appears_keeps_the_power_on() -> None:
    machine = Machine(deaf_os=True)
    world = cluster(machine)
    begun(world)
    world.run_job("n1")
    assert until_over(world) is AttemptOutcome.FAILED
    assert FORCE not in machine.accepted


def test_a_hold_before_the_first_command_keeps_everything_as_it_is() -> None:
    world = cluster()
    world.run_until(lambda one: any(a.rung is Rung.POWER for a in one.records.attempts))
    if not world.machines["n1"].accepted:
        world.ask(Verb.HOLD, "n1")
        world.tick(30)
        assert world.machines["n1"].accepted == []
        assert power(world) is AttemptOutcome.CANCELLED


def test_a_boot_of_its_own_accord_before_it_goes_off_is_no_evidence() -> None:
    machine = Machine(shutdown_s=60.0)
    world = cluster(machine)
    begun(world)
    world.boots["n1"] += 1
    world.nodes["n1"] = replace(world.nodes["n1"], boot_time_s=world.now)
    world.say("n1")
    world.run_until(lambda one: not machine.on)
    assert power(world) is None
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert machine.offs == 1


def test_one_machine_a_domain_and_a_few_of_the_fleet_at_once() -> None:
    world = cluster(domains={"n1": "rack1", "n2": "rack1"}, power_at_once=2, fleet_working_percent=100.0)
    for name in ("n2", "n3"):
        world.machines[name] = Machine()
        world.fault(name, "XID79", cured_by="power")
        world.agent_drains(name)
    together = set()
    for _ in range(400):
        world.tick()
        busy = {one.node for one in world.records.attempts if one.outcome is None and one.rung is Rung.POWER}
        together.add(frozenset(busy))
    assert not any({"n1", "n2"} <= one for one in together)
    assert all(len(one) <= 2 for one in together)
    assert all(world.machines[name].offs == 1 for name in ("n1", "n2", "n3"))


def test_the_mains_are_cut_where_the_fault_asks_for_it() -> None:
    machine = Machine(dark_s=120.0)
    world = cluster(machine, ac_cycle_codes=frozenset({"XID79"}))
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert machine.accepted == [GRACEFUL, MachineCommand.AC_CYCLE, ON]


def test_mains_that_come_back_by_themselves() -> None:
    machine = Machine(dark_s=120.0, restores_power=True)
    world = cluster(machine, ac_cycle_codes=frozenset({"XID79"}))
    assert until_over(world) is AttemptOutcome.SUCCEEDED
    assert machine.accepted == [GRACEFUL, MachineCommand.AC_CYCLE]


def test_a_machine_whose_mains_cannot_be_cut_is_left_on_and_the_rung_has_failed() -> None:
    """DGX H100 has no such action: its mains are cut by hand."""
    machine = Machine(unsupported=frozenset({MachineCommand.AC_CYCLE}))
    world = cluster(machine, ac_cycle_codes=frozenset({"XID79"}))
    assert until_over(world) is AttemptOutcome.FAILED
    assert machine.on
    assert "no ac_cycle here" in detail(world)


def test_a_daemon_that_may_only_watch_sends_nothing_not_even_on() -> None:
    world = cluster()
    machine = world.machines["n1"]
    begun(world)
    world.run_until(lambda one: not machine.on)
    world.identity = replace(world.identity, instance="other")
    world.tick(50)
    assert not machine.on
    assert all(one.outcome is not StepOutcome.UNSUPPORTED for one in world.records.steps)


def test_a_node_that_never_boots_ends_without_evidence_and_goes_up_the_ladder() -> None:
    world = cluster(Machine(never_boots=True))
    assert until_over(world) is AttemptOutcome.AMBIGUOUS
    world.run_until(lambda one: any(a.rung is Rung.RMA for a in one.records.attempts), 2000)
