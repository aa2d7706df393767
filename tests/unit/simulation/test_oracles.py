"""Oracles object to what must not be done, and to nothing else; the broken daemons try the rest."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.simulation.safety.oracles import Patience
from slurm_lifecycle.simulation.safety.rest import stop_trouble
from slurm_lifecycle.simulation.safety.suite import run_seed
from slurm_lifecycle.simulation.safety.world import World
from slurm_lifecycle.simulation.slurmctld import JobSpec

OURS = "slc:XID79 gpu3 fell off the bus"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world in which everything works."""
    made = World(1, tmp_path)
    stop_trouble(made)
    yield made
    made.close()


def objections(world: World) -> set[str]:
    return {one.oracle for one in world.facts.violations}


def node(world: World) -> str:
    return min(world.ctld.views())


def test_nothing_is_said_where_nothing_is_done(world: World) -> None:
    for _ in range(5):
        world.step(10.0)
    assert not world.facts.violations


def test_reboot_out_of_the_blue_breaks_many_rules(world: World) -> None:
    world.slurm.reboot(node(world))
    assert objections(world) >= {
        "drained and fenced first",
        "written before it is done",
        "a fresh look before each write",
    }


def test_reboot_under_a_job_is_disruption(world: World) -> None:
    name = node(world)
    world.hands.submit(JobSpec("job", partition=world.ctld.view(name).partitions[0], nodelist=(name,)))
    world.timeline.run_until(world.timeline.now + 5.0)
    assert world.facts.jobs_of(name)
    world.slurm.reboot(name)
    assert "no disruption of a job" in objections(world)


def test_a_persons_drain_is_known_by_its_words(world: World) -> None:
    name = node(world)
    world.hands.drain(name, "fan noise")
    world.slurm.node(name)
    world.slurm.drain(name, OURS)
    assert objections(world) == {"a person's drain is untouched"}
    world.facts.violations.clear()
    # Our own may be lifted, as far as this oracle is concerned.
    world.slurm.node(name)
    world.slurm.undrain(name)
    assert "a person's drain is untouched" not in objections(world)


def test_look_counts_until_the_next_write(world: World) -> None:
    name, other = sorted(world.ctld.views())[:2]
    world.slurm.node(name)
    world.slurm.node(other)
    world.slurm.set_comment(name, "x")
    assert not objections(world)
    world.slurm.set_comment(other, "x")
    assert objections(world) == {"a fresh look before each write"}


def test_word_of_a_return_follows_the_state(world: World) -> None:
    name = node(world)
    world.ctld.update_node(name, "DRAIN", OURS)
    world.slurm.node(name)
    world.slurm.resume(name)
    assert "RESUME only where it is DOWN" in objections(world)


def test_fields_of_others_are_not_written(world: World) -> None:
    name = node(world)
    world.slurm.set_extra(name, "x")
    world.hands.add_to_comment(name, "rack=12")
    world.slurm.node(name)
    world.slurm.set_comment(name, "mine")
    texts = [one.text for one in world.facts.violations if one.oracle == "only its own fields"]
    assert len(texts) == 2
    assert "rack=12" in texts[1]


def test_observe_mode_and_holds_forbid(world: World) -> None:
    name = node(world)
    world.hands.ask(Verb.HOLD, name)
    world.step(1.0)
    world.step(1.0)
    world.slurm.node(name)
    world.slurm.drain(name, OURS)
    assert objections(world) == {"only what is allowed"}
    world.facts.violations.clear()
    world.facts.policy = replace(world.policy, mode=Mode.OBSERVE)
    world.slurm.node(name)
    world.slurm.set_comment(name, "x")
    assert "only what is allowed" in objections(world)


def test_node_in_service_after_a_repair_without_checks(world: World) -> None:
    name = node(world)
    # No agent says in the new boot that all is well.
    world.machines.machine(name).agent_starts = False
    world.ctld.update_node(name, "DRAIN", OURS)
    world.slurm.reboot(name)
    world.timeline.run_until(world.timeline.now + 1000.0)
    assert world.machines.machine(name).boots == 1
    world.facts.violations.clear()
    world.ctld.update_node(name, "UNDRAIN")
    world.timeline.run_until(world.timeline.now + 5.0)
    assert objections(world) == {"never in service unchecked"}


def test_patience_runs_out_once_and_only_by_ticks_that_count() -> None:
    patience, there = Patience(2), {("what", "n1", "x")}
    assert not patience.lasted(there, counts=True)
    assert not patience.lasted(there, counts=False)
    assert not patience.lasted(there, counts=True)
    assert patience.lasted(there, counts=True) == [("what", "n1", "x")]
    assert not patience.lasted(there, counts=True)
    assert not patience.lasted(set(), counts=True)
    assert not patience.lasted(there, counts=True)


def test_a_report_tells_how_to_run_the_seed_again() -> None:
    report = run_seed(4, steps=5)
    assert report.replay == "make simulate-safety SEEDS=1 FIRST_SEED=4"
    assert (report.seed, report.steps) == (4, 5)
    assert report.ticks > 5
