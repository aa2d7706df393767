"""Takes a sandbox away: its processes, by what it wrote down and by a sweep, then its files."""

from __future__ import annotations

import os
import shutil

from slurm_lifecycle.sandbox import mounts, procs
from slurm_lifecycle.sandbox.settings import Layout, SandboxError
from slurm_lifecycle.sandbox.state import State, node_init

_GRACE_S = 5


def is_ours(layout: Layout) -> bool:
    """Whether the folder is a sandbox of this user: nothing else is ever removed."""
    root = layout.root
    if root.is_symlink() or not root.is_dir() or root.stat().st_uid != os.geteuid():
        return False
    if not any(root.iterdir()):
        # An `up` that was killed right after it made the folder.
        layout.marker.touch()
    return layout.marker.is_file()


def stop_all(layout: Layout) -> None:
    """Stops every process of the sandbox.

    Raises:
        SandboxError: when one is stuck in the kernel.
    """
    state = State.load(layout)
    machines = [ref for name, ref in state.processes.items() if name.startswith("machine:")]
    left = procs.stop(machines, grace_s=_GRACE_S)
    # Nodes whose supervisor was killed.
    inits = [ref for ref in map(node_init, layout.nodes.glob("*/machine.json")) if ref is not None]
    left += procs.stop(inits, grace_s=0)
    daemons = [ref for name, ref in state.processes.items() if not name.startswith("machine:")]
    left += procs.stop(daemons, grace_s=_GRACE_S)
    # Started but not yet written down when somebody killed `up`.
    left += procs.stop(procs.started_under(layout.root), grace_s=0)
    if left:
        pids = " ".join(str(ref.pid) for ref in left)
        raise SandboxError(
            f"processes {pids} are stuck in the kernel: free what they wait for (thaw, unmount), then repeat"
        )


def remove(layout: Layout) -> None:
    """Stops every process and removes the files."""
    stop_all(layout)
    for point in mounts.mounts_under(layout.root):
        mounts.detach(point)
    shutil.rmtree(layout.root)
