"""Emulated machines as a BMC handles them: shutdown, network boot, the image's marker, a replaced GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from slurm_lifecycle.sandbox import procs, reimage
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.node_handle import Node
from tests.live.helpers import back_in_service, exists, processes_in, wait_for

pytestmark = pytest.mark.live

MARKER = "/etc/slurm-lifecycle/image.json"
MakeSandbox = Callable[..., Sandbox]


def _is_off(node: Node) -> bool:
    return node.power() == "off"


def _marker_on_node(node: Node) -> dict[str, str]:
    done = node.run(["cat", MARKER])
    found: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def _off(node: Node) -> str:
    """Switches it off as an operating system does; returns the boot id before."""
    old = node.boot_id()
    node.shutdown()
    wait_for(lambda: _is_off(node), 20, "it shuts down")
    return old


def test_a_shutdown_ends_every_process_and_the_machine_is_off(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n1")
    pids = processes_in(node.init().pid)
    # A service that does not end by itself is killed.
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    node.run(["sh", "-c", f'setsid sh -c "{stubborn}" >/dev/null 2>&1 &'])
    old = _off(node)
    assert [pid for pid in pids if exists(pid)] == []
    node.shutdown()
    assert _is_off(node)
    node.power_on()
    assert node.wait_booted(30, after=old) != old
    assert node.describe()["pressed"] == {"power_on": 1, "power_off": 0, "shutdown": 2, "mains": 0}
    back_in_service(bare_sandbox, "n1")


def test_an_operating_system_may_be_deaf_or_hang(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n2")
    node.inject("os-deaf")
    init = node.init()
    node.shutdown()
    time.sleep(2)
    assert procs.is_alive(init)
    node.inject("boot-hang")
    node.reboot()
    wait_for(lambda: node.power() == "hung", 20, "the boot hangs")
    node.shutdown()
    assert node.power() == "hung"
    node.cut_mains()
    assert (node.power(), procs.is_alive(init)) == ("off", False)
    node.clear("os-deaf")
    node.power_on()
    node.wait_booted(30)
    back_in_service(bare_sandbox, "n2")


def test_a_network_boot_installs_what_is_staged_and_once_only(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n3")
    words = {"NODE": "n3", "IMAGE": "golden-3", "OP_ID": "op-net"}
    node.inject("driver-mismatch")
    assert (_marker_on_node(node), node.run(["nvidia-smi", "-L"]).returncode) == ({}, 18)
    assert reimage.hook(bare_sandbox, "stage", words) == "staged"
    assert reimage.hook(bare_sandbox, "stage", words) == "staged"
    assert json.loads(node.files.netboot.read_text()) == {"image": "golden-3", "op_id": "op-net"}

    # From its disk nothing changes, whatever is staged.
    old = _off(node)
    node.power_on()
    old = node.wait_booted(30, after=old)
    assert (node.describe()["image"], reimage.hook(bare_sandbox, "poll", words)) == ("base", "running")

    _off(node)
    node.power_on("network")
    wait_for(lambda: node.power() == "installing", 20, "it installs")
    node.wait_booted(30, after=old)
    assert reimage.hook(bare_sandbox, "poll", words) == "done"
    marker = _marker_on_node(node)
    assert (marker["image"], marker["op_id"], node.marker()) == ("golden-3", "op-net", marker)
    assert node.run(["nvidia-smi", "-L"]).returncode == 0
    assert node.describe()["staged"] == {}

    # Nothing is staged any more: a network boot falls through to the disk.
    old = _off(node)
    node.power_on("network")
    node.wait_booted(30, after=old)
    assert _marker_on_node(node) == marker
    back_in_service(bare_sandbox, "n3")


def test_what_is_staged_can_be_taken_back(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n4")
    first = {"NODE": "n4", "IMAGE": "golden-3", "OP_ID": "op-a"}
    second = {**first, "OP_ID": "op-b"}
    for words in (first, second):
        reimage.hook(bare_sandbox, "stage", words)
    assert reimage.hook(bare_sandbox, "poll", first) == "failed another operation was staged"
    # That of another operation stays.
    assert reimage.hook(bare_sandbox, "abort", first) == "aborted"
    assert node.describe()["staged"]["op_id"] == "op-b"
    for _ in range(2):
        assert reimage.hook(bare_sandbox, "abort", second) == "aborted"
    assert (node.describe()["staged"], node.files.netboot.exists()) == ({}, False)
    assert reimage.hook(bare_sandbox, "poll", second) == "failed taken back"


def test_a_machine_cut_off_in_its_installation_boots_nothing_until_it_is_installed(
    new_sandbox: MakeSandbox,
) -> None:
    sandbox = new_sandbox(nodes=1, install_s=60.0)
    sandbox.up()
    node = sandbox.node("n1")
    words = {"NODE": "n1", "IMAGE": "golden-3", "OP_ID": "op-1"}
    reimage.hook(sandbox, "start", words)
    wait_for(lambda: node.power() == "installing", 20, "it installs")
    node.power_off()
    assert reimage.hook(sandbox, "poll", words).startswith("failed the machine went down")
    node.power_on()
    wait_for(lambda: node.power() == "hung", 20, "nothing to boot from")
    assert (node.describe()["image"], node.marker()) == ("", {})


def test_a_replaced_gpu_has_another_serial_and_no_fault(bare_sandbox: Sandbox) -> None:
    node = bare_sandbox.node("n5")
    old, before = node.boot_id(), node.run(["nvidia-smi", "-L"]).stdout.splitlines()
    node.inject("remap-failure", gpu=5)
    node.inject("remap-failure", gpu=6)
    node.replace_gpu(5)
    node.wait_booted(30, after=old)
    after = node.run(["nvidia-smi", "-L"]).stdout.splitlines()
    assert [i for i in range(8) if before[i] != after[i]] == [5]
    assert [fault["key"] for fault in node.describe()["faults"]] == ["remap-failure gpu6"]
    node.clear()
    back_in_service(bare_sandbox, "n5")


def test_a_node_tells_its_machines_serial_number(bare_sandbox: Sandbox) -> None:
    done = bare_sandbox.node("n6").run(["cat", "/sys/class/dmi/id/product_serial"])
    assert done.stdout.strip() == bare_sandbox.node("n6").describe()["serial"] == "SLC000006"
