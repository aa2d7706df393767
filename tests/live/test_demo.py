"""The demonstration itself: ends well, fails when the suite does nothing, and cleans up whatever happens."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_lifecycle.sandbox import demo, demo_cluster, procs
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.scenarios import ADMIN_REASON, SCENARIOS
from slurm_lifecycle.sandbox.settings import default_root
from tests.live.outside import wait_until

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("_can_run")]


class _Quiet:
    def __enter__(self) -> _Quiet:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def say(self, text: str) -> None:
        return None

    def show(self, rows: object) -> None:
        return None


def _name(what: str) -> str:
    return f"d{os.getpid()}-{what}"


def _command(name: str, *options: str) -> list[str]:
    cli = "from slurm_lifecycle.cli.main import main; main()"
    return [sys.executable, "-c", cli, "sandbox", "demo", "--name", name, *options]


def _nothing_left(root: Path) -> None:
    assert not root.exists()
    assert procs.started_under(root) == []


@pytest.mark.timeout(900)
def test_all_scenarios_end_as_they_must_and_nothing_is_left() -> None:
    name = _name("all")
    try:
        done = subprocess.run(
            _command(name, "--json"), capture_output=True, text=True, timeout=800, check=False
        )
    finally:
        Sandbox.create(name=name).down()
    assert done.returncode == 0, done.stderr[-6000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert [one["name"] for one in found] == [scenario.name for scenario in SCENARIOS]
    for one in found:
        assert set(one) == {"name", "node", "expected", "observed", "ok", "seconds", "timeline"}
        assert one["ok"] is True
        assert one["timeline"]
        assert all(set(step) == {"t", "node", "state", "reason"} for step in one["timeline"])
    by_name = {one["name"]: one for one in found}
    # Three facts read off the timelines here, without the judgements.
    states = [step["state"] for step in by_name["xid79-busy"]["timeline"]]
    assert any("DRAIN" in state and ("ALLOCATED" in state or "MIXED" in state) for state in states)
    assert sum("REBOOT_ISSUED" in s and "REBOOT_ISSUED" not in b for b, s in itertools.pairwise(states)) == 1
    reasons = {step["reason"] for step in by_name["admin-drain-untouched"]["timeline"]}
    assert reasons <= {"", ADMIN_REASON}
    assert all("DRAIN" not in step["state"] for step in by_name["app-xid13"]["timeline"])
    _nothing_left(default_root(name))


def test_a_daemon_that_only_looks_on_fails_the_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo_cluster.daemon_config
    monkeypatch.setattr(
        demo_cluster, "daemon_config", lambda *a: real(*a).replace('mode = "act"', 'mode = "observe"')
    )
    name = _name("idle")
    outcome = demo.run_demo(_Quiet(), only=["driver-mismatch-reimage", "app-xid13"], name=name)
    ok = {one["name"]: one["ok"] for one in outcome.scenarios}
    # Nothing has to be done for an application's fault: that one ends as it must with a daemon that looks on.
    assert ok == {"driver-mismatch-reimage": False, "app-xid13": True}
    assert "never drained" in outcome.scenarios[0]["observed"]
    assert not outcome.ok
    _nothing_left(default_root(name))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_nothing_is_left(number: signal.Signals, tmp_path: Path) -> None:
    name = _name(f"sig{int(number)}")
    root = default_root(name)
    with (tmp_path / "out").open("wb") as out:
        child = subprocess.Popen(
            _command(name, "--only", "daemon-killed"), stdout=out, stderr=out, start_new_session=True
        )
        try:
            wait_until(lambda: b"daemon-killed" in (tmp_path / "out").read_bytes(), "that it plays")
            assert len(procs.started_under(root)) > 10
            child.send_signal(number)
            assert child.wait(60) == 128 + number
        finally:
            child.kill()
            child.wait()
            Sandbox.create(name=name).down()
    _nothing_left(root)


def test_after_a_kill_the_next_down_finds_everything(tmp_path: Path) -> None:
    name = _name("kill")
    root = default_root(name)
    with (tmp_path / "out").open("wb") as out:
        child = subprocess.Popen(_command(name, "--only", "app-xid13"), stdout=out, stderr=out)
        wait_until(lambda: b"app-xid13" in (tmp_path / "out").read_bytes(), "that it plays")
        child.kill()
        child.wait()
    assert procs.started_under(root)
    Sandbox.create(name=name).down()
    _nothing_left(root)


def test_unknown_scenario_and_running_sandbox_are_refused_in_one_line(sandbox: Sandbox) -> None:
    for options, word in (
        (["--only", "nonsense"], "choose from xid79-busy"),
        (["--name", sandbox.settings.name], "runs already"),
    ):
        done = subprocess.run(
            _command("unused", *options), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 3
        assert word in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert sandbox.is_up()
