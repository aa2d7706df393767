"""A verdict settles within one boot: what a node said before it booted again is no check of this one."""

from dataclasses import replace

import pytest

from slurm_lifecycle.core.model import Step
from slurm_lifecycle.core.plan import Drain, Undrain

from .world import ACT, TICK_S, World


def settling() -> World:
    """n3 came back from its reboot, and its good verdict has begun to settle."""
    world = World(policy=replace(ACT, verify_settle_s=10 * TICK_S))
    world.fault("n3", "XID79")
    world.agent_drains("n3")
    world.run_until(lambda w: (one := w.incident("n3")) is not None and one.verify_since is not None)
    world.tick(6)
    assert world.step("n3") is Step.VERIFYING
    return world


@pytest.mark.parametrize("slurm_saw_it", [True, False])
def test_another_boot_while_a_verdict_settles_begins_the_time_anew(slurm_saw_it: bool) -> None:
    world = settling()
    if slurm_saw_it:
        world.nodes["n3"] = replace(world.nodes["n3"], boot_time_s=world.now)
    world.boots["n3"] += 1
    world.say("n3")
    world.tick(8)
    assert not world.sent(Undrain, "n3")
    world.run_until(lambda w: w.incident("n3") is None)
    assert world.closed("n3").outcome == "returned"


def test_a_verdict_of_the_boot_before_never_passes_where_the_agent_does_not_start_again() -> None:
    world = settling()
    world.nodes["n3"] = replace(world.nodes["n3"], boot_time_s=world.now)
    world.run_until(lambda w: (one := w.incident("n3")) is not None and one.hold == "verify", ticks=2000)
    assert not world.sent(Undrain, "n3")


def test_the_reason_is_not_written_anew_before_a_second_reboot_where_drains_are_not_allowed() -> None:
    world = World(policy=replace(ACT, rungs=ACT.rungs - {"drain"}))
    world.fault("n3", "XID79")
    world.agent_drains("n3")
    world.set_state("n3", reason=f"{world.nodes['n3'].reason} : reboot issued")
    world.tick(20)
    assert not world.sent(Drain, "n3")
    assert any("rungs" in one.why for one in world.last.held if one.node == "n3")
