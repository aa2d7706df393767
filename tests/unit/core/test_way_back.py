"""The last steps of a return, what a person waived, and fences that come late."""

from dataclasses import replace

from slurm_lifecycle.core.model import ReservationView, Step, Verb
from slurm_lifecycle.core.plan import CreateFence, RemoveFence, Undrain

from .world import ACT, World


def test_service_is_seen_twice_in_a_row_or_not_at_all() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.run_until(lambda w: (found := w.incident("n3")) is not None and found.service_ticks == 1)
    for token in ("NOT_RESPONDING", "REBOOT_ISSUED"):
        world.set_state("n3", token)
        world.tick()
        world.set_state("n3", drop=(token,))
        world.tick()
        assert world.incident("n3").service_ticks == 1  # type: ignore[union-attr]
    world.tick()
    assert world.closed("n3").outcome == "returned"


def test_checks_begin_anew_where_the_node_has_booted_between_two_ticks() -> None:
    world = World(policy=replace(ACT, verify_settle_s=60.0))
    world.fault("n3", "XID79")
    world.run_until(lambda w: w.step("n3") is Step.VERIFYING)
    world.tick(10)
    # Slurm has not noticed anything, and the agent of the new boot has spoken.
    world.now += 2
    world.boots["n3"] += 1
    world.nodes["n3"] = replace(world.nodes["n3"], boot_time_s=world.now)
    world.say("n3")
    world.tick(10)
    assert world.step("n3") is Step.VERIFYING
    world.run_until(lambda w: w.step("n3") is None)
    assert world.closed("n3").outcome == "returned"


def boots_by_itself(world: World) -> None:
    world.boots["n3"] += 1
    world.nodes["n3"] = replace(world.nodes["n3"], boot_time_s=world.now)
    world.say("n3")


def comes_to_its_return(world: World) -> None:
    world.fault("n3", "XID79")
    world.run_until(lambda w: w.step("n3") is Step.VERIFYING)
    world.run_until(lambda w: w.step("n3") is Step.RETURNING)


def test_node_that_boots_on_its_way_back_is_checked_again() -> None:
    for undrained in (False, True):
        world = World()
        comes_to_its_return(world)
        if undrained:
            world.lose = lambda action: isinstance(action, RemoveFence)
            world.run_until(lambda w: "DRAIN" not in w.nodes["n3"].state)
            world.tick()
        world.now += 2
        boots_by_itself(world)
        world.lose = lambda action: False
        world.tick()
        assert world.step("n3") is Step.VERIFYING, undrained
        assert world.reservations
        world.run_until(lambda w: w.step("n3") is None)
        assert world.closed("n3").outcome == "returned"


def test_node_that_boots_on_its_way_back_again_and_again_is_a_persons_matter() -> None:
    world = World()
    for _ in range(3):
        if world.incident("n3") is None:
            comes_to_its_return(world)
        else:
            world.run_until(lambda w: w.step("n3") is Step.RETURNING)
        world.now += 2
        boots_by_itself(world)
        world.tick()
    assert world.step("n3") is Step.RETURNING
    world.run_until(lambda w: w.step("n3") is Step.HELD)
    assert world.incident("n3").hold == "return"  # type: ignore[union-attr]
    assert world.reservations


def test_lifted_code_lifts_no_other_fault() -> None:
    world = World()
    world.fault("n3", "DRIVER_MISMATCH", component="-", cured_by="never")
    world.run_until(lambda w: w.step("n3") is Step.REPAIRING)
    world.policy = replace(world.policy, rungs=world.policy.rungs - {"reboot", "return"})
    world.ask(Verb.BREAKER_LIFT, "DRIVER_MISMATCH")
    world.tick()
    assert world.incident("n3").lifted  # type: ignore[union-attr]
    world.fault("n3", "GPU_IRQ", component="gpu0", cured_by="never")
    world.agent_drains("n3")
    world.policy = replace(world.policy, rungs=world.policy.rungs | {"return"})
    world.tick(5)
    assert not world.sent(Undrain, "n3")
    incident = world.incident("n3")
    assert incident is not None
    assert (incident.code, incident.lifted) == ("GPU_IRQ", False)
    assert not any(one.acknowledged for one in world.records.findings if one.code == "GPU_IRQ")


def test_finding_of_another_code_is_not_acknowledged_with_the_lifted_one() -> None:
    world = World()
    world.policy = replace(world.policy, rungs=world.policy.rungs - {"drain"})
    world.fault("n3", "DRIVER_MISMATCH", component="-")
    world.tick(3)
    world.fault("n3", "FS_READONLY", component="/")
    world.tick()
    world.ask(Verb.BREAKER_LIFT, "DRIVER_MISMATCH")
    world.tick()
    acknowledged = {one.code: one.acknowledged for one in world.records.findings}
    assert acknowledged == {"DRIVER_MISMATCH": True, "FS_READONLY": False}


def comes_late(world: World, name: str) -> None:
    flags = frozenset({"MAINT", "IGNORE_JOBS"})
    world.reservations[name] = ReservationView(name, ("n3",), world.now, world.now + 1e7, flags)


def test_fence_that_slurm_makes_after_its_case_was_closed_is_removed() -> None:
    world = World()
    world.lose = lambda action: isinstance(action, CreateFence)
    world.fault("n3", "XID79")
    world.run_until(lambda w: bool(w.sent(CreateFence)))
    world.admin_undrains("n3")
    world.tick(3)
    name = f"slc-{world.closed('n3').id}"
    assert name not in world.records.fences
    comes_late(world, name)
    world.tick(2)
    assert world.sent(RemoveFence)
    assert not world.reservations
    world.tick(2)
    assert world.last.settled
    assert not world.records.trips


def test_late_fence_of_an_open_case_is_no_strangers() -> None:
    world = World()
    world.lose = lambda action: isinstance(action, CreateFence)
    world.fault("n3", "XID79", cured_by="never")
    world.run_until(lambda w: bool(w.sent(CreateFence)))
    incident = world.incident("n3")
    assert incident is not None
    # It went on without a fence, to a person, and its record was closed.
    world.records = replace(
        world.records,
        incidents={"n3": replace(incident, step=Step.AWAITING_PERSON, deadline=None)},
        fences={},
    )
    comes_late(world, f"slc-{incident.id}")
    world.tick(2)
    assert world.step("n3") is Step.AWAITING_PERSON
    assert not world.records.trips
    assert not world.reservations
