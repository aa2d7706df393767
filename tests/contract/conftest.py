"""The real cluster that the contract tests share."""

from collections.abc import Iterator

import pytest

from tests.contract.rig import Timing
from tests.contract.tiny_cluster import TinyCluster, missing


@pytest.fixture(scope="session")
def tiny_cluster() -> Iterator[TinyCluster]:
    """One cluster a session; tests put it back into service."""
    why = missing()
    if why:
        pytest.skip(f"a real Slurm {why}")
    cluster = TinyCluster()
    try:
        cluster.start(Timing())
        yield cluster
    finally:
        cluster.stop()
