"""The few mounts that an emulated node consists of, made through libc inside the node's own namespace."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MS_BIND = 4096
_MS_REC = 16384
_MS_MOVE = 8192
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, fstype: str, flags: int, data: str) -> None:
    result = _libc.mount(
        source.encode(), target.encode(), fstype.encode(), ctypes.c_ulong(flags), data.encode() or None
    )
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {fstype or 'bind'} {source} on {target}: {os.strerror(code)}")


def bind(source: Path, target: Path, *, recursive: bool = False) -> None:
    """Shows source at target (both exist, both files or both folders)."""
    _mount(str(source), str(target), "", _MS_BIND | (_MS_REC if recursive else 0), "")


def bind_file(source: Path, target: Path) -> None:
    """Shows a file at a path that may not exist yet in a tmpfs of ours."""
    if not target.exists():
        target.touch()
    bind(source, target)


def tmpfs(target: Path, *, mode: str = "0755", size: str = "64m") -> None:
    """An empty tmpfs."""
    _mount("tmpfs", str(target), "tmpfs", 0, f"mode={mode},size={size}")


def proc(target: Path) -> None:
    """A /proc of the present PID namespace."""
    _mount("proc", str(target), "proc", 0, "")


def overlay(lower: Path, upper: Path, work: Path, target: Path) -> None:
    """A writable view of lower; what is written goes to upper."""
    _mount("overlay", str(target), "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}")


def move(source: Path, target: Path) -> None:
    """Moves a mount."""
    _mount(str(source), str(target), "", _MS_MOVE, "")


def mounts_under(root: Path) -> list[Path]:
    """Mount points below a folder in this process's namespace, deepest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        # Blanks in a path are written as octal escapes; a sandbox root has none.
        point = Path(line.split()[4])
        if point == root or root in point.parents:
            found.append(point)
    return sorted(found, key=lambda p: len(p.parts), reverse=True)


def detach(target: Path) -> None:
    """Lazily unmounts."""
    if _libc.umount2(str(target).encode(), 2) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"umount {target}: {os.strerror(code)}")
