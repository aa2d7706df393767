"""The planner over a small world in values: every row of the state table, and what must never happen."""

from dataclasses import replace

import pytest

from slurm_lifecycle.core.formats import parse_mark
from slurm_lifecycle.core.model import AttemptOutcome, Identity, JobView, Phase, Rung, Step, Verb
from slurm_lifecycle.core.plan import Drain, Notice, RemoveFence, StartAttempt, Undrain
from slurm_lifecycle.core.policy import Budget, Mode

from .world import ACT, World


def settled(world: World) -> bool:
    return not world.records.incidents and not world.reservations and world.last.settled


def test_reboot_class_is_drained_rebooted_checked_and_returned() -> None:
    world = World()
    world.tick(2)
    world.fault("n3", "XID79")
    world.run_job("n3")
    world.agent_drains("n3")
    world.tick(5)
    assert world.step("n3") is Step.DRAINING
    assert not world.sent(StartAttempt)
    world.end_jobs("n3")
    world.run_until(settled)
    assert len(world.sent(StartAttempt, "n3")) == 1
    assert world.closed("n3").outcome == "returned"
    assert world.closed("n3").cured_by == "reboot"
    assert world.nodes["n3"].state == {"IDLE"}
    assert parse_mark(world.nodes["n3"].comment) is None
    order = [type(one).__name__ for one in world.log if getattr(one, "node", "") == "n3"]
    assert order.index("CreateFence") < order.index("Undrain") < order.index("RemoveFence")


def test_daemon_drains_what_an_observing_agent_only_reports() -> None:
    world = World()
    world.fault("n2", "GPU_LOST")
    world.run_until(settled)
    assert next(one for one in world.sent(Drain, "n2") if isinstance(one, Drain)).reason.startswith(
        "slc:GPU_LOST gpu3"
    )
    assert world.closed("n2").outcome == "returned"


def test_hardware_goes_straight_to_rma_and_stays_drained() -> None:
    world = World()
    world.fault("n4", "REMAP_FAILURE", cured_by="never")
    world.agent_drains("n4")
    world.run_until(lambda w: w.step("n4") is Step.AWAITING_PERSON)
    starts = [one for one in world.sent(StartAttempt, "n4") if isinstance(one, StartAttempt)]
    assert [one.attempt.rung for one in starts] == [Rung.RMA]
    world.tick(200)
    assert "DRAIN" in world.nodes["n4"].state
    assert not world.sent(Undrain)
    # The part is replaced: released, checked, returned.
    world.faults.clear()
    world.boots["n4"] += 1
    world.say("n4")
    world.ask(Verb.RMA_CLOSE, "n4")
    world.run_until(settled)
    assert world.closed("n4").outcome == "returned"


def test_released_without_repair_is_not_returned() -> None:
    world = World()
    world.fault("n4", "REMAP_FAILURE", cured_by="never")
    world.run_until(lambda w: w.step("n4") is Step.AWAITING_PERSON)
    world.ask(Verb.RELEASE, "n4")
    world.tick(3)
    world.run_until(lambda w: w.step("n4") is Step.AWAITING_PERSON)
    assert not world.sent(Undrain)


def test_software_fault_that_a_reboot_does_not_cure_is_reimaged() -> None:
    world = World()
    world.fault("n1", "DRIVER_MISMATCH", "-", cured_by="reimage")
    world.run_until(settled)
    starts = [one for one in world.sent(StartAttempt, "n1") if isinstance(one, StartAttempt)]
    assert [one.attempt.rung for one in starts] == [Rung.REBOOT, Rung.REIMAGE]
    assert world.closed("n1").cured_by == "reimage"


def test_a_persons_drain_is_untouched_and_the_finding_recorded() -> None:
    world = World()
    world.admin_drains("n5", "fan noise, ticket 4711")
    world.fault("n5", "XID79")
    world.tick(100)
    incident = world.incident("n5")
    assert incident is not None
    assert (incident.step, incident.hold) == (Step.HELD, "foreign")
    assert [one.code for one in world.records.findings] == ["XID79"]
    assert world.nodes["n5"].reason == "fan noise, ticket 4711"
    assert not [one for one in world.log if getattr(one, "node", "") == "n5" and not isinstance(one, Notice)]
    assert "untouched" in next(one.why for one in world.last.statuses if one.node == "n5")


def test_application_fault_is_recorded_and_nothing_drained() -> None:
    world = World()
    world.fault("n6", "XID13", "gpu1")
    world.tick(20)
    assert [one.code for one in world.records.findings] == ["XID13"]
    assert not world.records.incidents
    assert not world.sent(Drain)


