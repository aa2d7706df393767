"""The sandbox with its real daemons: up, down, jobs, two side by side, and what `kill -9` leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox import procs
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.settings import SandboxError
from slurm_lifecycle.sandbox.state import State
from tests.live.helpers import exists, scontrol, state_of, wait_for

pytestmark = pytest.mark.live

MakeSandbox = Callable[..., Sandbox]


def _mounts_of(sandbox: Sandbox) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if str(sandbox.root) in line]


def test_up_brings_all_nodes_into_service_in_time_and_down_leaves_nothing(new_sandbox: MakeSandbox) -> None:
    # Nodes have this folder, and it may not show through to the machine that they are emulated on.
    before = Path("/etc/slurm-lifecycle").exists()
    sandbox = new_sandbox()
    began = time.monotonic()
    sandbox.up()
    # The aim is 15 s on two cores; doubled, because tests share them.
    assert time.monotonic() - began < 30
    assert sandbox.node_states() == {f"n{i}": "IDLE" for i in range(1, 9)}
    assert sandbox.is_up()
    pids = [ref.pid for ref in procs.started_under(sandbox.root)]
    assert len(pids) >= 8 * 3 + 2
    assert sandbox.node("n1").run(["ls", "/etc/slurm-lifecycle"]).stdout == "agent.conf\n"
    assert _mounts_of(sandbox) == []

    sandbox.down()
    assert not sandbox.root.exists()
    assert [pid for pid in pids if exists(pid)] == []
    assert procs.started_under(sandbox.root) == []
    assert _mounts_of(sandbox) == []
    assert Path("/etc/slurm-lifecycle").exists() == before
    sandbox.down()


def test_second_up_changes_nothing(bare_sandbox: Sandbox) -> None:
    before = State.load(bare_sandbox.layout).processes
    bare_sandbox.up()
    assert State.load(bare_sandbox.layout).processes == before


def test_job_runs_on_gpus_of_two_nodes(bare_sandbox: Sandbox) -> None:
    script = "echo $(hostname) $CUDA_VISIBLE_DEVICES $(cat /proc/sys/kernel/random/boot_id)"
    argv = [
        *bare_sandbox.controller_command(["srun", "-N2", "-w", "n3,n4", "--gres=gpu:4", "sh", "-c", script])
    ]
    done = bare_sandbox.client(argv, timeout_s=60)
    assert done.returncode == 0, done.stderr
    boots = {name: bare_sandbox.node(name).boot_id() for name in ("n3", "n4")}
    assert sorted(done.stdout.splitlines()) == [f"{n} 0,1,2,3 {boot}" for n, boot in sorted(boots.items())]


def test_job_sees_the_gpus_of_its_node(bare_sandbox: Sandbox, tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = ["sbatch", "--wait", "-w", "n5", "-o", str(out), "--wrap", "nvidia-smi -L"]
    assert bare_sandbox.client(argv, timeout_s=60).returncode == 0
    text = out.read_text()
    assert len(text.splitlines()) == 8
    assert "GPU-5a4db0c5-0005-" in text


def test_nothing_listens_beyond_loopback(bare_sandbox: Sandbox) -> None:
    job = subprocess.Popen(
        bare_sandbox.controller_command(["srun", "-w", "n6", "sleep", "3"]),
        env={**os.environ, **bare_sandbox.env()},
    )
    wait_for(lambda: state_of(bare_sandbox, "n6") == "MIXED", 30, "job on n6")
    listing = subprocess.run(["ss", "-Hltnup"], capture_output=True, text=True, check=True).stdout
    ours = {ref.pid for ref in procs.started_under(bare_sandbox.root)} | {job.pid}
    lines = [line for line in listing.splitlines() if ours & {int(p) for p in re.findall(r"pid=(\d+)", line)}]
    assert job.wait(60) == 0
    # slurmctld and eight slurmd; srun's own sockets come on top.
    assert len(lines) > 9
    assert [line for line in lines if not line.split()[4].startswith("127.0.0.1:")] == []


def test_two_sandboxes_side_by_side(bare_sandbox: Sandbox, new_sandbox: MakeSandbox) -> None:
    other = new_sandbox(nodes=2, gpus=2)
    other.up()
    assert set(State.load(other.layout).ports).isdisjoint(State.load(bare_sandbox.layout).ports)
    scontrol(other, "update", "nodename=n2", "state=drain", "reason=only here")
    assert state_of(other, "n2") == "IDLE+DRAIN"
    assert state_of(bare_sandbox, "n2") == "IDLE"
    other.down()
    assert bare_sandbox.is_up()
    assert set(bare_sandbox.node_states().values()) == {"IDLE"}


def test_up_cleans_what_kill_9_left(new_sandbox: MakeSandbox) -> None:
    sandbox = new_sandbox(nodes=2)
    sandbox.up()
    state = State.load(sandbox.layout)
    before = procs.started_under(sandbox.root)
    orphan = sandbox.node("n1").init()
    for name in ("slurmctld", "machine:n1"):
        assert procs.send(state.processes[name], signal.SIGKILL)
    wait_for(lambda: not sandbox.is_up(), 10, "the kill shows")
    assert procs.is_alive(orphan)
    with pytest.raises(SandboxError, match="does not answer"):
        sandbox.node("n1").describe()

    sandbox.up()
    assert sandbox.node_states() == {"n1": "IDLE", "n2": "IDLE"}
    assert [ref for ref in before if procs.is_alive(ref)] == []


def test_down_finds_processes_that_were_never_written_down(new_sandbox: MakeSandbox) -> None:
    sandbox = new_sandbox(nodes=1)
    sandbox.up()
    running = procs.started_under(sandbox.root)
    assert len(running) >= 4
    sandbox.layout.state.write_text("{ torn")
    sandbox.layout.node("n1").machine.unlink()
    sandbox.down()
    assert [ref for ref in running if procs.is_alive(ref)] == []
    assert not sandbox.root.exists()


def test_slurmctld_restart_keeps_the_cluster(new_sandbox: MakeSandbox) -> None:
    sandbox = new_sandbox(nodes=2)
    sandbox.up()
    scontrol(sandbox, "update", "nodename=n1", "state=drain", "reason=kept")
    # Not by KILL: slurmctld writes its state down some seconds later, and a drain of just now would be lost.
    sandbox.stop_slurmctld()
    assert not sandbox.is_up()
    sandbox.start_slurmctld()
    wait_for(lambda: state_of(sandbox, "n2") == "IDLE", 30, "n2 in service after the restart")
    assert "DRAIN" in state_of(sandbox, "n1")
    assert sandbox.is_up()


def test_down_touches_no_folder_that_is_not_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(SandboxError, match="not a sandbox"):
        Sandbox.create(tmp_path).down()
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(SandboxError, match="not a sandbox"):
        Sandbox.create(link).down()
    assert (tmp_path / "precious").read_text() == "x"


def test_root_too_long_for_a_socket_is_refused() -> None:
    with pytest.raises(SandboxError, match="too long for a socket"):
        Sandbox.create(Path("/tmp") / ("x" * 80))


def test_a_recycled_pid_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        ref = procs.ref_of(child.pid)
        assert ref is not None
        earlier = procs.ProcessRef(ref.pid, ref.start_ticks - 1, ref.boot_id)
        other_boot = procs.ProcessRef(ref.pid, ref.start_ticks, "another boot of the machine")
        for stranger in (earlier, other_boot):
            assert not procs.is_alive(stranger)
            assert not procs.send(stranger, signal.SIGKILL)
        assert child.poll() is None
        assert procs.send(ref, signal.SIGKILL)
        assert child.wait(5) == -signal.SIGKILL
