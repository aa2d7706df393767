"""What happened in a run, line by line, with a hash: the same seed must give the same trace."""

import hashlib
from collections import deque
from collections.abc import Collection, Iterable

from slurm_lifecycle.simulation.timeline import START_S

# Enough to hold a whole run of the safety suite; a longer one keeps its end.
KEPT_LINES = 60_000


class Trace:
    """Lines of text with their time; the hash covers all of them, also those that are not kept.

    Attributes:
        count: lines so far.
    """

    def __init__(self, kept: int = KEPT_LINES) -> None:
        """An empty trace."""
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=kept)

    def add(self, at: float, subject: str, text: str) -> None:
        """One line.

        Args:
            at: seconds since the epoch.
            subject: the node that it is about, "" where it is about none or several.
            text: what happened.
        """
        self._hash.update(f"{at!r} {subject} {text}\n".encode())
        self._lines.append((at, subject, text))
        self.count += 1

    def digest(self) -> str:
        """The hash of everything so far."""
        return self._hash.hexdigest()

    def about(self, nodes: Collection[str], last: int) -> tuple[str, ...]:
        """The last lines about some nodes and about no single one; about everything where none is given."""
        wanted = [line for line in self._lines if not nodes or line[1] in nodes or not line[1]]
        return tuple(_printed(wanted[-last:] if last else wanted))


def _printed(lines: Iterable[tuple[float, str, str]]) -> Iterable[str]:
    for at, subject, text in lines:
        yield f"{at - START_S:10.1f} {subject or '-':<8} {text}"
