"""A reboot after which a GPU is missing: Slurm shows it as under way for ever, and yet it is over."""

from dataclasses import dataclass

import pytest

from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step
from slurm_lifecycle.core.plan import StartAttempt

from .world import World

LESS = "gres/gpu count reported lower than configured (7 < 8)"


@dataclass
class OneLess(World):
    """Every boot comes up with a GPU less; as measured, its reason stays or is Slurm's own by then."""

    reason: str | None = None

    def _booted(self, name: str, rung: str) -> None:
        super()._booted(name, rung)
        self.set_state(name, "DOWN", "REBOOT_ISSUED", "INVALID_REG", drop=("IDLE",), reason=self.reason)


@pytest.mark.parametrize("reason", [None, LESS])
def test_the_boot_counts_and_the_ladder_goes_on(reason: str | None) -> None:
    world = OneLess(reason=reason)
    world.fault("n3", "GPU_COUNT", cured_by="rma")
    world.agent_drains("n3")
    world.run_until(lambda w: w.step("n3") is Step.AWAITING_PERSON)
    rungs = [one.attempt.rung for one in world.sent(StartAttempt, "n3")]  # type: ignore[attr-defined]
    assert rungs == [Rung.REBOOT, Rung.RMA]
    reboot = next(one for one in world.records.attempts if one.rung is Rung.REBOOT)
    assert reboot.outcome is AttemptOutcome.SUCCEEDED


def test_a_reboot_that_is_under_way_on_such_a_node_is_waited_for() -> None:
    world = World(reboot_ticks=6)
    world.fault("n3", "GPU_COUNT", cured_by="reboot")
    world.set_state("n3", "INVALID_REG")
    world.agent_drains("n3")
    world.run_until(lambda w: bool(w.sent(StartAttempt, "n3")))
    world.tick(4)
    (attempt,) = world.records.attempts
    assert attempt.outcome is None
    assert "n3" in world.rebooting
