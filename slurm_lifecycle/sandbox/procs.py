"""Processes, named by pid and start time: a recycled pid is never taken for one of ours."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT_VARIABLE = "SLC_SANDBOX_ROOT"
_KILL_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process for all time: its pid, its start time in clock ticks, and the machine's boot id."""

    pid: int
    start_ticks: int
    boot_id: str

    def to_dict(self) -> dict[str, object]:
        """As kept in a state file."""
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot_id": self.boot_id}

    @classmethod
    def from_dict(cls, raw: object) -> ProcessRef | None:
        """As read from a state file; None for anything else."""
        if not isinstance(raw, dict):
            return None
        pid, start, boot = raw.get("pid"), raw.get("start_ticks"), raw.get("boot_id")
        if isinstance(pid, int) and isinstance(start, int) and isinstance(boot, str):
            return cls(pid, start, boot)
        return None


def machine_boot_id() -> str:
    """Boot id of the machine that runs the sandbox."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name may hold blanks and parentheses: everything after the last one is well formed.
    return text[text.rfind(")") + 2 :].split()


def ref_of(pid: int) -> ProcessRef | None:
    """The reference of a running process; None when there is none with that pid."""
    fields = _stat_fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return ProcessRef(pid, int(fields[19]), machine_boot_id())


def is_alive(ref: ProcessRef) -> bool:
    """Whether that very process still runs (a zombie does not)."""
    fields = _stat_fields(ref.pid)
    if fields is None or fields[0] in "ZX" or int(fields[19]) != ref.start_ticks:
        return False
    return ref.boot_id == machine_boot_id()


def send(ref: ProcessRef, signum: int) -> bool:
    """Signals that very process. False when it is gone."""
    try:
        handle = os.pidfd_open(ref.pid)
    except OSError:
        return False
    try:
        # The handle was opened first, so that the pid cannot be recycled between this look and the signal.
        if not is_alive(ref):
            return False
        signal.pidfd_send_signal(handle, signum)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def wait_gone(refs: Iterable[ProcessRef], timeout_s: float) -> list[ProcessRef]:
    """Waits until the processes are gone; returns those that are still there."""
    left = list(refs)
    deadline = time.monotonic() + timeout_s
    while True:
        for ref in left:
            _reap(ref.pid)
        left = [ref for ref in left if is_alive(ref)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.02)


def _reap(pid: int) -> None:
    # A child of this very process stays a zombie until it is waited for; anybody else's is not ours to reap.
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)


def stop(refs: Sequence[ProcessRef], *, grace_s: float) -> list[ProcessRef]:
    """TERM, then KILL after the grace time. Returns what survived even that (a process in D state)."""
    for ref in refs:
        send(ref, signal.SIGTERM)
    left = wait_gone(refs, grace_s)
    for ref in left:
        send(ref, signal.SIGKILL)
    return wait_gone(left, _KILL_WAIT_S)


def started_under(root: Path) -> list[ProcessRef]:
    """Every process whose environment at its start named this sandbox's root.

    Finds what a killed `up` could not write down any more. Clients' shells are not among them, because the
    variable is given to daemons only.
    """
    wanted = f"{ROOT_VARIABLE}={root}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            ref = ref_of(int(entry.name))
            if ref is not None:
                found.append(ref)
    return found
