"""The prolog and a verdict that is stale.

Apart from the other cases, and last by name: a verdict is stale after two minutes, so the node has to be up
for as long, which it is by now where the whole tier runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.node_handle import Node
from tests.live.harness import clean, frozen_agent, lets_a_job_run, write_verdict
from tests.live.outside import Slurm, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


def _uptime_s(node: Node) -> float:
    return float(node.run(["cat", "/proc/uptime"]).stdout.split()[0])


def test_prolog_fails_open_on_a_stale_verdict(sandbox: Sandbox, slurm: Slurm) -> None:
    with frozen_agent(sandbox.node("n1")) as node:
        wait_until(lambda: _uptime_s(node) > 123, "the node is up long enough to have a stale verdict", 140)
        # As old as the boot.
        write_verdict(node, 'printf "v1 drain 0 $b XID79 gpu3 fell\\ngate yes\\n" >verdict')
        lets_a_job_run(slurm, node, "stale")
