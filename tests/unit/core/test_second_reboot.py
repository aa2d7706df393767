"""A second reboot in one case: 22.05 writes over a reason that tells of the first."""

from dataclasses import dataclass, replace

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.formats import tells_of_a_reboot
from slurm_lifecycle.core.model import Attempt, Rung, Step
from slurm_lifecycle.core.plan import Drain, StartAttempt
from slurm_lifecycle.core.policy import RungRule

from .world import ACT, World

TWICE = replace(
    ACT,
    paths={
        **ACT.paths,
        FaultClass.REBOOT: (RungRule(Rung.REBOOT, 2, 1800.0), RungRule(Rung.RMA, 1, 3600.0)),
    },
)


@dataclass
class Writes(World):
    """Slurm 22.05: what would be added twice takes the place of the whole."""

    def _attempt(self, attempt: Attempt) -> None:
        before = self.nodes[attempt.node].reason
        super()._attempt(attempt)
        if attempt.rung is Rung.REBOOT and tells_of_a_reboot(before):
            self.set_state(attempt.node, reason="reboot issued")


def test_our_text_is_written_anew_before_the_second_reboot() -> None:
    world = Writes(policy=TWICE)
    world.fault("n3", "XID79", cured_by="rma")
    world.agent_drains("n3")
    world.run_until(lambda w: w.step("n3") is Step.AWAITING_PERSON)
    rungs = [one.attempt.rung for one in world.sent(StartAttempt, "n3")]  # type: ignore[attr-defined]
    assert rungs == [Rung.REBOOT, Rung.REBOOT, Rung.RMA]
    assert len(world.sent(Drain, "n3")) == 1
    assert world.nodes["n3"].reason.startswith("slc:XID79 ")


@pytest.mark.parametrize(
    ("reason", "tells"),
    [
        ("slc:XID79 gpu3 fell off the bus", False),
        ("slc:XID79 gpu3 fell off the bus : Not responding", False),
        ("slc:XID79 gpu3 fell off the bus : reboot issued", True),
        ("slc:XID79 gpu3 fell off the bus : reboot issued : reboot timed out", True),
    ],
)
def test_which_reasons_tell_of_a_reboot(reason: str, tells: bool) -> None:
    assert tells_of_a_reboot(reason) is tells
