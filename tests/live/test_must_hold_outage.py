"""slurmctld away, or answering nonsense: nothing is done, it is said once, and all goes on by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import Daemon, acting, clean, returned
from tests.live.outside import Slurm, stays, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


def _agents(slurm: Slurm, sandbox: Sandbox) -> dict[str, str]:
    """Pid and start time of each node's agent, as its lock tells who holds it."""
    found = {}
    for node in sandbox.nodes():
        done = node.run(
            ["sh", "-c", 'pgrep -f "slurm_lifecycle[.]node$" | head -n1 | xargs -I@ cat /proc/@/stat']
        )
        words = done.stdout.rpartition(")")[2].split()
        found[node.name] = words[19] if len(words) > 19 else "none"
    return found


def test_slurmctld_away_for_a_while(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    with acting(slurm, tmp_path) as daemon:
        agents = _agents(slurm, sandbox)
        assert "none" not in agents.values()
        sandbox.stop_slurmctld()
        try:
            wait_until(lambda: daemon.says('"problem"', "no action", "read nodes"), "the daemon says so")
            writes = len(daemon.wrapper.writes())
            sandbox.inject("n2", "xid", code=79, gpu=3)
            problems = daemon.text().count('"problem"')
            stays(lambda: daemon.alive, "the daemon lives on", 8)
            assert len(daemon.wrapper.writes()) == writes
            # Said when it began, not every tick; a second wording may follow when the failure changes.
            assert daemon.text().count('"problem"') <= problems + 2
            assert _agents(slurm, sandbox) == agents
            verdict = sandbox.node("n2").run(["cat", "/run/slurm-lifecycle/verdict"]).stdout
            assert verdict.startswith("v1 drain ")
        finally:
            sandbox.start_slurmctld()
        wait_until(lambda: daemon.says('"recovered"'), "working again")
        boots = slurm.boots("n2")
        returned(slurm, daemon, "n2")
        assert slurm.boots("n2") == boots + 1
        assert {n: a for n, a in _agents(slurm, sandbox).items() if n != "n2"} == {
            n: a for n, a in agents.items() if n != "n2"
        }


@pytest.mark.parametrize("mode", ["garbage", "empty", "fail", "hang"])
def test_an_answer_that_is_none(sandbox: Sandbox, slurm: Slurm, tmp_path: Path, mode: str) -> None:
    site = {
        "slurm": {
            "scontrol": str(tmp_path / "bin" / "scontrol"),
            "squeue": str(tmp_path / "bin" / "squeue"),
            "timeout_s": 1.0,
        }
    }
    with acting(slurm, tmp_path, site=site) as daemon:
        # Our drain and a fence are there: an empty answer must not look like nodes and fences that are gone.
        job = slurm.start_job("n3")
        sandbox.inject("n3", "xid", code=79, gpu=3)
        wait_until(lambda: "waits for job" in daemon.run_cli("node", "why", "n3").stdout, "draining")
        daemon.wrapper.spoil(mode)
        wait_until(lambda: daemon.says('"problem"', "no action"), f"it says so: {daemon.text()[-2000:]}")
        writes, boots = len(daemon.wrapper.writes()), slurm.boots("n3")
        slurm.run("scancel", job)
        stays(lambda: daemon.alive and slurm.boots("n3") == boots, "nothing is done", 5)
        assert len(daemon.wrapper.writes()) == writes
        assert not daemon.says('"n3"', "closed")
        assert not daemon.says("defect")
        daemon.wrapper.spoil("")
        wait_until(lambda: daemon.says('"recovered"'), "working again")
        returned(slurm, daemon, "n3")


def test_squeue_alone_answers_nothing(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    """Jobs that cannot be read are not jobs that are gone."""
    broken = tmp_path / "squeue-broken"
    shutil.copy(shutil.which("true") or "/bin/true", broken)
    with acting(slurm, tmp_path) as daemon:
        job = slurm.start_job("n4")
        slurm.scontrol("suspend", job)
        sandbox.inject("n4", "xid", code=79, gpu=3)
        wait_until(lambda: "waits for job" in daemon.run_cli("node", "why", "n4").stdout, "draining")
        boots = slurm.boots("n4")
        _swap_squeue(daemon, broken)
        wait_until(lambda: daemon.says('"problem"', "no action", "jobs"), f"said: {daemon.text()[-2000:]}")
        stays(
            lambda: slurm.boots("n4") == boots and "REBOOT_REQUESTED" not in slurm.node("n4").state,
            "the suspended job's node is not rebooted",
            6,
        )
        slurm.scontrol("resume", job)
        slurm.run("scancel", job)


def _swap_squeue(daemon: Daemon, other: Path) -> None:
    other.replace(daemon.wrapper.folder / "squeue")
