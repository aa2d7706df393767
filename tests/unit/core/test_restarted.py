"""A daemon that starts anew at any tick goes on; what a person acknowledged does not hide a drain of ours."""

from dataclasses import replace

from slurm_lifecycle.core.model import Rung, Step
from slurm_lifecycle.core.plan import StartAttempt

from .world import World


def test_a_restart_at_any_tick_of_the_ladder_goes_on() -> None:
    ticks = 0
    returned = False
    while not returned:
        ticks += 1
        world = World()
        world.fault("n3", "XID79")
        world.agent_drains("n3")
        world.tick(ticks)
        returned = bool(world.records.closed_incidents)
        # Each start counts the generation up, so that the claim is written anew before anything else is done.
        world.identity = replace(world.identity, generation=world.identity.generation + 1)
        world.run_until(lambda w: bool(w.records.closed_incidents))
        assert world.closed("n3").outcome == "returned", ticks
        assert len(world.sent(StartAttempt, "n3")) == 1, ticks
        assert not world.reservations, ticks
    assert ticks > 5


def test_a_drain_of_ours_after_a_person_acknowledged_the_finding_has_an_incident() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.agent_drains("n3")
    world.run_job("n3")
    world.tick(3)
    assert world.step("n3") is Step.DRAINING
    world.admin_undrains("n3")
    world.tick(3)
    assert world.step("n3") is None
    # The agent drains for another trouble, while the acknowledged one is what the node's Extra still shows.
    world.set_state("n3", "DRAIN", reason="slc:REMAP_FAILURE gpu5 row remap failed")
    world.tick(2)
    incident = world.incident("n3")
    assert incident is not None
    assert incident.code == "REMAP_FAILURE"
    assert incident.rung is not Rung.VERIFY
