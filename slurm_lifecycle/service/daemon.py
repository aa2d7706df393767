"""The loop of the daemon: tick, tell, wait. It outlives outages of Slurm and of its store."""

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from slurm_lifecycle.core.plan import Event
from slurm_lifecycle.errors import InvariantViolation, LifecycleError, NotTheActor
from slurm_lifecycle.service.executor import Done
from slurm_lifecycle.service.reconciler import Reconciler, TickResult

_LOG = logging.getLogger("slurm_lifecycle.daemon")
# A wall clock that jumps further than this between two looks is not believed: no deadline may expire by it.
MAX_CLOCK_STEP_S = 5.0


class SystemClock:
    """Wall time that never jumps: it follows the monotonic clock, and the wall clock only in small steps."""

    def __init__(
        self,
        stop: threading.Event | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stop = stop or threading.Event()
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()
        self._warned = False

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        offset = self._wall() - self._monotonic()
        if abs(offset - self._offset) <= MAX_CLOCK_STEP_S:
            self._offset = offset
            self._warned = False
        elif not self._warned:
            self._warned = True
            _LOG.warning(
                "the clock stepped by %.0f s: deadlines keep to the old one; restart when it is right",
                offset - self._offset,
            )
        return self._monotonic() + self._offset

    def sleep(self, seconds: float) -> None:
        """Wait, or return early when the service is asked to stop."""
        self._stop.wait(seconds)


class Daemon:
    """Ticks until it is told to stop.

    Args:
        on_tick: told of each finished tick (metrics, liveness).
        on_failure: told of each tick that failed, with a word for the kind.
    """

    def __init__(
        self,
        *,
        reconciler: Reconciler,
        clock: SystemClock,
        stop: threading.Event,
        interval_s: float,
        on_tick: Callable[[TickResult], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._reconciler = reconciler
        self._clock = clock
        self._stop = stop
        self._interval_s = interval_s
        self._on_tick = on_tick
        self._on_failure = on_failure
        self._last_problem = ""
        self._not_acting = ""
        self._last_results: dict[str, str] = {}

    def run(self) -> None:
        """Tick until SIGTERM or SIGINT; a tick under way is finished first."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        while not self._stop.is_set():
            self.tick()
            self._clock.sleep(self._interval_s)
        _LOG.info("stopped", extra={"event": "stopped"})

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        _LOG.info("signal %d: stopping after this tick", number)
        self._stop.set()

    def tick(self) -> bool:
        """One tick; False when it failed. A lasting failure is logged once, and once more when it ends.

        Raises:
            NotTheActor: another daemon took the store over; this one has to end.
        """
        try:
            result = self._reconciler.tick()
            self._on_tick(result)
        except NotTheActor:
            raise
        except InvariantViolation as error:
            self._problem("invariant", f"plan refused, nothing done: {error}")
            return False
        except LifecycleError as error:
            self._problem(type(error).__name__, f"no action: {error}")
            return False
        except Exception:
            # A defect must not end the watch over the fleet; it acts on nothing, and says so every time.
            _LOG.exception("this tick failed by a defect; nothing more was done in it")
            self._on_failure("defect")
            return False
        if self._last_problem:
            _LOG.info("working again", extra={"event": "recovered"})
            self._last_problem = ""
        self._tell_whether_acting(result.plan.not_acting)
        for event in result.plan.events:
            _log_event(event)
        for done in result.done:
            self._log_done(done)
        return True

    def _tell_whether_acting(self, why_not: str) -> None:
        """A daemon that only watches says why once, whether or not a node needs anything."""
        if why_not and why_not != self._not_acting:
            _LOG.warning("not acting: %s", why_not, extra={"event": "not_acting"})
        elif self._not_acting and not why_not:
            _LOG.info("acting from now on", extra={"event": "acting"})
        self._not_acting = why_not

    def _problem(self, kind: str, text: str) -> None:
        self._on_failure(kind)
        if text != self._last_problem:
            _LOG.error(text, extra={"event": "problem", "kind": kind})
            self._last_problem = text

    def _log_done(self, done: Done) -> None:
        """One line for each effect that was carried out, and for each change of why one was not."""
        key = f"{type(done.action).__name__}:{getattr(done.action, 'node', '')}"
        if done.result == "done":
            self._last_results.pop(key, None)
            _LOG.info("%s", done.action, extra={"event": "action", "action": type(done.action).__name__})
        elif self._last_results.get(key) != done.detail:
            self._last_results[key] = done.detail
            _LOG.warning("%s: %s", done.result, done.detail, extra={"event": "action", "result": done.result})


def _log_event(event: Event) -> None:
    _LOG.info(
        event.text,
        extra={"event": event.kind, "node": event.node, "incident": event.incident_id, "actor": event.actor},
    )
