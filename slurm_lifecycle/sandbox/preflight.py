"""Whether this machine can run a sandbox, and the one line that says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from slurm_lifecycle.sandbox.settings import SandboxError

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "util-linux", "gcc", "libc6-dev", "openssl")
_COMMANDS = ("slurmctld", "slurmd", "scontrol", "srun", "munged", "unshare", "nsenter")
_INSTALL_TIMEOUT_S = 900
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find(command: str) -> str | None:
    """Path of a command, also where root's PATH lacks the sbin folders."""
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")


def missing_commands() -> list[str]:
    """Commands that a sandbox needs and this machine lacks."""
    return [name for name in _COMMANDS if find(name) is None]


def check() -> None:
    """Refuses where a sandbox cannot run.

    Raises:
        SandboxError: with the remedy.
    """
    if os.geteuid() != 0:
        raise SandboxError("the sandbox needs root (namespaces and mounts): run it with sudo")
    missing = missing_commands()
    if missing:
        raise SandboxError(
            f"missing {' '.join(missing)}: run `slurm-lifecycle sandbox up --install`, "
            f"or `apt-get install {' '.join(PACKAGES)}`"
        )
    if "overlay" not in Path("/proc/filesystems").read_text(encoding="ascii"):
        # Loaded on demand: an absent module shows only when the mount is tried.
        subprocess.run(["modprobe", "overlay"], check=False, timeout=10, capture_output=True)


def install(progress: Callable[[str], None]) -> None:
    """Installs the distribution's packages with apt-get, without letting it start their services.

    Raises:
        SandboxError: when there is no apt-get or it fails.
    """
    if not missing_commands() and find("gcc"):
        return
    if os.geteuid() != 0 or find("apt-get") is None:
        raise SandboxError(f"--install needs root and apt-get; install by hand: {' '.join(PACKAGES)}")
    progress(f"installing {' '.join(PACKAGES)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for argv in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-qy", "--no-install-recommends", *PACKAGES],
    ):
        done = subprocess.run(
            argv, env=environment, check=False, timeout=_INSTALL_TIMEOUT_S, capture_output=True, text=True
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise SandboxError(f"`{' '.join(argv[:2])}` failed: {last}")
