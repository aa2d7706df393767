"""Host checks: file systems that are full or read-only. Probed in a child, since a dead mount blocks
whoever asks.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Dict, Iterator, List, Sequence, Tuple

from slurm_lifecycle.node.checks.base import Check, Judged, Judgement
from slurm_lifecycle.node.findings import Sign

SPACE = Check(
    "fs_space",
    "filesystems in the configuration",
    "Each file system keeps min_free_percent of its space and inodes, in two samples in a row.",
    ("FS_FULL", "CHECK_FAILED"),
)
READ_ONLY = Check(
    "fs_readonly",
    "filesystems in the configuration",
    "No file system is mounted read-only, as the kernel does after errors.",
    ("FS_READONLY",),
)

# A D state in one of these is a server's fault that all nodes share: draining each node for it would drain
# the fleet.
_SHARED = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse",
    "cifs",
    "smb",
    "9p",
    "afs",
    "pvfs",
    "weka",
    "wekafs",
)


@dataclass(frozen=True)
class FileSystem:
    """What `statvfs` said; `error` instead where it failed."""

    path: str
    blocks: int = 0
    blocks_free: int = 0
    inodes: int = 0
    inodes_free: int = 0
    read_only: bool = False
    error: str = ""


@dataclass(frozen=True)
class FileSystems:
    """One look at the configured file systems; `in_progress` is the one that did not answer."""

    seen: Tuple[FileSystem, ...] = ()
    in_progress: str = ""


def read_filesystems(paths: Sequence[str]) -> Iterator[str]:
    """Ask each file system; the child's work. Says which one comes next, so that a hang has a name."""
    for path in paths:
        yield json.dumps({"next": path})
        try:
            info = os.statvfs(path)
        except OSError as error:
            yield json.dumps({"path": path, "error": os.strerror(error.errno or 0)})
            continue
        row = {
            "path": path,
            "blocks": info.f_blocks,
            "blocks_free": info.f_bavail,
            "inodes": info.f_files,
            "inodes_free": info.f_favail,
            "read_only": bool(info.f_flag & os.ST_RDONLY),
        }
        yield json.dumps(row)


def parse_filesystems(output: str) -> FileSystems:
    """The probe's output, also of one that did not finish."""
    seen: List[FileSystem] = []
    in_progress = ""
    for line in output.splitlines():
        try:
            row: Dict[str, object] = json.loads(line)
            if "next" in row:
                in_progress = str(row["next"])
            else:
                seen.append(FileSystem(**row))  # type: ignore[arg-type]
                in_progress = ""
        except (ValueError, TypeError, AttributeError):
            continue
    return FileSystems(tuple(seen), in_progress)


def judge_space(look: FileSystems, min_free_percent: float) -> Judgement:
    """Space and inodes. A file system without inode counts (btrfs and such) has none to run out of."""
    signs: List[Sign] = []
    for fs in look.seen:
        if fs.error:
            signs.append(Sign("CHECK_FAILED", fs.path, f"cannot read file system: {fs.error}"))
            continue
        for what, total, free in (
            ("space", fs.blocks, fs.blocks_free),
            ("inodes", fs.inodes, fs.inodes_free),
        ):
            if total > 0 and 100.0 * free / total < min_free_percent:
                text = f"{100.0 * free / total:.1f} percent of {what} free"
                signs.append(Sign("FS_FULL", fs.path, text, f"{free} of {total} {what} free"))
                break
    return Judged(tuple(signs))


def judge_read_only(look: FileSystems) -> Judgement:
    """Mounted read-only?"""
    signs = tuple(Sign("FS_READONLY", fs.path) for fs in look.seen if fs.read_only)
    return Judged(signs, frozenset(fs.path for fs in look.seen if fs.error))


def is_shared(path: str, mounts: str) -> bool:
    """Is the file system of a path one that many nodes share? An unknown mount counts as shared.

    Args:
        path: an absolute path.
        mounts: the text of `/proc/self/mounts`.
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return not kind or kind.startswith(_SHARED)
