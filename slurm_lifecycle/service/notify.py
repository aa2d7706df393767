"""Tells people: always in the log, and by a site's own command where one is set. Never raises."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.service.log import log_event
from slurm_lifecycle.site_command import run_site_command

# The planner says the same thing as long as it is so (`Plan.standing`); a person needs it once a shift.
REPEAT_AFTER_S = 6 * 3600.0
# A command that failed is tried again for the same key after this, and for any key once it hung.
RETRY_AFTER_S = 300.0
# What waits is handed over in each tick, so forgetting a key that still waits costs a repeat each time:
# four times the largest fleet.
MAX_KEYS = 65_536
# Of this time, so much may go to the command: a thousand pages at once must not keep the daemon from its
# nodes. What still waits is handed over again by the next tick.
_SHARE_OF_S = 60.0
_SHARE_S = 15.0
_TEXT_LIMIT = 2000


class LogNotifier:
    """Implements `ports.Notifier` by the log alone."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, *, repeat_after_s: float = REPEAT_AFTER_S
    ) -> None:
        """Set a clock; one key is told once in `repeat_after_s`, which a restart forgets."""
        self._now = now
        self._repeat_after_s = repeat_after_s
        self._quiet = _Quiet()

    def notify(self, notice: Notice) -> None:
        """Write the notice to the log, unless its key was told lately."""
        now = self._now()
        if self._quiet.covers(notice.key, now):
            return
        level = logging.WARNING if notice.urgency == "page" else logging.INFO
        log_event("notice", notice.text, level=level, node=notice.node, urgency=notice.urgency)
        self._quiet.set(notice.key, now, self._repeat_after_s)


class CommandNotifier:
    """Implements `ports.Notifier` by the log and a site's command, which gets TEXT, NODE, URGENCY and KEY."""

    def __init__(
        self,
        command: Sequence[str],
        now: Callable[[], float] = time.monotonic,
        *,
        timeout_s: float = 10.0,
        repeat_after_s: float = REPEAT_AFTER_S,
    ) -> None:
        """Set the command.

        Args:
            command: the argument list.
            now: a clock for how long a key stays quiet.
            timeout_s: until the command is killed; short, since the daemon waits.
            repeat_after_s: one key is told once in this time, which a restart forgets.
        """
        self._command = tuple(command)
        self._now = now
        self._timeout_s = timeout_s
        self._repeat_after_s = repeat_after_s
        self._quiet = _Quiet()
        self._hung_at: float | None = None
        self._share_since, self._spent_s = now(), 0.0
        self._log = LogNotifier(now, repeat_after_s=repeat_after_s)

    def notify(self, notice: Notice) -> None:
        """Hand over one notice, unless its key was told lately."""
        self._log.notify(notice)
        now = self._now()
        if self._quiet.covers(notice.key, now):
            return
        # A tick may hold a thousand notices; a command that hangs must not hold the daemon for each of them.
        if self._hung_at is not None and 0 <= now - self._hung_at < RETRY_AFTER_S:
            return
        if self._share_is_spent(now):
            return
        ended = run_site_command(self._command, _environment(notice), timeout_s=self._timeout_s)
        self._spent_s += max(0.0, self._now() - now)
        self._hung_at = now if ended.started and ended.code is None else None
        if ended.code != 0:
            why = ended.failure or f"ended with {ended.code}: {plain_line(ended.first_words)}"
            log_event("notice_failed", level=logging.ERROR, node=notice.node, key=notice.key, reason=why)
        self._quiet.set(notice.key, now, self._repeat_after_s if ended.code == 0 else RETRY_AFTER_S)

    def _share_is_spent(self, now: float) -> bool:
        if not 0 <= now - self._share_since < _SHARE_OF_S:
            self._share_since, self._spent_s = now, 0.0
        return self._spent_s >= _SHARE_S


def _environment(notice: Notice) -> dict[str, str]:
    return {
        "TEXT": plain_line(notice.text, _TEXT_LIMIT),
        "NODE": plain_line(notice.node),
        "URGENCY": plain_line(notice.urgency),
        "KEY": plain_line(notice.key),
    }


class _Quiet:
    """Keys that need not be told for a while; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._until: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def covers(self, key: str, now: float) -> bool:
        since, until = self._until.get(key, (0.0, 0.0))
        # A clock that was set back must not silence a page for longer.
        return since <= now < until

    def set(self, key: str, now: float, for_s: float) -> None:
        self._until[key] = (now, now + for_s)
        self._until.move_to_end(key)
        while len(self._until) > MAX_KEYS:
            self._until.popitem(last=False)
