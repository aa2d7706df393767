"""What live tests share: asking Slurm, waiting, looking at processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from slurm_lifecycle.sandbox import procs
from slurm_lifecycle.sandbox.cluster import Sandbox


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Waits until the condition holds; fails the test with `what` when it does not."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)


def scontrol(sandbox: Sandbox, *arguments: str) -> str:
    done = sandbox.client(["scontrol", *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout


def state_of(sandbox: Sandbox, node: str) -> str:
    return sandbox.node_states().get(node, "")


def back_in_service(sandbox: Sandbox, node: str) -> None:
    idle_since = time.monotonic()

    def settled() -> bool:
        nonlocal idle_since
        state = state_of(sandbox, node)
        if state != "IDLE":
            idle_since = time.monotonic()
        # Again if need be: with ReturnToService=0 a boot behind Slurm's back ends DOWN when the node
        # registers, which is up to a second or two after its slurmd started.
        if "DOWN" in state or "DRAIN" in state:
            scontrol(sandbox, "update", f"nodename={node}", "state=resume")
        return time.monotonic() - idle_since > 2.5

    wait_for(settled, 30, f"{node} in service")


def processes_in(pid: int) -> set[int]:
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


def in_state_d(init: int) -> bool:
    stats = [Path(f"/proc/{pid}/stat") for pid in processes_in(init)]
    return any(stat.read_text().rpartition(")")[2].split()[0] == "D" for stat in stats)


def exists(pid: int) -> bool:
    return procs.ref_of(pid) is not None
