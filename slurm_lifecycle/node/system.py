"""The few facts about the running machine that the agent needs, and files that no reader sees half written.

Boots are told apart by the kernel's boot id and ages by its uptime: neither moves when the clock is set.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import NamedTuple, Optional

# What a damaged file of our own may raise while it is read: the agent then begins without it.
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"


class ProcessStat(NamedTuple):
    """What `/proc/PID/stat` says of a process: its state letter, and its start time to tell recycled ids
    apart.
    """

    state: str
    started_ticks: int


def boot_id() -> str:
    """The kernel's id of the present boot."""
    with open(BOOT_ID_PATH, encoding="ascii") as file:
        return file.read().strip()


def uptime_s() -> float:
    """Seconds since the kernel started, the same clock as `/proc/uptime`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def node_name(configured: str = "") -> str:
    """This node's name in Slurm.

    Args:
        configured: what the configuration says; empty for slurmd's own word, else the short host name.
    """
    return configured or os.environ.get("SLURMD_NODENAME", "") or socket.gethostname().split(".")[0]


def process_stat(pid: int) -> Optional[ProcessStat]:
    """State and start of a process, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, so the fields start behind the last one.
            fields = file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return ProcessStat(fields[0].decode("ascii", "replace"), int(fields[19]))


def write_atomically(path: str, text: str, mode: int = 0o644) -> None:
    """Replace a file as a whole: a reader sees the old text or the new one.

    Args:
        path: the file; its directory must exist.
        text: the new content.
        mode: permissions of the new file.
    """
    partial = f"{path}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError as error:
        remove_quietly(partial)
        raise OSError(error.errno, error.strerror, path) from error


def remove_quietly(path: str) -> None:
    """Remove a file; one that is gone already is fine."""
    with contextlib.suppress(OSError):
        os.unlink(path)
