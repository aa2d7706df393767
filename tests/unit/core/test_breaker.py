"""What counts for the breaker around a reset, and that two cases of one second stay apart."""

from dataclasses import replace

from slurm_lifecycle.core.budget import new_trip
from slurm_lifecycle.core.model import BreakerHit, Step, Trip, Verb
from slurm_lifecycle.core.policy import BreakerPolicy, Policy

from .world import ACT, World

POLICY = Policy(
    breaker=BreakerPolicy(least=3, most=3),
    domains={f"{rack}{number}": rack for rack in "ab" for number in range(9)},
)


def hits(at: float, *names: str) -> list[BreakerHit]:
    return [BreakerHit(name, at, "XID79", f"{name}.1") for name in names]


def test_hits_before_a_reset_are_forgotten_and_those_of_its_tick_are_not() -> None:
    reset = Trip("fleet", 10.0, "x", reset_at=100.0)
    assert new_trip(hits(99.0, "a1", "a2", "b1"), (reset,), POLICY, 9, 101.0) is None
    trip = new_trip(hits(100.0, "a1", "a2", "b1"), (reset,), POLICY, 9, 101.0)
    assert trip is not None
    assert trip.scope == "fleet"


def test_a_domain_that_is_reset_forgets_its_own_hits_only() -> None:
    reset = Trip("domain:a", 10.0, "x", reset_at=100.0)
    before = [*hits(99.0, "a1", "a2"), *hits(99.0, "b1", "b2")]
    assert new_trip([*before, *hits(101.0, "a3")], (reset,), POLICY, 9, 102.0) is not None
    assert new_trip([*before[:2], *hits(101.0, "a3", "b1")], (reset,), POLICY, 9, 102.0) is None


def test_a_reset_holds_although_a_node_fails_in_the_same_tick() -> None:
    world = World(policy=replace(ACT, breaker=BreakerPolicy(least=3, most=3)))
    for name in ("n1", "n2", "n3"):
        world.fault(name, "XID79", cured_by="never")
    world.tick(2)
    assert [one.scope for one in world.records.trips] == ["fleet"]
    world.ask(Verb.BREAKER_RESET, "")
    world.fault("n4", "XID79")
    world.tick()
    assert not [one for one in world.records.trips if one.reset_at is None]


def test_a_case_that_ends_and_begins_within_a_second_is_another_case() -> None:
    world = World()
    ids: list[str] = []
    for _ in range(3):
        world.ask(Verb.REMEDIATE, "n3")
        world.tick()
        incident = world.incident("n3")
        assert incident is not None
        assert incident.step is Step.DRAINING
        ids.append(incident.id)
        world.ask(Verb.BREAKER_LIFT, "MANUAL")
        world.lose = lambda action: True
        world.now -= 4.9
        world.tick()
        world.now -= 4.9
    assert len(set(ids)) == 3
    assert len(world.records.closed_incidents) == 3
