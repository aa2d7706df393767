"""Emulated nodes: boots, crashes, power, faults, reimage, and how agent and hooks are wired."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable

import pytest

from slurm_lifecycle.sandbox import procs, reimage
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.node_handle import Node
from slurm_lifecycle.sandbox.settings import SandboxError
from tests.live.helpers import (
    back_in_service,
    exists,
    in_state_d,
    processes_in,
    scontrol,
    state_of,
    wait_for,
)

pytestmark = pytest.mark.live

_RECORD = re.compile(r"\d+,\d+,\d+,-;.*")
MakeSandbox = Callable[..., Sandbox]


def _kernel_log(node: Node) -> str:
    done = node.run(["cat", "/dev/kmsg"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reboot_by_slurm_gives_a_new_boot_and_keeps_the_drain(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n2")
    old = node.boot_id()
    scontrol(bare_sandbox, "update", "nodename=n2", "state=drain", "reason=slc:XID79 gpu3 fell off the bus")
    scontrol(bare_sandbox, "reboot", "n2")
    new = node.wait_booted(60, after=old)
    wait_for(lambda: state_of(bare_sandbox, "n2") == "IDLE+DRAIN", 30, "n2 drained after its reboot")
    assert "Reason=slc:XID79 gpu3" in scontrol(bare_sandbox, "-o", "show", "node", "n2")
    assert node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip() == new
    assert float(node.run(["cat", "/proc/uptime"]).stdout.split()[0]) < 60
    back_in_service(bare_sandbox, "n2")


def test_crash_leaves_no_process_of_the_node(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n7")
    old, init = node.boot_id(), node.init().pid
    job = bare_sandbox.client(
        ["sbatch", "-w", "n7", "-o", "/dev/null", "--no-requeue", "--wrap", "sleep 300"]
    )
    assert job.returncode == 0
    wait_for(lambda: state_of(bare_sandbox, "n7") == "MIXED", 30, "job on n7")
    wait_for(lambda: len(processes_in(init)) >= 4, 30, "the job's processes")
    pids = processes_in(init)

    bare_sandbox.inject("n7", "crash")
    assert [pid for pid in pids if exists(pid)] == []
    assert node.power() == "crashed"
    with pytest.raises(SandboxError, match="does not run"):
        node.run(["true"])
    node.power_on()
    assert node.wait_booted(30) != old
    # Slurm compares whole seconds: a job that began in the second of the new boot counts as running still.
    assert bare_sandbox.client(["scancel", "-w", "n7"]).returncode == 0
    back_in_service(bare_sandbox, "n7")


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
    back_in_service(bare_sandbox, "n8")


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
    back_in_service(bare_sandbox, "n1")


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


def test_a_boot_that_hangs_needs_the_power_cut(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n3")
    node.inject("boot-hang")
    node.inject("xid", code=79, gpu=0, clears="power")
    old = node.boot_id()
    node.reboot()
    wait_for(lambda: node.power() == "hung", 20, "the boot hangs")
    node.reboot()
    wait_for(lambda: node.power() == "hung", 20, "the boot hangs again")
    with pytest.raises(SandboxError, match="does not run"):
        node.init()
    node.power_off()
    node.power_on()
    assert node.wait_booted(30, after=old) != old
    assert node.describe()["faults"] == []
    back_in_service(bare_sandbox, "n3")


def test_a_process_stuck_in_the_kernel_does_not_stop_the_machine(new_sandbox: MakeSandbox) -> None:
    sandbox = new_sandbox(nodes=1)
    sandbox.up()
    node = sandbox.node("n1")
    steps = (
        "truncate -s 300M disk && mkfs.ext4 -q disk && mkdir mnt && mount -o loop disk mnt && fsfreeze -f mnt"
    )
    made = node.run(
        ["sh", "-c", f"cd /run/slurm-test 2>/dev/null || mkdir /run/slurm-test; cd /run/slurm-test; {steps}"]
    )
    if made.returncode != 0:
        pytest.skip(f"no loop mounts here: {made.stderr.strip()}")
    init, old = node.init().pid, node.boot_id()
    frozen = os.open(f"/proc/{init}/root/run/slurm-test/mnt", os.O_RDONLY)
    try:
        node.run(
            ["sh", "-c", "setsid dd if=/dev/zero of=/run/slurm-test/mnt/x bs=4k count=1 >/dev/null 2>&1 &"]
        )
        wait_for(lambda: in_state_d(init), 10, "the write hangs")
        began = time.monotonic()
        node.crash()
        assert time.monotonic() - began < 8
        node.power_on()
        assert node.wait_booted(30, after=old) != old
    finally:
        # FITHAW of linux/fs.h: _IOWR('X', 120, int)
        fcntl.ioctl(frozen, 0xC0045878, 0)
        os.close(frozen)


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
    back_in_service(bare_sandbox, "n4")


def test_agent_and_hooks_are_wired_as_on_a_site(sandbox: Sandbox) -> None:
    node = sandbox.node("n5")
    boot = node.boot_id()
    assert node.run(["cat", "/run/slurm-lifecycle/verdict"]).stdout.split()[:2] == ["v1", "ok"]
    assert f"Extra=slc1 {boot} " in scontrol(sandbox, "-o", "show", "node", "n5")
    settings = scontrol(sandbox, "show", "config")
    for hook in ("Prolog", "Epilog", "HealthCheckProgram", "RebootProgram"):
        found = re.search(rf"^{hook}\s+= (\S+)$", settings, re.M)
        assert found is not None
        assert os.access(found.group(1), os.X_OK), hook
    node.inject("xid", code=79, gpu=6)
    wait_for(lambda: state_of(sandbox, "n5") == "IDLE+DRAIN", 20, "the agent drains")
    assert "Reason=slc:XID79 gpu6 " in scontrol(sandbox, "-o", "show", "node", "n5")
    scontrol(sandbox, "reboot", "n5")
    node.wait_booted(60, after=boot)
    wait_for(lambda: state_of(sandbox, "n5") == "IDLE+DRAIN", 30, "n5 back")
    back_in_service(sandbox, "n5")


def test_health_check_stands_in_for_an_absent_agent(new_sandbox: MakeSandbox) -> None:
    sandbox = new_sandbox(nodes=1, health_interval_s=2)
    sandbox.up()
    node = sandbox.node("n1")

    def verdict() -> str:
        return node.run(["cat", "/run/slurm-lifecycle/verdict"]).stdout

    wait_for(lambda: verdict().startswith("v1 ok "), 20, "a verdict without an agent")