def test_admin_drains_in_the_middle_of_a_reboot() -> None:
    world = World(reboot_ticks=6)
    world.fault("n3", "XID79")
    world.run_until(lambda w: "n3" in w.rebooting)
    world.tick()
    world.set_state("n3", reason="mine now")
    world.run_until(lambda w: "n3" not in w.rebooting)
    world.tick(40)
    assert world.nodes["n3"].reason == "mine now"
    assert "DRAIN" in world.nodes["n3"].state
    assert not world.reservations
    assert not world.sent(Undrain)
    assert world.records.attempts[-1].outcome is AttemptOutcome.SUCCEEDED
    assert world.nodes["n3"].state == {"IDLE", "DRAIN"}


def test_admin_undrains_while_it_drains_and_that_cancels() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.run_job("n3")
    world.tick(3)
    world.admin_undrains("n3")
    world.tick(30)
    assert world.closed("n3").outcome == "cancelled"
    assert len(world.sent(Drain, "n3")) == 1
    assert all(one.acknowledged for one in world.records.findings)
    # Cleared and raised again: a new case.
    world.faults.clear()
    world.say("n3")
    world.tick(2)
    world.fault("n3", "XID79")
    world.tick(2)
    assert len(world.sent(Drain, "n3")) == 2


def test_admin_drains_in_the_moment_before_the_return() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.run_until(lambda w: w.step("n3") is Step.RETURNING)
    world.set_state("n3", "DRAIN", reason="do not touch")
    world.tick(30)
    assert world.nodes["n3"].reason == "do not touch"
    assert "DRAIN" in world.nodes["n3"].state
    assert not world.reservations


@pytest.mark.parametrize("state", [("COMPLETING",), ("ALLOCATED",), ("MIXED",)])
def test_busy_tokens_keep_the_node_from_being_worked_on(state: tuple[str, ...]) -> None:
    world = World()
    world.fault("n3", "XID79")
    world.set_state("n3", *state)
    world.tick(50)
    assert "DRAIN" in world.nodes["n3"].state
    assert not world.sent(StartAttempt)


def test_a_suspended_job_keeps_the_node_from_being_rebooted() -> None:
    world = World()
    world.jobs.append(JobView("7", "SUSPENDED", ("n3",), 1000, 0))
    world.fault("n3", "XID79")
    world.tick(50)
    assert world.nodes["n3"].state == {"IDLE", "DRAIN"}
    assert not world.sent(StartAttempt)


def test_unknown_state_means_no_action() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.set_state("n3", "A_TOKEN_OF_NEXT_YEAR")
    world.tick(50)
    assert not [one for one in world.log if getattr(one, "node", "") == "n3"]
    assert next(one.phase for one in world.last.statuses if one.node == "n3") is Phase.UNKNOWN


def test_five_reboots_in_a_window_never_happen() -> None:
    world = World(policy=replace(ACT, lemon_7d=99, lemon_28d=99, relapse_window_s=0.0))
    for _ in range(6):
        world.fault("n3", "XID79")
        world.run_until(lambda w: settled(w) or w.step("n3") is Step.AWAITING_PERSON)
        if world.incident("n3"):
            break
    reboots = [
        one
        for one in world.sent(StartAttempt)
        if isinstance(one, StartAttempt) and one.attempt.rung is Rung.REBOOT
    ]
    assert len(reboots) == 2
    assert world.step("n3") is Step.AWAITING_PERSON


def test_relapse_enters_above_the_rung_that_cured() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.run_until(settled)
    world.fault("n3", "XID79")
    world.run_until(lambda w: w.step("n3") is Step.AWAITING_PERSON)
    reboots = [
        one
        for one in world.sent(StartAttempt)
        if isinstance(one, StartAttempt) and one.attempt.rung is Rung.REBOOT
    ]
    assert len(reboots) == 1


def test_fault_during_a_reboot_is_judged_after_it() -> None:
    world = World(reboot_ticks=5)
    world.fault("n3", "XID79")
    world.run_until(lambda w: "n3" in w.rebooting)
    world.faults["n3"] = ("REMAP_FAILURE", "gpu5")
    world.cured_by["n3"] = "never"
    world.run_until(lambda w: w.step("n3") is Step.AWAITING_PERSON)
    incident = world.incident("n3")
    assert incident is not None
    assert incident.code == "REMAP_FAILURE"
    reboots = [one for one in world.sent(StartAttempt) if isinstance(one, StartAttempt)]
    assert [one.attempt.rung for one in reboots] == [Rung.REBOOT, Rung.RMA]


