"""The agent as a process: loop, signals, restart, lock, and a Slurm that misbehaves.

A well-behaved Slurm is tested by real daemons; here `scontrol` is a script, for its errors only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_lifecycle.node.__main__ import main
from slurm_lifecycle.node.checks.registry import ALL_CHECKS, CHECK_IDS
from slurm_lifecycle.node.config import AgentConfig, ConfigError, load_config, parse_config
from slurm_lifecycle.node.monitor import Monitor
from slurm_lifecycle.node.state import AgentState
from slurm_lifecycle.node.system import process_stat, uptime_s

from .conftest import ROOT, Node

_XID79 = "NVRM: Xid (PCI:0000:40:00): 79, GPU has fallen off the bus."
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(node: Node) -> Iterator[Start]:
    """Starts the agent and waits for its first verdict; what still runs at the end is killed."""
    agents: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        verdict = node.run_dir / "verdict"
        verdict.unlink(missing_ok=True)
        agents.append(node.start())
        _until(verdict.exists)
        return agents[-1]

    yield begin
    for agent in agents:
        if agent.poll() is None:
            agent.kill()
        agent.communicate(timeout=10)


def _until(holds: Callable[[], bool], timeout_s: float = 15.0) -> float:
    begin = time.monotonic()
    while True:
        # A file that the agent has not written yet.
        with contextlib.suppress(FileNotFoundError):
            if holds():
                return time.monotonic() - begin
        assert time.monotonic() - begin < timeout_s, "did not happen in time"
        time.sleep(0.01)


def _state(node: Node) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((node.run_dir / "agent_state.json").read_text(encoding="utf-8"))
    return state


def _notes(node: Node) -> str:
    report = node.run_dir / "report.json"  # written right after the verdict
    return " ".join(json.loads(report.read_text(encoding="utf-8"))["notes"]) if report.exists() else ""


def _scontrol(node: Node, body: str) -> None:
    script = node.root / "scontrol"
    script.write_text(f'#!/bin/sh\necho "$@" >>{node.root}/calls\n{body}\n', encoding="utf-8")
    script.chmod(0o755)
    node.configure(f"mode=drain\nscontrol={script}\nheartbeat_s=1")


def _calls(node: Node) -> list[str]:
    path = node.root / "calls"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


# ---------------------------------------------------------------- the loop


def test_kernel_line_becomes_a_verdict_in_well_under_a_second(node: Node, start: Start) -> None:
    start()
    assert node.verdict()[0] == "ok"
    node.log(_XID79)
    assert _until(lambda: node.verdict()[0] == "drain") < 1.0
    assert node.verdict() == ("drain", "XID79", "gpu3 fell off the bus")


def test_heartbeat_and_clean_stop(node: Node, start: Start) -> None:
    node.configure("channel=none\nheartbeat_s=1")
    agent = start()
    first = (node.run_dir / "verdict").stat().st_mtime_ns
    _until(lambda: (node.run_dir / "verdict").stat().st_mtime_ns != first, 5)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(timeout=5) == 0
    names = {path.name for path in node.run_dir.iterdir()}
    assert names == {"verdict", "report.json", "agent_state.json", "inventory.json", "agent.lock"}


def test_kill_at_any_moment_and_go_on(node: Node, start: Start) -> None:
    agent = start()
    node.log(_XID79)
    _until(lambda: node.verdict()[0] == "drain")
    _until(lambda: len(_state(node)["findings"]) == 1)
    occurrence = _state(node)["findings"][0]["occurrence"]
    seq = _state(node)["seq"]
    agent.kill()
    agent.wait(timeout=5)
    node.kmsg.write_text("", encoding="utf-8")  # the ring buffer has gone round
    start()
    assert node.verdict()[:2] == ("drain", "XID79")
    assert (_state(node)["findings"][0]["occurrence"], _state(node)["seq"]) == (occurrence, seq)


def test_the_log_is_not_read_twice(node: Node, start: Start) -> None:
    node.log("NVRM: Xid (PCI:0000:40:00): 119, pid=1, name=x, Timeout")
    agent = start()
    agent.terminate()
    agent.wait(timeout=5)
    assert _state(node)["kmsg_seq"] == 1
    state = _state(node)
    state["findings"] = []
    (node.run_dir / "agent_state.json").write_text(json.dumps(state), encoding="utf-8")
    start()
    assert node.verdict()[0] == "ok"


def test_one_agent_at_a_time(node: Node, start: Start) -> None:
    start()
    once = node.once()
    assert (once.returncode, "running already" in once.stderr) == (0, True)
    second = node.start()
    _, errors = second.communicate(timeout=10)
    assert (second.returncode, "running already" in errors) == (3, True)


def test_a_state_of_another_boot_counts_for_nothing(node: Node) -> None:
    node.run_dir.mkdir()
    old = {
        "boot_id": "other",
        "seq": 9,
        "announced": None,
        "drains": 3,
        "done": ["XID79-1"],
        "occurrences": 5,
    }
    old.update({"kmsg_seq": 99, "stuck": {}, "findings": []})
    (node.run_dir / "agent_state.json").write_text(json.dumps(old), encoding="utf-8")
    node.log(_XID79)
    assert node.once().returncode == 1
    assert (_state(node)["drains"], _state(node)["done"], _state(node)["seq"]) == (0, [], 1)


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
_STATE = {"boot_id": _BOOT_ID, "seq": 1, "announced": None, "drains": 0, "done": [], "occurrences": 0}
_STATE.update({"kmsg_seq": -1, "stuck": {}, "findings": []})


@pytest.mark.parametrize("name", ["agent_state.json", "inventory.json"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[" * 100000,
        json.dumps({"boot_id": _BOOT_ID}),
        json.dumps({**_STATE, "seq": float("inf")}),
        json.dumps({**_STATE, "announced": ["ok"]}),
        json.dumps({**_STATE, "stuck": {"nvml": [1, 2, 3]}}),
        json.dumps({"boot_id": _BOOT_ID, "gpus": [{"index": float("nan")}]}),
        "\ufffd\x00",
    ],
)
def test_a_damaged_file_does_not_keep_the_agent_from_starting(node: Node, name: str, text: str) -> None:
    node.run_dir.mkdir()
    (node.run_dir / name).write_text(text, encoding="utf-8")
    done = node.once()
    assert (done.returncode, node.verdict()[0], done.stderr) == (0, "ok", "")


def test_a_fault_of_our_own_is_not_taken_for_a_broken_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_arguments: object) -> AgentConfig:
        raise ZeroDivisionError

    monkeypatch.setattr("slurm_lifecycle.node.__main__.load_config", broken)
    assert main(["--once"]) == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_what_cannot_be_written_is_said_once_by_its_own_name(node: Node, start: Start) -> None:
    node.configure(f"channel=none\nheartbeat_s=1\ntextfile={node.root}/nowhere/slc.prom")
    agent = start()
    time.sleep(3.5)
    agent.terminate()
    _, errors = agent.communicate(timeout=10)
    assert [line for line in errors.splitlines() if "cannot write" in line] == [
        f"cannot write {node.root}/nowhere/slc.prom: No such file or directory"
    ]


def test_a_verdict_that_cannot_be_written_is_status_3(node: Node) -> None:
    (node.run_dir / "verdict").mkdir(parents=True)
    assert node.once().returncode == 3


def test_job_ends_are_bounded_and_metrics_written(node: Node) -> None:
    node.run_dir.mkdir()
    for number in range(230):
        (node.run_dir / f"job_end.{number}").write_text("x", encoding="ascii")
    node.configure(f"channel=none\ntextfile={node.root}/slc.prom")
    node.gpus.set_gpu(1, lost=1)
    node.once()
    assert len(list(node.run_dir.glob("job_end.*"))) == 200
    metrics = (node.root / "slc.prom").read_text(encoding="utf-8")
    assert 'slurm_lifecycle_node_finding{code="GPU_LOST",component="gpu1"} 2\n' in metrics
    assert "slurm_lifecycle_node_level 2\n" in metrics


def test_a_full_run_directory_does_not_end_the_agent(node: Node, start: Start) -> None:
    node.configure(f"channel=none\nheartbeat_s=1\ntextfile={node.root}/nowhere/slc.prom")
    agent = start()
    node.log(_XID79)
    _until(lambda: node.verdict()[0] == "drain")
    assert agent.poll() is None


@pytest.mark.parametrize("listener", ["closed pipe", "full disk", "no descriptor"])
def test_an_agent_that_nobody_listens_to_goes_on(node: Node, listener: str) -> None:
    _scontrol(node, "exit 1")  # gives it something to say
    redirect = {"closed pipe": "2>&1 | true", "full disk": "2>/dev/full", "no descriptor": "2>&-"}[listener]
    shell = f"exec {shlex.join(node.command())} {redirect}"
    with subprocess.Popen(["/bin/sh", "-c", shell], env=node.environment(), start_new_session=True) as agent:
        try:
            _until((node.run_dir / "verdict").exists)
            _until(lambda: len(_calls(node)) >= 2)
            node.log(_XID79)
            _until(lambda: node.verdict()[0] == "drain")
        finally:
            os.killpg(agent.pid, signal.SIGKILL)


def test_a_run_directory_that_was_removed_comes_back(node: Node, start: Start) -> None:
    node.configure("channel=none\nheartbeat_s=1")
    start()
    shutil.rmtree(node.run_dir)
    _until((node.run_dir / "verdict").exists, 5)
    node.log(_XID79)
    _until(lambda: (node.run_dir / "verdict").exists() and node.verdict()[0] == "drain")
    second = node.start()
    _, errors = second.communicate(timeout=10)
    assert (second.returncode, "running already" in errors) == (3, True)


def test_a_hung_probe_does_not_delay_the_kernel_log(node: Node, start: Start) -> None:
    node.configure("channel=none\nprobe_timeout_s=8\ninterval_s=1")
    start()
    node.gpus.update({"hang": 1})
    time.sleep(1.5)  # the next round is stuck in the driver by now
    node.log(_XID79)
    assert _until(lambda: node.verdict()[0] == "drain") < 1.0


@pytest.mark.live
def test_a_driver_call_in_uninterruptible_sleep(node: Node, frozen_dir: Path) -> None:
    node.configure("channel=none\nprobe_timeout_s=0.5")
    node.gpus.update({"hang": 1, "hang_file": str(frozen_dir / "x")})
    begin = time.monotonic()
    assert node.once().returncode == 1
    assert time.monotonic() - begin < 10
    assert node.verdict() == ("drain", "PROBE_DSTATE", "nvml probe stuck in the kernel")
    pid, _ticks = _state(node)["stuck"]["nvml"]
    assert node.once().returncode == 1
    assert _state(node)["stuck"]["nvml"][0] == pid, "a second probe was started beside the stuck one"
    assert "process" in json.dumps(_state(node)["findings"])


@pytest.mark.live
def test_a_driver_call_that_only_waited_for_a_slow_disk(node: Node, frozen_dir: Path, start: Start) -> None:
    node.configure("channel=none\nprobe_timeout_s=0.5\ninterval_s=6\nheartbeat_s=1")
    start()
    node.gpus.update({"hang": 1, "hang_file": str(frozen_dir / "x")})
    _until(lambda: "nvml" in _state(node)["stuck"])
    subprocess.run(["fsfreeze", "-u", str(frozen_dir)], check=True, timeout=30)
    node.gpus.update({"hang": None, "hang_file": None})
    seen = set()
    for _ in range(80):
        seen.add(node.verdict()[:2])
        time.sleep(0.1)
    subprocess.run(["fsfreeze", "-f", str(frozen_dir)], check=True, timeout=30)  # as the fixture left it
    assert seen == {("ok", "-")}
    assert "nvml" not in _state(node)["stuck"]


@pytest.mark.parametrize(("probe", "code"), [("nvml", "PROBE_DSTATE"), ("filesystems", "PROBE_HUNG")])
def test_a_probe_that_was_stuck_before_a_restart_holds_up_no_verdict(
    tmp_path: Path, probe: str, code: str
) -> None:
    state = AgentState("b0")
    with subprocess.Popen(["sleep", "60"]) as stuck:
        stat = process_stat(stuck.pid)
        assert stat is not None
        state.stuck[probe] = (stuck.pid, stat.started_ticks)
        config = AgentConfig(run_dir=str(tmp_path), kmsg=str(tmp_path / "kmsg"), filesystems=("/proc",))
        monitor = Monitor(config, state, confirm_after_s=0.1)
        end_s = time.monotonic() + 20
        while not (monitor.complete and monitor.settled):
            assert time.monotonic() < end_s
            monitor.advance(uptime_s())
            time.sleep(0.02)
        monitor.close()
        stuck.kill()
    assert code in {finding.sign.code for finding in monitor.tracker.findings}


@pytest.fixture
def frozen_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory on a frozen file system."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["truncate", "-s", "16M", str(image)], check=True, timeout=30)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, timeout=60)
    if subprocess.run(["mount", "-o", "loop", str(image), str(mount)], timeout=30, check=False).returncode:
        pytest.skip("cannot mount a loop device here")
    try:
        (mount / "x").write_text("", encoding="ascii")
        subprocess.run(["fsfreeze", "-f", str(mount)], check=True, timeout=30)
        try:
            yield mount
        finally:
            subprocess.run(["fsfreeze", "-u", str(mount)], check=True, timeout=30)
            time.sleep(0.3)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True, timeout=30)


# ---------------------------------------------------------------- a Slurm that misbehaves


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exit 1", "exit 1"),
        ("echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
        ("head -c 100000 /dev/urandom", "unreadable answer"),
        ("exit 0", "unreadable answer"),
        ("echo 'Node n1 not found'", "has no node 'n1': set node_name"),
        ("kill -9 $$", "exit -9"),
    ],
)
def test_errors_are_said_and_nothing_is_written(node: Node, start: Start, body: str, words: str) -> None:
    _scontrol(node, body)
    node.log(_XID79)
    start()
    _until(lambda: words in _notes(node))
    assert _calls(node)
    assert all(call.startswith("-o show node n1") for call in _calls(node))
    assert (_state(node)["drains"], _state(node)["done"]) == (0, [])


def test_a_slurm_that_hangs_does_not_hold_up_the_checks(node: Node, start: Start) -> None:
    _scontrol(node, "sleep 300")
    agent = start()
    _until(lambda: len(_calls(node)) == 1)
    node.log(_XID79)
    assert _until(lambda: node.verdict()[0] == "drain") < 1.0
    node.gpus.set_gpu(0, lost=1)
    agent.terminate()
    assert agent.wait(timeout=5) == 0


def test_retries_grow_apart(node: Node, start: Start) -> None:
    _scontrol(node, "exit 1")
    start()
    time.sleep(4)
    assert 1 <= len(_calls(node)) <= 5


def test_a_missing_scontrol_is_an_error_of_one_line(node: Node, start: Start) -> None:
    node.configure("scontrol=/nonexistent/scontrol\nheartbeat_s=1")
    agent = start()
    _until(lambda: "/nonexistent/scontrol" in _notes(node))
    assert agent.poll() is None


def test_a_run_that_is_over_before_its_checks_does_not_say_ok(node: Node) -> None:
    node.gpus.update({"hang": 1})
    done = node.once("--budget-s", "2")
    assert (done.returncode, node.verdict()[:2]) == (0, ("warn", "CHECK_FAILED"))
    node.gpus.update({"hang": None})
    node.once()
    assert node.verdict()[0] == "ok"


def test_once_is_bounded_when_slurm_hangs(node: Node) -> None:
    _scontrol(node, "sleep 300")
    begin = time.monotonic()
    done = node.once("--budget-s", "2")
    assert time.monotonic() - begin < 5
    assert (done.returncode, node.verdict()[0]) == (0, "ok")


@pytest.mark.parametrize("obstacle", ["observe", "stop file"])
def test_no_drain_is_asked_for(node: Node, obstacle: str) -> None:
    _scontrol(node, "exit 1")
    if obstacle == "observe":
        node.configure(f"mode=observe\nchannel=none\nscontrol={node.root}/scontrol")
    else:
        node.configure(f"mode=drain\nchannel=none\nscontrol={node.root}/scontrol")
        (node.root / "stop").touch()
    node.log(_XID79)
    done = node.once()
    assert done.returncode == 1
    assert "no drain for XID79" in done.stderr
    assert _calls(node) == []


# ---------------------------------------------------------------- configuration and imports


def test_defaults_need_no_file() -> None:
    assert parse_config("", CHECK_IDS) == AgentConfig()


def test_the_shipped_example_holds_the_defaults() -> None:
    assert load_config(str(ROOT / "etc" / "agent.conf"), CHECK_IDS) == AgentConfig()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[agent]\nmood=observe", "unknown key 'mood'"),
        ("[agnt]\nmode=observe", "unknown key 'mode' in [agnt]"),
        ("[agent]\nmode=act", "write one of: observe, drain"),
        ("[agent]\nheartbeat_s=120", "from 1 to 50"),
        ("[agent]\ninterval_s=nan", "write a number"),
        ("[checks]\nexpected_gpus=-1", "from 0 to 64"),
        ("[checks]\nfilesystems=tmp", "absolute paths"),
        ("[checks]\ndisable=gpu_cont", "unknown check 'gpu_cont'"),
        ("mode=drain", "no section"),
        ("[agent]\nmode", "mode"),
        ("[agent]\nmode=drain\nmode=drain", "already exists"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_status_2(node: Node, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        parse_config(text, CHECK_IDS)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    node.config.write_text(text, encoding="utf-8")
    done = node.once()
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_missing_file_is_an_error_only_where_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(str(tmp_path / "none"), CHECK_IDS)


def test_check_ids_are_unique() -> None:
    assert len(CHECK_IDS) == len(ALL_CHECKS)


def test_the_node_side_imports_the_standard_library_and_pynvml_only() -> None:
    script = (
        "import sys; before = set(sys.modules); import slurm_lifecycle.node.__main__\n"
        "names = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "own = {n for n in sys.modules if n.startswith('slurm_lifecycle.') and '.node' not in n}\n"
        "std = getattr(sys, 'stdlib_module_names', None)\n"
        "print(sorted(names - set(std or names) - {'slurm_lifecycle'}), sorted(own))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[] ['slurm_lifecycle.core', 'slurm_lifecycle.core.fault_catalog']"
