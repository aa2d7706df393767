"""Nodes that were taken out of Slurm while something was on record about them."""

from slurm_lifecycle.core.model import Phase, Step, Verb
from slurm_lifecycle.core.plan import Notice

from .world import World


def test_a_node_that_is_gone_is_told_of_and_a_person_closes_its_case() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.run_until(lambda w: w.step("n3") is Step.VERIFYING)
    del world.nodes["n3"]
    world.tick()
    assert [one.phase for one in world.last.statuses if one.node == "n3"] == [Phase.GONE]
    world.tick(400)
    pages = [one for one in world.log if isinstance(one, Notice) and one.urgency == "page"]
    assert any("not in Slurm any more" in one.text for one in pages)
    world.ask(Verb.RELEASE, "n3")
    world.tick(3)
    assert world.incident("n3") is None
    assert world.closed("n3").outcome == "cancelled"
    assert not world.reservations
    assert world.tick().settled


def test_a_hold_on_a_node_that_is_gone_can_be_released() -> None:
    world = World()
    world.ask(Verb.HOLD, "n3")
    world.tick(2)
    del world.nodes["n3"]
    world.ask(Verb.RELEASE, "n3")
    world.tick()
    assert not world.records.holds


def test_a_repair_under_way_ends_first() -> None:
    world = World(reboot_ticks=100)
    world.fault("n3", "XID79")
    world.run_until(lambda w: "n3" in w.rebooting)
    del world.nodes["n3"]
    world.rebooting.clear()
    world.ask(Verb.RELEASE, "n3")
    world.tick()
    assert world.incident("n3") is not None
    assert any("is waited for" in answer for _, answer in world.last.requests_done)