def test_breaker_stops_starting_but_not_finishing_and_returning() -> None:
    world = World(reboot_ticks=4)
    world.fault("n1", "XID79")
    world.run_until(lambda w: "n1" in w.rebooting)
    for name in ("n2", "n3", "n4", "n5", "n6"):
        world.fault(name, "DRIVER_MISMATCH", "-")
    world.tick(100)
    assert [one.scope for one in world.records.trips] == ["fleet"]
    assert world.closed("n1").outcome == "returned"
    assert {one.attempt.node for one in world.sent(StartAttempt) if isinstance(one, StartAttempt)} == {"n1"}
    assert not [one for one in world.sent(Drain) if isinstance(one, Drain) and one.node != "n1"]
    # False alarm on two of them: lifted; the rest goes through after the reset, within its budget.
    for name in ("n2", "n3"):
        world.faults.pop(name)
        world.say(name)
    world.ask(Verb.BREAKER_LIFT, "DRIVER_MISMATCH")
    world.ask(Verb.BREAKER_RESET, "")
    world.tick(5)
    assert not [one for one in world.records.trips if one.reset_at is None]
    assert not world.records.incidents
    world.tick(50)
    assert not world.sent(Undrain, "n4")


def test_lift_returns_what_was_drained_for_the_code() -> None:
    world = World(
        policy=replace(ACT, fleet=Budget(max_out=8, max_working=8), rungs=frozenset({"drain", "return"}))
    )
    for name in ("n2", "n3"):
        world.fault(name, "DRIVER_MISMATCH", "-")
    world.tick(5)
    assert all("DRAIN" in world.nodes[name].state for name in ("n2", "n3"))
    world.ask(Verb.BREAKER_LIFT, "DRIVER_MISMATCH")
    world.tick(20)
    assert all(world.nodes[name].state == {"IDLE"} for name in ("n2", "n3"))
    assert world.closed("n2").outcome == "lifted"
    assert len(world.sent(Drain)) == 2


def test_software_drains_keep_to_the_budget() -> None:
    world = World(policy=replace(ACT, fleet=Budget(max_out=2, max_working=1)))
    for name in ("n1", "n2", "n3", "n4"):
        world.fault(name, "DRIVER_MISMATCH", "-", cured_by="reboot")
    most_out, most_working = 0, 0
    for _ in range(300):
        world.tick()
        most_out = max(most_out, sum("DRAIN" in one.state for one in world.nodes.values()))
        working = [one for one in world.records.incidents.values() if one.rung is not None]
        most_working = max(most_working, len(working))
    assert (most_out, most_working) == (2, 1)
    assert not world.records.incidents


def test_dead_node_is_adopted_after_its_time_and_waits_for_a_person() -> None:
    world = World()
    world.tick()
    world.set_state("n7", "DOWN", "NOT_RESPONDING", drop=("IDLE",), reason="Not responding")
    world.tick(5)
    assert world.incident("n7") is None
    world.tick(20)
    incident = world.incident("n7")
    assert incident is not None
    assert incident.step is Step.AWAITING_PERSON
    assert "reboot needs a node that responds" in incident.note
    assert "no power here" in incident.note
    assert not [
        one
        for one in world.sent(StartAttempt)
        if isinstance(one, StartAttempt) and one.attempt.rung is Rung.REBOOT
    ]


def test_observe_mode_plans_nothing_and_says_what_it_would_do() -> None:
    world = World(policy=replace(ACT, mode=Mode.OBSERVE))
    world.fault("n3", "XID79")
    world.tick(30)
    assert not [one for one in world.log if not isinstance(one, Notice)]
    assert "observe mode; would drain" in next(one.why for one in world.last.held if one.node == "n3")


@pytest.mark.parametrize(
    ("allowed", "partitions", "drains"),
    [
        (("*",), (), True),
        (("batch",), ("batch",), True),
        (("batch", "debug"), ("batch", "debug"), True),
        (("batch",), ("batch", "debug"), False),
        (("batch",), (), False),
        ((), ("batch",), False),
        ((), (), False),
    ],
)
def test_every_partition_of_a_node_has_to_be_listed(
    allowed: tuple[str, ...], partitions: tuple[str, ...], drains: bool
) -> None:
    world = World(policy=replace(ACT, partitions=allowed))
    world.nodes["n3"] = replace(world.nodes["n3"], partitions=partitions)
    world.fault("n3", "XID79")
    world.tick(5)
    assert bool(world.sent(Drain, "n3")) is drains


