"""A repair that came back late with its fault, and a node that dies under the words of an old drain."""

from dataclasses import replace

from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step
from slurm_lifecycle.core.plan import Drain, StartAttempt

from .world import ACT, World

STALE = "slc:DRIVER_MISMATCH kernel module and library differ"


def rungs_tried(world: World, name: str) -> list[Rung]:
    return [one.attempt.rung for one in world.sent(StartAttempt, name)]  # type: ignore[attr-defined]


def test_late_boot_that_mended_nothing_goes_up_the_ladder_and_is_not_checked_for_ever() -> None:
    world = World(reboot_ticks=10_000)
    world.fault("n3", "FS_READONLY", component="/", cured_by="reimage")
    world.run_until(lambda w: any(one.outcome is AttemptOutcome.AMBIGUOUS for one in w.records.attempts))
    # Nothing may be started yet, so that the node is back before the next rung.
    world.policy = replace(ACT, rungs=ACT.rungs - {"reimage"})
    world.tick(2)
    world.rebooting.clear()
    world._booted("n3", "reboot")
    world.tick(20)
    assert rungs_tried(world, "n3") == [Rung.REBOOT]
    incident = world.incident("n3")
    assert incident is not None
    assert incident.step is Step.REPAIRING
    revision = incident.revision
    world.tick(20)
    assert world.incident("n3").revision == revision  # type: ignore[union-attr]
    world.policy = ACT
    world.run_until(lambda w: not w.records.incidents)
    assert rungs_tried(world, "n3") == [Rung.REBOOT, Rung.REIMAGE]
    assert world.closed("n3").outcome == "returned"


def dies_under_a_stale_reason(world: World, tail: str) -> None:
    world.set_state("n3", "DOWN", "NOT_RESPONDING", drop=("IDLE",), reason=STALE + tail)


def test_node_that_slurm_takes_down_under_our_old_words_is_adopted_like_any_other() -> None:
    # 24.11 and 25.11 keep the reason of a drain that is over.
    for tail, code in (
        (" : Not responding", "NO_RESPONSE"),
        (" : reboot timed out", "BOOT_TIMEOUT"),
        ("", "NO_RESPONSE"),
    ):
        world = World()
        world.set_state("n3", reason=STALE)
        world.tick(2)
        assert world.last.settled
        dies_under_a_stale_reason(world, tail)
        # The time of the reason is that of the old drain.
        world.nodes["n3"] = replace(world.nodes["n3"], reason_at_s=world.now - 86400)
        world.tick(2)
        assert world.incident("n3") is None
        world.run_until(lambda w: bool(w.sent(Drain, "n3")), ticks=20)
        assert world.incident("n3").code == code  # type: ignore[union-attr]


def test_node_that_comes_back_by_itself_before_that_is_left_alone() -> None:
    world = World()
    dies_under_a_stale_reason(world, " : Not responding")
    world.tick(3)
    world.set_state("n3", "IDLE", drop=("DOWN", "NOT_RESPONDING"))
    world.tick(30)
    assert world.last.settled
    assert not world.sent(Drain, "n3")
    assert not world.records.findings
