"""Whether the store's file is still the one that was opened.

SQLite keeps working on a file that was deleted, moved or replaced by a restored copy: what is journaled then
is lost with the process, and no command sees it. A daemon must not act on such a journal.
"""

import os
from pathlib import Path

from slurm_lifecycle.errors import NotTheActor

_HEADER = b"SQLite format 3\0"


class FileWatch:
    """Remembers a file and compares; without VACUUM a SQLite file never becomes smaller."""

    def __init__(self, path: Path) -> None:
        """Remember the file as it is now.

        One descriptor is kept for good: closing any of a process's descriptors of a file frees the locks that
        SQLite holds on it.
        """
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(self._fd)
        self._identity = (found.st_dev, found.st_ino)
        self._size = found.st_size

    def close(self) -> None:
        """Let the descriptor go, after SQLite's own."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def check(self) -> None:
        """Compare.

        Raises:
            NotTheActor: it is another file by now, or somebody wrote over it; the daemon has to end.
        """
        try:
            found = self._path.stat()
            header = os.pread(self._fd, len(_HEADER), 0)
        except OSError as error:
            raise self._lost(f"cannot be found any more ({error.strerror})") from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise self._lost("was replaced by another file")
        if found.st_size < self._size or header != _HEADER:
            raise self._lost("was cut or overwritten")
        self._size = found.st_size

    def _lost(self, what: str) -> NotTheActor:
        return NotTheActor(
            f"store {self._path} {what} while the daemon worked on it: put it back with the daemon stopped, "
            "or start with what is there and run `slurm-lifecycle db claim`"
        )
