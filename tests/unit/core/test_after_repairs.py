"""What Slurm, boots and people do behind the planner's back during and after a repair."""

from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step
from slurm_lifecycle.core.plan import RemoveFence, StartAttempt, Undrain

from .world import World


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
