"""What Slurm, boots and people do behind the planner's back during and after a repair."""

from dataclasses import replace

from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step, Verb
from slurm_lifecycle.core.plan import Drain, RemoveFence, StartAttempt, Undrain
from slurm_lifecycle.core.policy import Mode

from .world import ACT, World


def settled(world: World) -> bool:
    return not world.records.incidents and world.last.settled


def in_service(world: World, name: str) -> bool:
    return not world.nodes[name].state & {"DRAIN", "DOWN"}


def test_boot_after_its_deadline_whose_drain_slurm_dropped_is_checked_not_taken_for_a_persons() -> None:
    # 22.05 with ReturnToService=2: at ResumeTimeout the drain goes, and the late boot is in service.
    world = World(reboot_ticks=10_000)
    world.fault("n3", "XID79")
    world.run_until(lambda w: any(one.outcome is AttemptOutcome.AMBIGUOUS for one in w.records.attempts))
    world.tick(2)
    assert world.step("n3") is Step.REPAIRING
    # Between two ticks.
    world.rebooting.clear()
    world.set_state("n3", drop=("DRAIN",), reason="")
    world._booted("n3", "reboot")
    world.tick()
    assert world.incident("n3") is not None
    assert not [one for one in world.log if isinstance(one, RemoveFence)]
    world.run_until(settled)
    assert world.closed("n3").outcome == "returned"
    assert len([one for one in world.sent(StartAttempt) if one.attempt.rung is Rung.REBOOT]) == 1  # type: ignore[attr-defined]


def test_fault_that_comes_back_during_the_return_leaves_the_fence_until_the_node_is_drained() -> None:
    for code in ("XID79", "DRIVER_MISMATCH"):
        world = World()
        world.fault("n3", code)
        world.run_until(lambda w: bool(w.sent(Undrain, "n3")))
        assert in_service(world, "n3")
        world.fault("n3", code, cured_by="reboot")
        for _ in range(40):
            world.tick()
            fenced = any("n3" in one.nodes for one in world.reservations.values())
            assert fenced or not in_service(world, "n3"), (code, world.incident("n3"))
            if not in_service(world, "n3"):
                break
        else:
            raise AssertionError(f"{code}: never drained again")


def dies(world: World, name: str) -> None:
    world.set_state(name, "DOWN", "NOT_RESPONDING", drop=("IDLE",), reason="Not responding")


def comes_back(world: World, name: str) -> None:
    world.set_state(name, "IDLE", drop=("DOWN", "NOT_RESPONDING", "DRAIN"), reason="")


def test_outage_that_ends_by_itself_while_we_only_watch_is_over() -> None:
    world = World(policy=replace(ACT, mode=Mode.OBSERVE))
    dies(world, "n3")
    world.tick(20)
    assert world.step("n3") is Step.DRAINING
    comes_back(world, "n3")
    world.tick(2)
    assert world.closed("n3").outcome == "cleared"
    assert not world.records.findings
    assert world.tick().settled
    world.policy = ACT
    world.tick(20)
    assert not world.sent(Drain)


def test_outage_that_a_person_took_over_and_mended_is_over() -> None:
    world = World()
    world.lose = lambda action: isinstance(action, Drain)
    dies(world, "n3")
    world.tick(20)
    world.set_state("n3", "DRAIN", reason="bad PSU")
    world.tick(5)
    assert world.step("n3") is Step.HELD
    world.lose = lambda action: False
    comes_back(world, "n3")
    world.log.clear()
    world.tick(20)
    assert not world.sent(Drain)
    assert world.nodes["n3"].state == {"IDLE"}
    assert world.closed("n3").outcome == "cleared"


def test_slurms_reason_that_our_drain_replaced_is_not_taken_for_gone() -> None:
    world = World()
    dies(world, "n3")
    world.run_until(lambda w: w.incident("n3") is not None and w.incident("n3").drain_confirmed)  # type: ignore[union-attr]
    world.tick(5)
    assert [one.code for one in world.records.findings] == ["NO_RESPONSE"]


def powered_on(world: World, name: str, agent_speaks: bool) -> None:
    world.set_state(name, "DOWN", drop=("NOT_RESPONDING",))
    world.nodes[name] = replace(world.nodes[name], boot_time_s=world.now)
    world.boots[name] += 1
    if agent_speaks:
        world.say(name)


def waits_for_a_person(world: World, name: str) -> None:
    world.nodes[name] = replace(world.nodes[name], boot_time_s=world.now - 1000)
    dies(world, name)
    world.run_until(lambda w: w.step(name) is Step.AWAITING_PERSON)


def test_the_verdict_of_a_boot_that_is_over_does_not_pass_for_a_check() -> None:
    for on_before_release in (True, False):
        world = World()
        waits_for_a_person(world, "n3")
        world.tick(3)
        if on_before_release:
            powered_on(world, "n3", agent_speaks=False)
        world.ask(Verb.RELEASE, "n3")
        world.tick(2)
        if not on_before_release:
            powered_on(world, "n3", agent_speaks=False)
        world.tick(60)
        assert not world.sent(Undrain), on_before_release
        assert world.step("n3") is Step.VERIFYING
        world.say("n3")
        world.run_until(settled)
        assert in_service(world, "n3")


def test_a_node_that_did_not_boot_while_it_waited_is_judged_by_what_it_says() -> None:
    world = World()
    waits_for_a_person(world, "n3")
    world.set_state("n3", drop=("NOT_RESPONDING",))
    world.ask(Verb.RELEASE, "n3")
    world.run_until(settled)
    assert in_service(world, "n3")
