"""A person may release many nodes at once; what they still lack is repaired within the limits."""

from dataclasses import replace

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Rung, Step, Verb
from slurm_lifecycle.core.policy import BreakerPolicy, Budget, RungRule

from .world import ACT, World


def under_way(world: World) -> int:
    return sum(1 for one in world.records.attempts if one.outcome is None)


def test_nodes_released_together_that_are_still_broken_are_repaired_within_the_limit() -> None:
    policy = replace(
        ACT,
        fleet=Budget(max_out=8, max_working=2),
        breaker=BreakerPolicy(least=50, most=50),
        caps={},
        lemon_7d=99,
        lemon_28d=99,
        paths={**ACT.paths, FaultClass.SOFTWARE: (RungRule(Rung.PERSON, 1, 60.0),)},
    )
    world = World(count=8, policy=policy, reboot_ticks=3)
    names = [f"n{number}" for number in range(1, 9)]
    for name in names:
        world.fault(name, "DRIVER_MISMATCH", cured_by="never")
    world.run_until(lambda w: all(w.step(name) is Step.AWAITING_PERSON for name in names))
    # A technician worked on all of them; now each has another fault, which a reboot cures.
    for name in names:
        world.fault(name, "XID79", cured_by="reboot")
        world.ask(Verb.RELEASE, name)
    most = 0
    for _ in range(400):
        world.tick()
        most = max(most, under_way(world))
        if not world.records.incidents:
            break
    assert not world.records.incidents
    assert most == 2
    assert all(view.state == {"IDLE"} for view in world.nodes.values())


def test_a_check_in_the_middle_of_a_path_is_made_once() -> None:
    path = (RungRule(Rung.REBOOT, 1, 60.0), RungRule(Rung.VERIFY, 1, 60.0), RungRule(Rung.PERSON, 1, 60.0))
    world = World(policy=replace(ACT, paths={**ACT.paths, FaultClass.REBOOT: path}))
    world.fault("n3", "XID79", cured_by="never")
    rungs: list[Rung | None] = []
    for _ in range(200):
        world.tick()
        if world.step("n3") is Step.VERIFYING and world.last.incidents:
            rungs += [one.rung for one in world.last.incidents if one.step is Step.VERIFYING]
        if world.step("n3") is Step.AWAITING_PERSON:
            break
    assert world.step("n3") is Step.AWAITING_PERSON
    assert [one for one in rungs if one is Rung.VERIFY] == [Rung.VERIFY]
