"""The sandbox with its real daemons: what runs, what a node's death means, and what is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox import procs, reimage
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.node_handle import Node
from slurm_lifecycle.sandbox.settings import SandboxError
from slurm_lifecycle.sandbox.state import State
from tests.live.conftest import wait_for

pytestmark = pytest.mark.live

_RECORD = re.compile(r"\d+,\d+,\d+,-;.*")
MakeSandbox = Callable[..., Sandbox]


def _scontrol(sandbox: Sandbox, *arguments: str) -> str:
    done = sandbox.client(["scontrol", *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout


def _state(sandbox: Sandbox, node: str) -> str:
    return sandbox.node_states().get(node, "")


def _back_in_service(sandbox: Sandbox, node: str) -> None:
    idle_since = time.monotonic()

    def settled() -> bool:
        nonlocal idle_since
        state = _state(sandbox, node)
        if state != "IDLE":
            idle_since = time.monotonic()
        # Again if need be: with ReturnToService=0 a boot behind Slurm's back ends DOWN when the node registers,
        # which is up to a second or two after its slurmd started.
        if "DOWN" in state or "DRAIN" in state:
            _scontrol(sandbox, "update", f"nodename={node}", "state=resume")
        return time.monotonic() - idle_since > 2.5

    wait_for(settled, 30, f"{node} in service")


def _processes_in(pid: int) -> set[int]:
    """Pids of everything in the PID namespace of a process."""
    wanted = Path(f"/proc/{pid}/ns/pid").readlink()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns" / "pid").readlink() == wanted:
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def _exists(pid: int) -> bool:
    return procs.ref_of(pid) is not None


def _mounts() -> list[str]:
    return sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _etc() -> list[str]:
    return sorted(entry.name for entry in Path("/etc").iterdir())


def _kernel_log(node: Node) -> str:
    done = node.run(["cat", "/dev/kmsg"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_up_brings_all_nodes_into_service_in_time_and_down_leaves_nothing(new_sandbox: MakeSandbox) -> None:
    mounts, etc = _mounts(), _etc()
    sandbox = new_sandbox()
    began = time.monotonic()
    sandbox.up()
    # The aim is 15 s on two cores; doubled, because tests share them.
    assert time.monotonic() - began < 30
    assert sandbox.node_states() == {f"n{i}": "IDLE" for i in range(1, 9)}
    assert sandbox.is_up()
    pids = [ref.pid for ref in procs.started_under(sandbox.root)]
    assert len(pids) >= 8 * 3 + 2

    sandbox.down()
    assert not sandbox.root.exists()
    assert [pid for pid in pids if _exists(pid)] == []
    assert procs.started_under(sandbox.root) == []
    assert (_mounts(), _etc()) == (mounts, etc)
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
    wait_for(lambda: _state(bare_sandbox, "n6") == "MIXED", 30, "job on n6")
    listing = subprocess.run(["ss", "-Hltnup"], capture_output=True, text=True, check=True).stdout
    ours = {ref.pid for ref in procs.started_under(bare_sandbox.root)} | {job.pid}
    lines = [line for line in listing.splitlines() if ours & {int(p) for p in re.findall(r"pid=(\d+)", line)}]
    assert job.wait(60) == 0
    # slurmctld and eight slurmd; srun's own sockets come on top.
    assert len(lines) > 9
    assert [line for line in lines if not line.split()[4].startswith("127.0.0.1:")] == []


def test_reboot_by_slurm_gives_a_new_boot_and_keeps_the_drain(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n2")
    old = node.boot_id()
    _scontrol(bare_sandbox, "update", "nodename=n2", "state=drain", "reason=slc:XID79 gpu3 fell off the bus")
    _scontrol(bare_sandbox, "reboot", "n2")
    new = node.wait_booted(60, after=old)
    wait_for(lambda: _state(bare_sandbox, "n2") == "IDLE+DRAIN", 30, "n2 drained after its reboot")
    assert "Reason=slc:XID79 gpu3" in _scontrol(bare_sandbox, "-o", "show", "node", "n2")
    assert node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip() == new
    assert float(node.run(["cat", "/proc/uptime"]).stdout.split()[0]) < 60
    _back_in_service(bare_sandbox, "n2")


def test_crash_leaves_no_process_of_the_node(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n7")
    old, init = node.boot_id(), node.init().pid
    job = bare_sandbox.client(
        ["sbatch", "-w", "n7", "-o", "/dev/null", "--no-requeue", "--wrap", "sleep 300"]
    )
    assert job.returncode == 0
    wait_for(lambda: _state(bare_sandbox, "n7") == "MIXED", 30, "job on n7")
    wait_for(lambda: len(_processes_in(init)) >= 4, 30, "the job's processes")
    pids = _processes_in(init)

    bare_sandbox.inject("n7", "crash")
    assert [pid for pid in pids if _exists(pid)] == []
    assert node.power() == "crashed"
    with pytest.raises(SandboxError, match="does not run"):
        node.run(["true"])
    node.power_on()
    assert node.wait_booted(30) != old
    # Slurm compares whole seconds: a job that began in the second of the new boot counts as running still.
    assert bare_sandbox.client(["scancel", "-w", "n7"]).returncode == 0
    _back_in_service(bare_sandbox, "n7")


def test_power_off_stays_dark_until_power_on(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n8")
    old, init = node.boot_id(), node.init()
    node.power_off()
    assert not procs.is_alive(init)
    time.sleep(2)
    assert node.power() == "off"
    with pytest.raises(SandboxError, match="would never show"):
        node.inject("gpu-lost", gpu=0, clears="reboot")
    node.power_on()
    assert node.wait_booted(30, after=old) != old
    _back_in_service(bare_sandbox, "n8")


def test_xid_shows_in_kernel_log_and_nvml_and_a_boot_clears_it(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n1")
    node.inject("xid", code=79, gpu=3)
    log = _kernel_log(node)
    assert all(_RECORD.fullmatch(line) for line in log.splitlines())
    assert re.search(r"^3,\d+,\d+,-;NVRM: Xid \(PCI:0000:5d:00\): 79, .*fallen off the bus\.$", log, re.M)
    assert node.run(["nvidia-smi", "-L"]).stdout.count("UUID") == 7
    reset = node.run(["nvidia-smi", "--gpu-reset", "-i", "3"])
    assert (reset.returncode, "GPU is lost" in reset.stdout) == (1, True)

    old = node.boot_id()
    node.reboot()
    node.wait_booted(30, after=old)
    assert "Xid" not in _kernel_log(node)
    assert node.run(["nvidia-smi", "-L"]).stdout.count("UUID") == 8
    _back_in_service(bare_sandbox, "n1")


def test_gpu_reset_heals_what_a_reset_heals(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n1")
    node.inject("gpu-reset-required", gpu=1)
    node.inject("remap-failure", gpu=1)
    node.inject("ecc-uncorrected", gpu=2)
    done = node.run(["nvidia-smi", "--gpu-reset", "-i", "1"])
    assert done.returncode == 0, done.stdout
    assert [f["key"] for f in node.describe()["faults"]] == ["remap-failure gpu1", "ecc-uncorrected gpu2"]
    assert "gpu.1.reset_required" not in node.files.nvml_state.read_text()
    node.clear()
    assert node.describe()["faults"] == []


def test_reimage_hook_installs_heals_software_and_not_hardware(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n4")
    node.inject("driver-mismatch")
    node.inject("remap-failure", gpu=5)
    assert node.run(["nvidia-smi", "-L"]).returncode == 18
    old = node.boot_id()
    node.reboot()
    node.wait_booted(30, after=old)
    assert node.run(["nvidia-smi", "-L"]).returncode == 18

    words = {"NODE": "n4", "IMAGE": "golden-2", "OP_ID": "op-1"}
    began = time.monotonic()
    assert reimage.hook(bare_sandbox, "start", words) == "started"
    assert time.monotonic() - began < 6
    assert reimage.hook(bare_sandbox, "poll", words) == "running"
    assert reimage.hook(bare_sandbox, "start", words) == "started"
    with pytest.raises(SandboxError, match="being reimaged already"):
        reimage.hook(bare_sandbox, "start", {**words, "OP_ID": "op-2"})
    wait_for(lambda: reimage.hook(bare_sandbox, "poll", words) == "done", 30, "reimage done")
    boots = node.describe()["boots"]
    assert reimage.hook(bare_sandbox, "start", words) == "started"
    seen = node.describe()
    assert (seen["image"], seen["boots"], seen["power"]) == ("golden-2", boots, "on")
    assert [f["key"] for f in seen["faults"]] == ["remap-failure gpu5"]
    assert node.run(["nvidia-smi", "-L"]).returncode == 0
    assert reimage.hook(bare_sandbox, "poll", {**words, "OP_ID": "op-9"}).startswith("failed ")
    node.clear()
    _back_in_service(bare_sandbox, "n4")


def test_two_sandboxes_side_by_side(bare_sandbox: Sandbox, new_sandbox: MakeSandbox) -> None:
    other = new_sandbox(nodes=2, gpus=2)
    other.up()
    assert set(State.load(other.layout).ports).isdisjoint(State.load(bare_sandbox.layout).ports)
    _scontrol(other, "update", "nodename=n2", "state=drain", "reason=only here")
    assert _state(other, "n2") == "IDLE+DRAIN"
    assert _state(bare_sandbox, "n2") == "IDLE"
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
    _scontrol(sandbox, "update", "nodename=n1", "state=drain", "reason=kept")
    # Not by KILL: slurmctld writes its state down some seconds later, and a drain of just now would be lost.
    sandbox.stop_slurmctld()
    assert not sandbox.is_up()
    sandbox.start_slurmctld()
    wait_for(lambda: _state(sandbox, "n2") == "IDLE", 30, "n2 in service after the restart")
    assert "DRAIN" in _state(sandbox, "n1")
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
