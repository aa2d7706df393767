"""What proves a boot, and where a node counts, when less is known of it than usual."""

from dataclasses import replace

from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step
from slurm_lifecycle.core.ownership import UNREADABLE
from slurm_lifecycle.core.plan import Drain, StartAttempt
from slurm_lifecycle.core.policy import Budget

from .world import ACT, World


def boots_tell_their_time(world: World, name: str) -> None:
    world.nodes[name] = replace(world.nodes[name], boot_time_s=world.now)


def test_reboot_that_was_carried_out_but_not_marked_counts_although_the_agent_did_not_start() -> None:
    world = World()
    boots_tell_their_time(world, "n3")
    # It is written down, and the daemon dies before or after it was sent: nobody knows.
    world.lose = lambda action: isinstance(action, StartAttempt)
    world.fault("n3", "XID79")
    world.run_until(lambda w: bool(w.sent(StartAttempt, "n3")))
    said_before = world.nodes["n3"].extra
    world.tick(2)
    world._booted("n3", "reboot")
    boots_tell_their_time(world, "n3")
    # No agent speaks in the new boot.
    world.nodes["n3"] = replace(world.nodes["n3"], extra=said_before)
    world.tick(40)
    (attempt,) = [one for one in world.records.attempts if one.node == "n3"]
    assert attempt.outcome is None
    world.run_until(lambda w: w.records.attempts[0].outcome is not None)
    assert world.records.attempts[0].outcome is AttemptOutcome.AMBIGUOUS


def test_boot_id_of_a_boot_that_had_begun_before_the_attempt_proves_nothing() -> None:
    world = World()
    world.fault("n3", "XID79", cured_by="never")
    world.agent_drains("n3")
    # The node has just booted and its agent has not spoken in this boot yet.
    world.boots["n3"] += 1
    boots_tell_their_time(world, "n3")
    world.lose = lambda action: isinstance(action, StartAttempt)
    world.run_until(lambda w: bool(w.sent(StartAttempt, "n3")))
    world.say("n3")
    world.tick(3)
    (attempt,) = world.records.attempts
    assert attempt.outcome is None
    # A real boot does.
    world.now += 60
    world._booted("n3", "reboot")
    boots_tell_their_time(world, "n3")
    world.boots["n3"] += 1
    world.say("n3")
    world.tick()
    assert world.records.attempts[0].outcome is AttemptOutcome.SUCCEEDED


def test_node_in_work_whose_record_cannot_be_read_keeps_its_place_in_every_partition() -> None:
    policy = replace(ACT, partition_budgets={"batch": Budget(None, 1)}, fleet=Budget(None, 4))
    world = World(policy=policy, reboot_ticks=30)
    for name in ("n3", "n4"):
        world.fault(name, "XID79")
        world.agent_drains(name)
    world.run_until(lambda w: bool(w.sent(StartAttempt)))
    shown = world.nodes["n3"]
    world.nodes["n3"] = replace(shown, state=frozenset({UNREADABLE}), partitions=(), comment="", reason="")
    world.tick(6)
    assert world.step("n3") is Step.REPAIRING
    assert world.step("n4") is Step.DRAINING
    assert [one.attempt.rung for one in world.sent(StartAttempt)] == [Rung.REBOOT]  # type: ignore[attr-defined]


def test_node_under_our_fence_is_drained_again_though_no_more_nodes_may_be_out() -> None:
    world = World(policy=replace(ACT, fleet=Budget(1, 4)))
    world.fault("n3", "DRIVER_MISMATCH")
    world.run_until(lambda w: w.step("n3") is Step.RETURNING and "DRAIN" not in w.nodes["n3"].state)
    world.admin_drains("n5")
    world.fault("n3", "DRIVER_MISMATCH")
    drains = len(world.sent(Drain, "n3"))
    world.tick(3)
    assert len(world.sent(Drain, "n3")) == drains + 1
    assert "DRAIN" in world.nodes["n3"].state


def test_node_that_its_unmarked_reboot_took_down_is_not_taken_for_one_that_got_none() -> None:
    for token, tail in (
        ("DOWN", " : reboot issued : reboot timed out"),
        ("NOT_RESPONDING", ""),
        ("IDLE", " : reboot issued"),
    ):
        world = World()
        world.lose = lambda action: isinstance(action, StartAttempt)
        world.fault("n3", "XID79")
        world.run_until(lambda w: bool(w.sent(StartAttempt, "n3")))
        world.set_state("n3", token, reason=world.nodes["n3"].reason + tail)
        world.run_until(lambda w: w.records.attempts[0].outcome is not None)
        assert world.records.attempts[0].outcome is AttemptOutcome.AMBIGUOUS, token
