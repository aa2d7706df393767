"""The contract of the Slurm port and the measured facts, held against the simulated Slurm of each release."""

import pytest

from slurm_lifecycle.simulation.slurmctld import RELEASES
from tests.contract.rig import Rig
from tests.contract.sim_rig import SimRig
from tests.contract.slurm_contract import SlurmContract
from tests.contract.slurm_facts import SlurmFacts


@pytest.fixture(params=list(RELEASES))
def rig(request: pytest.FixtureRequest) -> SimRig:
    simulated = SimRig(str(request.param))
    whole: Rig = simulated
    assert whole is simulated
    return simulated


class TestSimSlurm(SlurmContract):
    """Every promise of the port."""


class TestSimSlurmFacts(SlurmFacts):
    """Every release does what was measured on it."""
