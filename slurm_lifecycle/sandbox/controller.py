"""Child process that becomes slurmctld (or a command of an administrator) on the emulated controller host.

The controller has its own host name and /etc/hosts, both loopback, so that slurmctld listens nowhere else
whatever the name of this machine resolves to.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from slurm_lifecycle.sandbox import mounts
from slurm_lifecycle.sandbox.conf import CONTROLLER

UNSHARE = ("unshare", "--mount", "--propagation", "private", "--uts")


def main(argv: list[str]) -> int:
    """Entry point: `controller HOSTS COMMAND...`; replaces itself by the command."""
    socket.sethostname(CONTROLLER)
    mounts.bind(Path(argv[0]), Path("/etc/hosts"))
    os.execvp(argv[1], argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
