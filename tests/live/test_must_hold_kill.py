"""The daemon killed around each of its effects: the next goes on, with one reboot and a node in service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import Daemon, acting, clean, returned
from tests.live.outside import Observer, Seen, Slurm, wait_until

pytestmark = pytest.mark.live

_KILL = "kill -KILL $PPID"
# Where the daemon dies, by the call that is under way: before it reaches slurmctld, or right after.
BOUNDARIES = (
    ("create reservation", "after"),
    (" reboot n2 ", "before"),
    (" reboot n2 ", "after"),
    (";verifying]", "after"),
    ("State=UNDRAIN", "before"),
    ("State=UNDRAIN", "after"),
    ("delete ReservationName", "before"),
    ("delete ReservationName", "after"),
)


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


def _arm(daemon: Daemon, pattern: str, side: str) -> None:
    # Before: the call is never made, as if the daemon had died on its way to it.
    text = f"{_KILL}; exit 1" if side == "before" else _KILL
    daemon.wrapper.on(pattern, **{side: text})


def _never_unguarded(history: list[Seen]) -> bool:
    """From the drain on, the node was never open to jobs before its last state: drained or in the fence."""
    drained = next(i for i, seen in enumerate(history) if "DRAIN" in seen.state)
    last_out = max(i for i, seen in enumerate(history) if "DRAIN" in seen.state)
    return all(seen.state & {"DRAIN", "MAINTENANCE"} for seen in history[drained:last_out])


@pytest.mark.parametrize(("pattern", "side"), BOUNDARIES)
def test_next_daemon_goes_on(sandbox: Sandbox, slurm: Slurm, tmp_path: Path, pattern: str, side: str) -> None:
    boots = slurm.boots("n2")
    # A reboot that was never sent shows only at the attempt's deadline: short here.
    policy = {"paths": {"reboot": [{"rung": "reboot", "attempts": 2, "deadline": "20s"}]}}
    with Observer(slurm) as seen, acting(slurm, tmp_path, policy=policy) as daemon:
        _arm(daemon, pattern, side)
        sandbox.inject("n2", "xid", code=79, gpu=3)
        wait_until(lambda: not daemon.alive, f"killed at {pattern}: {daemon.text()[-2000:]}")
        assert daemon.wrapper.hit
        daemon.start()
        returned(slurm, daemon, "n2")
    assert slurm.boots("n2") == boots + 1
    assert _never_unguarded(seen.history["n2"])
    assert slurm.node("n2").comment == ""
    assert slurm.fences() == {}
