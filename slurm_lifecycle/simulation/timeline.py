"""Virtual time: what happens next, in an order that does not depend on anything but the seed."""

import heapq
from collections.abc import Callable

# 2026-01-05 00:00:00 UTC, a Monday: runs begin at the same moment whenever they are made.
START_S = 1_767_571_200.0


class Event:
    """Something that is going to happen; `cancel` takes it back."""

    __slots__ = ("at", "what")

    def __init__(self, at: float, what: Callable[[], None] | None) -> None:
        """Use `Timeline.at`."""
        self.at = at
        self.what = what

    def cancel(self) -> None:
        """It will not happen; harmless when it has happened already."""
        self.what = None


class Timeline:
    """A heap of events keyed by (time, order of entry); `now` only moves forward.

    Attributes:
        now: seconds since the epoch.
        done: events that happened so far.
    """

    __slots__ = ("_heap", "_order", "done", "now")

    def __init__(self, start: float = START_S) -> None:
        """An empty timeline."""
        self.now = start
        self.done = 0
        self._heap: list[tuple[float, int, Event]] = []
        self._order = 0

    def at(self, when: float, what: Callable[[], None]) -> Event:
        """Let something happen at a time; one in the past happens next."""
        event = Event(max(when, self.now), what)
        heapq.heappush(self._heap, (event.at, self._order, event))
        self._order += 1
        return event

    def after(self, delay_s: float, what: Callable[[], None]) -> Event:
        """Let something happen in a while."""
        return self.at(self.now + delay_s, what)

    def peek(self) -> float | None:
        """When the next event happens, None where nothing is ahead."""
        while self._heap and self._heap[0][2].what is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Let the next event happen; False where nothing is ahead."""
        if self.peek() is None:
            return False
        when, _, event = heapq.heappop(self._heap)
        self.now = when
        what, event.what = event.what, None
        assert what is not None
        self.done += 1
        what()
        return True

    def run_until(self, when: float) -> None:
        """Let everything happen up to and at a time, and stand there."""
        while (ahead := self.peek()) is not None and ahead <= when:
            self.step()
        self.now = max(self.now, when)
