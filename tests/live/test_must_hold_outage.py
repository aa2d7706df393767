"""slurmctld away, or answering nonsense: nothing is done, it is said once, and all goes on by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
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


def _said(daemon: Daemon, words: str, times: int) -> bool:
    return daemon.text().count(words) >= times


def test_an_answer_that_is_none(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    commands = {name: str(tmp_path / "bin" / name) for name in ("scontrol", "squeue")}
    with acting(slurm, tmp_path, site={"slurm": {**commands, "timeout_s": 1.0}}) as daemon:
        # Our drain, our mark and a job are there: no answer must look like nodes or jobs that are gone.
        job = slurm.start_job("n3")
        sandbox.inject("n3", "xid", code=79, gpu=3)
        wait_until(lambda: "waits for job" in daemon.run_cli("node", "why", "n3").stdout, "draining")
        boots = slurm.boots("n3")
        for number, mode in enumerate(("garbage", "empty", "fail", "hang"), start=1):
            writes = len(daemon.wrapper.writes())
            daemon.wrapper.spoil(mode)
            wait_until(partial(_said, daemon, "no action", number), f"{mode}: it says so")
            stays(lambda: daemon.alive and slurm.boots("n3") == boots, f"{mode}: nothing is done", 3)
            if mode == "hang":
                slurm.run("scancel", job)
            assert len(daemon.wrapper.writes()) == writes, mode
            daemon.wrapper.spoil("")
            wait_until(partial(_said, daemon, '"recovered"', number), f"{mode}: working again")
        assert not daemon.says("defect"), daemon.text()[-3000:]
        returned(slurm, daemon, "n3")
        assert slurm.boots("n3") == boots + 1


SPOILT = """\
#!/bin/sh
case $(cat /etc/slurm-lifecycle/mode) in
    garbage) printf 'NodeName=n6 Arch=\\001\\377 State=ID\\n\\n===='; exit 0 ;;
    fail) echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1 ;;
    hang) exec sleep 600 ;;
esac
exec scontrol "$@"
"""


def test_agent_outlives_a_slurm_that_answers_nonsense(sandbox: Sandbox, slurm: Slurm) -> None:
    node = sandbox.node("n6")
    config, mode = node.files.config / "agent.conf", node.files.config / "mode"
    before = config.read_text()
    script = node.files.config / "scontrol"
    script.write_text(SPOILT)
    script.chmod(0o755)
    mode.write_text("garbage")
    try:
        config.write_text(before.replace("[agent]", "[agent]\nscontrol = /etc/slurm-lifecycle/scontrol"))
        assert node.run(["sh", "-c", 'kill $(pgrep -o -f "slurm_lifecycle[.]node$")']).returncode == 0
        wait_until(lambda: _agents(slurm, sandbox)["n6"] != "none", "the agent is back")
        agent = _agents(slurm, sandbox)["n6"]
        node.inject("xid", code=79, gpu=3)
        for name in ("garbage", "fail", "hang"):
            mode.write_text(name)
            stays(lambda: _agents(slurm, sandbox)["n6"] == agent, f"{name}: the agent lives on", 3)
            assert slurm.node("n6").in_service
        verdict = node.run(["cat", "/run/slurm-lifecycle/verdict"]).stdout
        assert verdict.startswith("v1 drain ")
        mode.write_text("well")
        wait_until(lambda: slurm.node("n6").reason.startswith("slc:XID79"), "it drains when Slurm is back")
        assert _agents(slurm, sandbox)["n6"] == agent
    finally:
        config.write_text(before)
        node.run(["sh", "-c", 'kill $(pgrep -o -f "slurm_lifecycle[.]node$")'])


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
