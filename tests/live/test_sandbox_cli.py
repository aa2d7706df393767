"""The `sandbox` commands, run as a person would, on a real sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox import procs
from slurm_lifecycle.sandbox.cluster import Sandbox

pytestmark = pytest.mark.live

_IMPORT = "from slurm_lifecycle.cli.sandbox import sandbox"
_ENTRY = f"{_IMPORT}; sandbox(prog_name='sandbox')"


def _run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _ENTRY, *arguments],
        env={**os.environ, **extra},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_from_up_to_down_by_command(tmp_path: Path) -> None:
    name = f"cli{os.getpid()}"
    which = ("--name", name)
    try:
        up = _run("up", *which, "--nodes", "2", "--no-agent", "--boot-s", "0.5")
        assert up.returncode == 0, up.stderr
        assert f"export SLURM_CONF=/tmp/slc-sandbox-{name}/etc/slurm.conf" in up.stdout

        assert _run("inject", *which, "n2", "xid", "48", "--gpu", "7", "--clears", "never").returncode == 0
        seen = json.loads(_run("status", *which, "--json").stdout)
        assert [n["slurm_state"] for n in seen["nodes"]] == ["IDLE", "IDLE"]
        assert [f["key"] for f in seen["nodes"][1]["faults"]] == ["xid48 gpu7"]
        assert "faults: xid48 gpu7" in _run("status", *which).stdout
        assert "Xid (PCI:0000:db:00): 48," in _run("exec", *which, "n2", "--", "cat", "/dev/kmsg").stdout
        assert _run("exec", *which, "ctl", "srun", "-w", "n1", "hostname").stdout == "n1\n"

        hook = _run("reimage-hook", *which, "poll", NODE="n1", OP_ID="unknown")
        assert (hook.returncode, hook.stdout) == (0, "failed unknown operation unknown\n")
    finally:
        down = _run("down", *which)
    assert down.returncode == 0, down.stderr
    assert not Path(f"/tmp/slc-sandbox-{name}").exists()
    assert _run("down", *which).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inject", "n1", "xid"), "give its number"),
        (("inject", "n1", "melting"), "choose one of xid "),
        (("inject", "n99", "crash"), "this sandbox has n[1-8]"),
        (("inject", "n1", "gpu-lost", "--gpu", "8"), "GPUs 0 to 7"),
        (("reimage-hook", "start"), "set NODE in the environment"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_do(
    bare_sandbox: Sandbox, arguments: tuple[str, ...], words: str
) -> None:
    command, *rest = arguments
    done = _run(command, "--name", bare_sandbox.settings.name, *rest)
    assert done.returncode == 3
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("after_s", [0.35, 0.6, 0.9, 1.3])
def test_a_killed_up_is_cleaned_by_the_next(after_s: float) -> None:
    name = f"k{os.getpid()}"
    argv = [
        sys.executable,
        "-c",
        _ENTRY,
        "up",
        "--name",
        name,
        "--nodes",
        "3",
        "--no-agent",
        "--boot-s",
        "0.5",
    ]
    layout = Sandbox.create(name=name).layout
    try:
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
            time.sleep(after_s)
            first.kill()
        left = procs.started_under(layout.root)
        again = _run(*argv[3:])
        assert again.returncode == 0, again.stderr
        assert "already up" in again.stdout or [ref for ref in left if procs.is_alive(ref)] == []
        assert set(Sandbox.open(name).node_states().values()) == {"IDLE"}
    finally:
        assert _run("down", "--name", name).returncode == 0
    assert procs.started_under(layout.root) == []
    assert not layout.root.exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("after_s", [0.4, 1.0])
def test_an_up_that_is_ended_leaves_nothing(signum: signal.Signals, after_s: float) -> None:
    name = f"e{os.getpid()}"
    layout = Sandbox.create(name=name).layout
    # A test run in the background of a shell inherits an ignored SIGINT, which a terminal's `up` does not.
    heard = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {_ENTRY}"
    argv = [sys.executable, "-c", heard, "up", "--name", name, "--nodes", "2", "--boot-s", "3"]
    try:
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
            time.sleep(after_s)
            up.send_signal(signum)
            assert up.wait(timeout=60) != 0
        assert procs.started_under(layout.root) == []
        assert not layout.root.exists()
    finally:
        _run("down", "--name", name)


@pytest.mark.parametrize("text", ["{", "[]", '{"nodes": "x"}', '{"name": "../x"}', ""])
def test_damaged_settings_are_one_line_and_down_still_works(tmp_path: Path, text: str) -> None:
    root = tmp_path / "s"
    root.mkdir()
    (root / ".slurm-lifecycle-sandbox").touch()
    (root / "settings.json").write_text(text, encoding="ascii")
    done = _run("status", "--root", str(root))
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert _run("down", "--root", str(root)).returncode == 0
    assert not root.exists()


def test_commands_on_a_sandbox_that_is_not_there() -> None:
    done = _run("status", "--name", "nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "sandbox up --name nowhere" in done.stderr


def test_up_without_root_says_so() -> None:
    # Imported as root: the interpreter's own folder need not be readable for everybody.
    lines = "import os, slurm_lifecycle.sandbox.cluster; os.seteuid(65534)"
    argv = [sys.executable, "-c", f"{_IMPORT}; {lines}; sandbox()", "up", "--name", "nobodys"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert "needs root" in done.stderr
