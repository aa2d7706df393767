"""SIGKILL in the middle of a write leaves all of a plan or nothing of it."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from slurm_lifecycle.store.opening import open_store
from tests.unit.store.store_values import NOW

_NODES = 300

_WRITER = f"""
import sys
from dataclasses import replace
from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Incident, Phase, Step
from slurm_lifecycle.core.plan import Event, NodeStatus, Plan
from slurm_lifecycle.store.opening import open_store

store = open_store(sys.argv[1], host="admin1", acting=True)
first = max((item.revision for item in store.load({NOW}).incidents.values()), default=0) + 1
print("ready", flush=True)
for revision in range(first, first + 100000):
    store.apply(
        Plan(
            incidents=tuple(
                Incident(f"n{{i}}.1", f"n{{i}}", FaultClass.REBOOT, "XID79", "gpu3", Step.DRAINING, 1.0, 1.0,
                         revision=revision)
                for i in range({_NODES})
            ),
            events=tuple(Event(float(revision), f"n{{i}}", "k", "x") for i in range({_NODES})),
            statuses=tuple(NodeStatus(f"n{{i}}", Phase.LEAVING, str(revision)) for i in range({_NODES})),
        ),
        float(revision),
    )
    print(revision, flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_all_or_nothing_after_kill(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "store.db"
    delay_s = random.Random(f"kill/{seed}").uniform(0.0, 0.15)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_WRITER), str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(delay_s)
        os.kill(writer.pid, signal.SIGKILL)
        told = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        assert writer.wait(30) == -signal.SIGKILL
    # The lock of the killed one is free, and what it was told was written is there.
    with open_store(path, host="admin1", acting=True) as store:
        incidents = store.load(NOW).incidents
        revisions = {item.revision for item in incidents.values()}
        events = {event.at for event in store.events(limit=10**7)}
        statuses = {status.why for status in store.node_statuses()}
        assert len(incidents) in (0, _NODES)
        assert len(revisions) <= 1
        newest = max(revisions, default=0)
        assert newest in ({told[-1], told[-1] + 1} if told else {0, 1})
        assert events == {float(revision) for revision in range(1, newest + 1)}
        assert len(store.events(limit=10**7)) == newest * _NODES
        assert statuses == ({str(newest)} if newest else set())
        assert store.identity().generation == 2