def test_partition_and_rung_lists_bind() -> None:
    world = World(policy=replace(ACT, partitions=("other",)))
    world.fault("n3", "XID79")
    world.tick(10)
    assert not world.sent(Drain)
    world = World(policy=replace(ACT, rungs=frozenset({"drain"})))
    world.fault("n3", "XID79")
    world.tick(30)
    assert world.sent(Drain)
    assert not world.sent(StartAttempt)
    assert "`rungs` does not list reboot" in next(one.why for one in world.last.held if one.node == "n3")


def test_hold_of_a_person_stops_new_work() -> None:
    world = World()
    world.ask(Verb.HOLD, "n3")
    world.tick(2)
    world.fault("n3", "XID79")
    world.tick(20)
    assert not world.sent(Drain)
    assert parse_mark(world.nodes["n3"].comment) is not None
    world.ask(Verb.RELEASE, "n3")
    world.run_until(settled)
    assert world.closed("n3").outcome == "returned"


def test_lost_calls_only_cost_time() -> None:
    world = World(policy=replace(ACT, lemon_7d=99))
    dropped: set[str] = set()

    def lose(action: object) -> bool:
        key = type(action).__name__ + getattr(action, "node", "")
        if key in dropped or isinstance(action, StartAttempt):
            return False
        dropped.add(key)
        return True

    world.lose = lose
    world.fault("n3", "XID79")
    world.run_until(settled)
    assert world.closed("n3").outcome == "returned"
    assert len(dropped) >= 5


def test_reboot_without_evidence_is_ambiguous_and_not_repeated() -> None:
    world = World(reboot_ticks=10_000)
    world.fault("n3", "XID79")
    world.run_until(lambda w: bool(w.sent(StartAttempt)))
    world.rebooting.clear()
    world.run_until(lambda w: any(one.outcome is not None for one in w.records.attempts), ticks=1000)
    # What 22.05 does when a reboot passes ResumeTimeout: DOWN, and the drain is gone.
    reason = world.nodes["n3"].reason + " : reboot timed out"
    world.set_state("n3", "DOWN", drop=("REBOOT_ISSUED", "DRAIN"), reason=reason)
    assert world.records.attempts[0].outcome is AttemptOutcome.AMBIGUOUS
    world.run_until(lambda w: w.step("n3") is Step.AWAITING_PERSON)
    reboots = [
        one
        for one in world.sent(StartAttempt)
        if isinstance(one, StartAttempt) and one.attempt.rung is Rung.REBOOT
    ]
    assert len(reboots) == 1


def test_claim_of_another_daemon_forbids_everything() -> None:
    world = World()
    world.nodes["n1"] = replace(world.nodes["n1"], comment="rack 7 slcd[other@elsewhere:3]")
    world.fault("n3", "XID79")
    world.tick(10)
    assert not [one for one in world.log if not isinstance(one, Notice)]
    assert "claimed by instance other on elsewhere" in world.last.held[0].why
    world.identity = Identity("inst1", "admin", 4, took_over="other")
    world.run_until(settled)
    assert world.nodes["n1"].comment == "rack 7 slcd[inst1@admin:4]"


def test_restored_old_store_does_not_act() -> None:
    world = World()
    world.tick(2)
    world.identity = replace(world.identity, generation=0)
    world.fault("n3", "XID79")
    before = len(world.log)
    world.tick(5)
    assert not [one for one in world.log[before:] if not isinstance(one, Notice)]
    assert "older than the cluster's claim" in world.last.held[0].why


def test_unknown_marks_are_held_for_a_person_and_trip_the_breaker() -> None:
    world = World()
    world.tick(2)
    world.nodes["n4"] = replace(world.nodes["n4"], comment="slc1[inst1;n4.99;7;repairing]")
    world.set_state("n4", "DRAIN", reason="slc:XID79 gpu1 fell off the bus")
    world.tick(5)
    incident = world.incident("n4")
    assert incident is not None
    assert (incident.step, incident.hold) == (Step.HELD, "adopt")
    assert [one.scope for one in world.records.trips] == ["fleet"]
    assert not world.sent(StartAttempt)
    world.ask(Verb.BREAKER_RESET, "")
    world.ask(Verb.RELEASE, "n4")
    world.run_until(settled)
    assert world.nodes["n4"].state == {"IDLE"}


