"""What was written down and not sent is sent by the next daemon, unless a person has forbidden it since."""

from dataclasses import replace

import pytest

from slurm_lifecycle.core.model import Rung, Step, Verb
from slurm_lifecycle.core.plan import StartAttempt

from .world import ACT, World


def unsent(rung: Rung) -> World:
    """A node whose attempt of a rung is on record; the daemon died before it handed it over."""
    world = World()
    world.lose = lambda action: isinstance(action, StartAttempt) and action.attempt.rung is rung
    code, cured_by = ("REMAP_FAILURE", "never") if rung is Rung.RMA else ("FS_READONLY", "reimage")
    world.fault("n3", code, cured_by=cured_by)
    world.run_until(lambda w: any(one.rung is rung for one in w.records.attempts))
    assert world.step("n3") is Step.REPAIRING
    return world


def sent(world: World, rung: Rung) -> int:
    return len([one for one in world.sent(StartAttempt) if one.attempt.rung is rung])  # type: ignore[attr-defined]


@pytest.mark.parametrize("rung", [Rung.REIMAGE, Rung.RMA])
def test_it_is_sent_again(rung: Rung) -> None:
    world = unsent(rung)
    before = sent(world, rung)
    world.tick(2)
    assert sent(world, rung) == before + 2


@pytest.mark.parametrize("rung", [Rung.REIMAGE, Rung.RMA])
def test_not_where_the_configuration_forbids_it_by_now(rung: Rung) -> None:
    world = unsent(rung)
    before = sent(world, rung)
    world.policy = replace(ACT, rungs=ACT.rungs - {rung.value})
    world.tick(3)
    assert sent(world, rung) == before
    assert "`rungs` does not list" in " ".join(one.why for one in world.last.held)
    world.policy = ACT
    world.tick()
    assert sent(world, rung) == before + 1


@pytest.mark.parametrize("rung", [Rung.REIMAGE, Rung.RMA])
def test_not_where_a_person_holds_the_node_since_this_very_tick(rung: Rung) -> None:
    world = unsent(rung)
    before = sent(world, rung)
    world.ask(Verb.HOLD, "n3")
    world.tick(3)
    assert sent(world, rung) == before
