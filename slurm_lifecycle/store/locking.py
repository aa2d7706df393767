"""The lock that says which process acts on a store."""

import fcntl
import os
from pathlib import Path

from slurm_lifecycle.errors import NotTheActor, StoreError


class ActorLock:
    """An exclusive flock on `<store>.lock`; the kernel frees it when the process ends, however it ends."""

    def __init__(self, store: Path, host: str) -> None:
        """Take the lock.

        Raises:
            NotTheActor: another process holds it; the text names its pid and host.
            StoreError: the lock file cannot be made.
        """
        path = store.with_name(store.name + ".lock")
        try:
            # Not inherited by children: a hung hook must not keep the lock of a daemon that is gone.
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"lock {path} cannot be made ({error.strerror}): check its folder") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 200, 0).decode("utf-8", "replace").strip() or "an unknown process"
            os.close(self._fd)
            raise NotTheActor(f"store {store} is in use by {holder}: stop that one first") from None
        except OSError as error:
            os.close(self._fd)
            raise StoreError(f"lock {path} cannot be taken ({error.strerror}): use a local disk") from error
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"pid {os.getpid()} on {host}\n".encode(), 0)
        except OSError as error:
            os.close(self._fd)
            raise StoreError(f"lock {path} cannot be written ({error.strerror}): check its disk") from error

    def release(self) -> None:
        """Let go; the file stays, since removing it would let two processes lock two files."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
