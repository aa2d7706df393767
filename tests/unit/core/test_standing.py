"""What waits for a person is told in every plan: no page is lost with a daemon or a mail server."""

from slurm_lifecycle.core.model import Identity, Step, Verb
from slurm_lifecycle.core.plan import Notice

from .world import ACT, World


def keys(world: World) -> list[str]:
    return [one.key for one in world.last.standing]


def test_a_node_that_waits_is_named_in_every_plan_until_it_does_not() -> None:
    world = World()
    world.fault("n3", "REMAP_FAILURE", cured_by="never")
    world.run_until(lambda w: w.step("n3") is Step.AWAITING_PERSON)
    begun = [one for one in world.last.actions if isinstance(one, Notice)]
    assert begun == list(world.last.standing)
    assert begun[0].urgency == "page"
    assert "node release n3" in begun[0].text
    world.tick(5)
    # A fleet that waits is at rest: nothing is written for it.
    assert world.tick().settled
    assert world.last.standing == tuple(begun)
    world.ask(Verb.RELEASE, "n3")
    world.tick()
    assert world.last.standing == ()


def test_a_second_wait_of_one_incident_is_told_anew() -> None:
    world = World()
    world.fault("n3", "REMAP_FAILURE", cured_by="never")
    seen: list[str] = []
    for _ in range(2):
        world.run_until(lambda w: w.step("n3") is Step.AWAITING_PERSON)
        world.tick()
        seen += keys(world)
        world.ask(Verb.RELEASE, "n3")
        world.tick()
    assert len(set(seen)) == 2


def test_every_hold_but_a_persons_drain_is_told() -> None:
    world = World()
    world.fault("n3", "XID79")
    world.lose = lambda action: False
    world.run_until(lambda w: w.step("n3") is Step.VERIFYING)
    world.nodes["n3"] = world.nodes["n3"].__class__(
        "n3", world.nodes["n3"].state, world.nodes["n3"].reason, comment=world.nodes["n3"].comment
    )
    world.run_until(lambda w: w.step("n3") is Step.HELD, ticks=1000)
    world.tick(2)
    assert [key for key in keys(world) if ":verify:" in key]
    world.admin_drains("n3")
    world.tick(2)
    assert not keys(world)


def test_an_open_trip_and_a_daemon_that_may_not_act_are_told() -> None:
    world = World(count=8)
    for number in range(1, 7):
        world.fault(f"n{number}", "XID79")
    world.tick(3)
    assert [key for key in keys(world) if key.startswith("breaker:fleet:")]
    world.ask(Verb.BREAKER_RESET, "")
    world.tick(2)
    assert not keys(world)
    world.identity = Identity("inst2", "other", 1)
    world.tick()
    assert [key for key in keys(world) if key.startswith("not_acting:inst2:1")]


def test_a_job_on_a_broken_node_is_told_as_long_as_it_is_there() -> None:
    world = World()
    world.run_job("n3")
    world.fault("n3", "XID79")
    world.run_until(lambda w: bool(w.last.standing), ticks=int(ACT.page_busy_after_s / 5) + 5)
    world.tick(3)
    assert keys(world) == [f"busy:{world.records.incidents['n3'].id}"]
    world.end_jobs("n3")
    world.tick(2)
    assert not keys(world)
