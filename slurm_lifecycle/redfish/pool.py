"""The BMCs of a fleet: many asked at once, each by one thread at a time, bounded in time and threads."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, MachineReading, StepOutcome
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.redfish.client import IDLE_S, RedfishBmc
from slurm_lifecycle.redfish.connection import Deadline
from slurm_lifecycle.redfish.settings import BmcSettings

# A reading of a BMC that answers in 20 s (captured DGX H100) takes four answers and a login.
READ_S = 120.0
# One that was finished this long ago is not news any more.
_KEPT_S = 60.0
# A read that was under way before is waited for no longer than this.
_JOIN_S = 1.0
_LOOK_S = 2.0
_CLOSE_S = 5.0
_CLOSERS = 8
_log = logging.getLogger(__name__)
T = TypeVar("T")


class BmcPool:
    """Implements `ports.Bmc`.

    Commands, reads, and what `run` does have threads of their own, so that BMCs that hang never delay a
    command, and a round over the whole fleet delays no power cycle. A read that takes longer than its caller
    waits goes on, and is delivered by the next call for its node.
    """

    def __init__(
        self,
        settings: Mapping[str, BmcSettings],
        *,
        threads: int = 32,
        command_threads: int = 16,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is asked yet.

        Args:
            settings: by node.
            threads: how many BMCs `run` asks at once.
            command_threads: how many are read at once, and how many are sent something.
            clock: wall time, for readings.
        """
        self._bmcs = {node: RedfishBmc(one, clock=clock) for node, one in settings.items()}
        self._clock = clock
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="bmc-work")
        self._readers = ThreadPoolExecutor(command_threads, thread_name_prefix="bmc-read")
        self._senders = ThreadPoolExecutor(command_threads, thread_name_prefix="bmc-send")
        self._closers = ThreadPoolExecutor(_CLOSERS, thread_name_prefix="bmc-close")
        self._lock = threading.Lock()
        self._reads: dict[str, Future[MachineReading]] = {}
        self._at_work: set[Deadline] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._close_idle, name="bmc-idle", daemon=True).start()
        atexit.register(self._close_at_exit)
        unchecked = sorted(node for node, one in settings.items() if one.insecure)
        if unchecked:
            _log.warning(
                "BMC certificates are not checked (insecure = true) of %d nodes: %s",
                len(unchecked),
                plain_line(" ".join(unchecked), 200),
            )

    def bmc(self, node: str) -> RedfishBmc | None:
        """The BMC of a node, None where none is configured."""
        return self._bmcs.get(node)

    @property
    def nodes(self) -> Collection[str]:
        """Nodes whose BMC is configured."""
        return self._bmcs.keys()

    # ---- the port

    def read(self, nodes: Collection[str], deadline_s: float) -> Mapping[str, MachineReading]:
        """Power, serial and boot override of each; a BMC that did not answer by then has a problem."""
        until = time.monotonic() + deadline_s
        found = {node: _unknown(node) for node in nodes if node not in self._bmcs}
        asked = {node: self._read(node) for node in nodes if node in self._bmcs}
        begun = [future for future, is_new in asked.values() if is_new]
        wait(begun, timeout=max(0.0, until - time.monotonic()))
        # One that was under way before has had its time: it delays nobody a second time.
        joined = [future for future, _ in asked.values()]
        wait(joined, timeout=max(0.0, min(_JOIN_S, until - time.monotonic())))
        for node, (future, _) in asked.items():
            if not future.done():
                detail = f"BMC of {node}: no whole answer within {deadline_s:g} s yet"
                found[node] = MachineReading(node, self._clock(), problem=BmcProblem.TIMEOUT, detail=detail)
                continue
            with self._lock:
                if self._reads.get(node) is future:
                    del self._reads[node]
            found[node] = self._ends(node) if future.cancelled() else future.result()
        return found

    def _read(self, node: str) -> tuple["Future[MachineReading]", bool]:
        """The read that is under way, or that was finished after its caller had gone; else a new one."""
        with self._lock:
            future = self._reads.get(node)
            if future is not None and future.done() and self._too_old(future):
                future = None
            if future is not None:
                return future, False
            future = self._submit(self._readers, READ_S, self._bmcs[node].read)
            self._reads[node] = future
            return future, True

    def _too_old(self, future: "Future[MachineReading]") -> bool:
        return future.cancelled() or self._clock() - future.result().asked_at > READ_S + _KEPT_S

    def _ends(self, node: str) -> MachineReading:
        return MachineReading(node, self._clock(), problem=BmcProblem.BUSY, detail="this program ends")

    def send(self, commands: Mapping[str, MachineCommand], deadline_s: float) -> Mapping[str, Sent]:
        """Send one command a node, each at most once; none is begun after the deadline."""
        found: dict[str, Sent] = {}
        asked: dict[str, Future[Sent]] = {}
        for node, command in commands.items():
            bmc = self._bmcs.get(node)
            if bmc is None:
                found[node] = Sent(StepOutcome.REFUSED, f"no BMC of {node} is configured")
                continue
            asked[node] = self._submit(self._senders, deadline_s, partial(bmc.send, command))
        wait(asked.values(), timeout=deadline_s)
        for node, future in asked.items():
            if future.cancel():
                detail = "it was never sent: too many at once, or this program ends"
                found[node] = Sent(StepOutcome.REFUSED, detail)
            elif future.done():
                found[node] = future.result()
            else:
                found[node] = Sent(StepOutcome.AMBIGUOUS, f"no answer within {deadline_s:g} s")
        return found

    # ---- for those who ask for more

    def run(
        self, nodes: Collection[str], work: Callable[[RedfishBmc, Deadline], T], deadline_s: float
    ) -> dict[str, T | None]:
        """Do a piece of work with each BMC; those that gave no answer the last time come last.

        Args:
            nodes: which.
            work: must not raise.
            deadline_s: for all of it; None for those that were not done by then.
        """
        asked = {
            node: self._submit(self._workers, deadline_s, partial(work, self._bmcs[node]))
            for node in sorted((one for one in nodes if one in self._bmcs), key=self._is_silent)
        }
        wait(asked.values(), timeout=deadline_s)
        done = {node: future for node, future in asked.items() if not future.cancel() and future.done()}
        return {node: done[node].result() if node in done else None for node in asked}

    def _is_silent(self, node: str) -> bool:
        return self._bmcs[node].silent

    # ---- bounds

    def _submit(
        self, threads: ThreadPoolExecutor, within_s: float, work: Callable[[Deadline], T]
    ) -> "Future[T]":
        """In a thread; its time counts from now, not from when it gets one. Cancelled where all is closed."""
        deadline = Deadline(time.monotonic() + within_s)
        try:
            return threads.submit(self._bounded, deadline, work)
        except RuntimeError:
            refused: Future[T] = Future()
            refused.cancel()
            refused.set_running_or_notify_cancel()
            return refused

    def _bounded(self, deadline: Deadline, work: Callable[[Deadline], T]) -> T:
        with self._lock:
            self._at_work.add(deadline)
        try:
            return work(deadline)
        finally:
            with self._lock:
                self._at_work.discard(deadline)

    def _close_idle(self) -> None:
        """Close sessions that nobody uses; those of BMCs that do not answer delay nobody."""
        while not self._closed.wait(_LOOK_S):
            for bmc in self._bmcs.values():
                if bmc.is_idle(IDLE_S) and not self._closed.is_set():
                    self._closers.submit(bmc.close, idle_for_s=IDLE_S)

    def close(self) -> None:
        """End every session and thread; what is under way is cut."""
        if not self._end():
            return
        closing = [self._closers.submit(bmc.close) for bmc in self._bmcs.values() if bmc.is_idle(0.0)]
        wait(closing, timeout=_CLOSE_S)
        self._closers.shutdown(wait=False, cancel_futures=True)

    def _close_at_exit(self) -> None:
        """As the last resort of a program that forgot it: one by one, since no thread begins any more."""
        until = time.monotonic() + _CLOSE_S
        if self._end():
            for bmc in self._bmcs.values():
                if time.monotonic() < until:
                    bmc.close()

    def _end(self) -> bool:
        """Cut what is under way; False where that was done before."""
        with self._lock:
            if self._closed.is_set():
                return False
            self._closed.set()
            left = list(self._at_work)
        atexit.unregister(self._close_at_exit)
        for threads in (self._workers, self._readers, self._senders):
            threads.shutdown(wait=False, cancel_futures=True)
        for deadline in left:
            deadline.cut()
        return True


def _unknown(node: str) -> MachineReading:
    detail = f"no BMC of {node} is configured: name it in the file of [bmc]"
    return MachineReading(node, 0.0, problem=BmcProblem.NOT_CONFIGURED, detail=detail)