def test_foreign_comment_survives() -> None:
    world = World()
    world.nodes["n3"] = replace(world.nodes["n3"], comment="rack=12 owner=bio [x]")
    world.fault("n3", "XID79")
    world.run_until(settled)
    assert world.nodes["n3"].comment == "rack=12 owner=bio [x]"


def test_replanning_a_settled_fleet_is_empty() -> None:
    world = World()
    world.admin_drains("n2")
    world.fault("n4", "REMAP_FAILURE", cured_by="never")
    world.fault("n5", "XID13")
    world.run_until(lambda w: w.step("n4") is Step.AWAITING_PERSON)
    world.tick(3)
    assert world.tick().settled


def test_stale_reason_on_a_node_in_service_means_nothing() -> None:
    world = World()
    world.set_state("n2", reason="slc:XID79 gpu3 fell off the bus : reboot issued")
    world.tick(10)
    assert not world.records.incidents
    assert not world.sent(Undrain)


def test_drain_lost_by_the_reboot_is_issued_again() -> None:
    world = World(reboot_ticks=3)
    world.fault("n3", "XID79")
    world.run_until(lambda w: "n3" in w.rebooting)
    world.set_state("n3", drop=("DRAIN",))
    world.run_until(settled)
    assert len(world.sent(Drain, "n3")) >= 2
    assert world.closed("n3").outcome == "returned"


def test_no_verdict_of_the_new_boot_is_no_return() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.run_until(lambda w: w.step("n3") is Step.VERIFYING)
    world.nodes["n3"] = replace(world.nodes["n3"], extra="")
    world.run_until(lambda w: w.step("n3") is Step.HELD, ticks=2000)
    incident = world.incident("n3")
    assert incident is not None
    assert incident.hold == "verify"
    assert not world.sent(Undrain)
    assert not world.sent(RemoveFence)
    assert any(isinstance(one, Notice) and one.urgency == "page" for one in world.log)


def test_transient_reasons_of_slurm_are_checked_and_rebooted_the_third_time() -> None:
    world = World()
    rungs: list[int] = []
    for _ in range(3):
        before = len(world.sent(StartAttempt))
        world.set_state("n3", "DRAIN", reason="Kill task failed")
        world.run_until(lambda w: w.incident("n3") is not None)
        world.run_until(settled)
        rungs.append(len(world.sent(StartAttempt)) - before)
    assert rungs == [0, 0, 1]
    assert world.closed("n3").cured_by == "reboot"


def test_reboot_written_down_but_never_sent_is_tried_anew() -> None:
    world = World()
    world.lose = lambda action: isinstance(action, StartAttempt) and len(world.records.attempts) == 1
    world.fault("n3", "XID79")
    world.run_until(settled)
    outcomes = [one.outcome for one in world.records.attempts]
    assert outcomes == [AttemptOutcome.CANCELLED, AttemptOutcome.SUCCEEDED]
    assert world.records.attempts[0].ended_at is not None
    assert world.records.attempts[0].ended_at - world.records.attempts[0].created_at >= 120.0
    assert world.boots["n3"] == 2


@pytest.mark.parametrize(("times", "ends"), [(1, "returned"), (9, "return")])
def test_node_that_slurm_takes_down_in_its_return_is_checked_again(times: int, ends: str) -> None:
    world = World()
    world.fault("n3", "XID79")
    for _ in range(times):
        world.run_until(
            lambda w: w.step("n3") in (Step.RETURNING, Step.HELD) and "DRAIN" not in w.nodes["n3"].state
        )
        if world.step("n3") is Step.HELD:
            break
        world.set_state("n3", "DOWN", drop=("IDLE",), reason="Node unexpectedly rebooted")
        world.tick()
        world.run_until(lambda w: w.step("n3") is not Step.VERIFYING, ticks=1000)
        if world.step("n3") is Step.HELD:
            break
    if ends == "returned":
        world.run_until(settled)
        assert world.closed("n3").outcome == "returned"
        assert world.nodes["n3"].state == {"IDLE"}
    else:
        world.run_until(lambda w: w.step("n3") is Step.HELD, ticks=1000)
        incident = world.incident("n3")
        assert incident is not None
        assert incident.hold == "return"
        assert any("n3" in one.nodes for one in world.reservations.values())
    reboots = [one for one in world.sent(StartAttempt, "n3") if isinstance(one, StartAttempt)]
    assert len(reboots) == 1
