"""A probe that the kernel does not let die: the agent goes on, says so, and starts no second one."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.node_handle import Node
from tests.live.harness import clean
from tests.live.outside import Slurm, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="needs loop devices"),
]

MOUNT = "/run/stuck"
SLOW = f"{MOUNT}/d1/d2"
# An emulated node has a /dev of its own without them.
LOOP_DEVICES = """\
[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237
for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do [ -e /dev/loop$i ] || mknod /dev/loop$i b 7 $i; done
"""


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


def _on(node: Node, *argv: str) -> str:
    done = node.run(argv, timeout_s=60)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout.strip()


@dataclass
class StuckDisk:
    """A loop device whose every request hangs in the kernel while the file system of its image is frozen."""

    node: Node
    outer: Path
    device: str
    writer: subprocess.Popen[bytes] | None = None

    def stick(self) -> None:
        """Freezes the outer file system; one direct write then occupies the loop device's only worker."""
        _on(self.node, "fsfreeze", "--freeze", str(self.outer))
        # Behind the end of the file system on it, where it harms nothing.
        argv = ["dd", "if=/dev/zero", f"of={self.device}", "bs=4096", "seek=2047", "count=1", "oflag=direct"]
        command = self.node.enter_command([*argv, "conv=notrunc", "status=none"])
        self.writer = subprocess.Popen(command, env=self.node.environment())
        time.sleep(1)

    def loosen(self) -> None:
        """Lets everything that hangs go on."""
        if self.writer is not None:
            self.node.run(["fsfreeze", "--unfreeze", str(self.outer)])
            self.writer.wait(30)
            self.writer = None


@pytest.fixture
def disk(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> Iterator[tuple[Node, StuckDisk]]:
    """n5 with a disk mounted that can be made to hang; undone whatever the test did.

    All mounts are made on the node: what stands in the machine's own table is copied into every sandbox that
    starts meanwhile, and would then be held by it.
    """
    node = sandbox.node("n5")
    outer = Path("/run/outer")
    inner = outer / "inner.img"
    _on(node, "sh", "-c", LOOP_DEVICES)
    with contextlib.ExitStack() as undo:
        _on(node, "sh", "-c", f"truncate -s 32M {tmp_path}/outer.img && mkfs.ext4 -q -F {tmp_path}/outer.img")
        _on(node, "mkdir", "-p", str(outer), MOUNT)
        _on(node, "mount", "-o", "loop", f"{tmp_path}/outer.img", str(outer))
        undo.callback(_on, node, "umount", str(outer))
        _on(node, "sh", "-c", f"truncate -s 8M {inner} && mkfs.ext4 -q -F {inner} 7168k")
        device = _on(node, "losetup", "--find", "--show", str(inner))
        undo.callback(_on, node, "losetup", "--detach", device)
        # Mounted afresh, so that nothing of the path is in the cache and looking it up needs the device.
        _on(node, "sh", "-c", f"mount {device} {MOUNT} && mkdir -p {SLOW} && umount {MOUNT}")
        _on(node, "mount", device, MOUNT)
        undo.callback(_on, node, "umount", MOUNT)
        config = node.files.config / "agent.conf"
        before = config.read_text()
        undo.callback(_restart_agent, node)
        undo.callback(config.write_text, before)
        settings = before.replace("interval_s = 10", "interval_s = 2\nprobe_timeout_s = 2")
        config.write_text(settings.replace("[checks]", f"[checks]\nfilesystems = / {SLOW}"))
        stuck = StuckDisk(node, outer, device)
        undo.callback(stuck.loosen)
        yield node, stuck


def _restart_agent(node: Node) -> None:
    node.run(["sh", "-c", 'kill $(pgrep -o -f "slurm_lifecycle[.]node$")'])


def _in_d_state(node: Node) -> list[str]:
    """Pids of the agent's processes that sleep in the kernel, as the node sees them."""
    shown = node.run(["ps", "-eo", "pid=,stat=,args="]).stdout.splitlines()
    return [
        words[0] for words in map(str.split, shown) if words[1][0] == "D" and "slurm_lifecycle.node" in words
    ]


def _verdict(node: Node) -> list[str]:
    return node.run(["cat", "/run/slurm-lifecycle/verdict"]).stdout.split()


def test_probe_stuck_in_the_kernel(slurm: Slurm, disk: tuple[Node, StuckDisk]) -> None:
    node, stuck = disk
    stuck.stick()
    _restart_agent(node)
    wait_until(lambda: _in_d_state(node), "a probe in D state")
    wait_until(lambda: slurm.node("n5").reason.startswith("slc:PROBE_DSTATE"), "it is a finding, and drains")
    assert "PROBE_DSTATE" in slurm.node("n5").extra
    first = _in_d_state(node)
    assert len(first) == 1
    # Several rounds, a restart of the agent among them: never a second one, and the agent sees the rest.
    for round_number in range(2):
        until = time.monotonic() + 8
        while time.monotonic() < until:
            assert _in_d_state(node) == first
            time.sleep(0.3)
        if round_number == 0:
            _restart_agent(node)
    node.inject("xid", code=48, gpu=2)
    wait_until(
        lambda: "XID48" in node.run(["cat", "/run/slurm-lifecycle/report.json"]).stdout, "the agent goes on"
    )
    assert _in_d_state(node) == first
    assert _verdict(node)[:2] == ["v1", "drain"]

    stuck.loosen()
    wait_until(lambda: not _in_d_state(node), "the kernel lets it go")
