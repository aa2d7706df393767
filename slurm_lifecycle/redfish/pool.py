"""The BMCs of a fleet: many asked at once, each by one thread at a time, bounded in time and threads."""

import atexit
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, MachineReading, StepOutcome
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.redfish.client import IDLE_S, RedfishBmc
from slurm_lifecycle.redfish.connection import Deadline
from slurm_lifecycle.redfish.settings import BmcSettings

# A reading of a BMC that answers in 20 s (captured DGX H100) takes four answers and a login.
READ_S = 120.0
# One that was finished this long ago is not news any more.
_KEPT_S = 60.0
_REAP_S = 2.0
_CLOSE_S = 5.0
T = TypeVar("T")


class BmcPool:
    """Implements `ports.Bmc`.

    Reads and commands have threads of their own, so that BMCs that hang never delay a command. A read that
    takes longer than its caller waits goes on, and is delivered by the next call for its node.
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
            threads: how many BMCs are read at once.
            command_threads: how many are sent something at once.
            clock: wall time, for readings.
        """
        self._bmcs = {node: RedfishBmc(one, clock=clock) for node, one in settings.items()}
        self._clock = clock
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="bmc-read")
        self._senders = ThreadPoolExecutor(command_threads, thread_name_prefix="bmc-send")
        self._lock = threading.Lock()
        self._reads: dict[str, Future[MachineReading]] = {}
        self._watched: set[Deadline] = set()
        self._closed = threading.Event()
        self._reaper = threading.Thread(target=self._reap, name="bmc-reaper", daemon=True)
        self._reaper.start()
        atexit.register(self.close)

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
        wait(asked.values(), timeout=max(0.0, until - time.monotonic()))
        for node, future in asked.items():
            if not future.done():
                detail = f"BMC of {node}: no whole answer within {deadline_s:g} s yet"
                found[node] = MachineReading(node, self._clock(), problem=BmcProblem.TIMEOUT, detail=detail)
                continue
            with self._lock:
                if self._reads.get(node) is future:
                    del self._reads[node]
            found[node] = future.result()
        return found

    def _read(self, node: str) -> "Future[MachineReading]":
        """The read that is under way, or that was finished after its caller had gone; else a new one."""
        with self._lock:
            future = self._reads.get(node)
            if future is not None and future.done() and self._too_old(future.result()):
                future = None
            if future is None:
                bmc = self._bmcs[node]
                future = self._readers.submit(self._bounded, READ_S, bmc.read)
                self._reads[node] = future
            return future

    def _too_old(self, reading: MachineReading) -> bool:
        return self._clock() - reading.asked_at > READ_S + _KEPT_S

    def send(self, commands: Mapping[str, MachineCommand], deadline_s: float) -> Mapping[str, Sent]:
        """Send one command a node, each at most once; none is begun after the deadline."""
        deadline = time.monotonic() + deadline_s
        found: dict[str, Sent] = {}
        asked: dict[str, Future[Sent]] = {}
        for node, command in commands.items():
            bmc = self._bmcs.get(node)
            if bmc is None:
                found[node] = Sent(StepOutcome.REFUSED, f"no BMC of {node} is configured")
            else:
                asked[node] = self._senders.submit(self._send, bmc, command, deadline)
        wait(asked.values(), timeout=deadline_s)
        for node, future in asked.items():
            if future.done():
                found[node] = future.result()
            elif future.cancel():
                found[node] = Sent(StepOutcome.REFUSED, "it was never sent: too many at once")
            else:
                found[node] = Sent(StepOutcome.AMBIGUOUS, f"no answer within {deadline_s:g} s")
        return found

    def _send(self, bmc: RedfishBmc, command: MachineCommand, until: float) -> Sent:
        left_s = until - time.monotonic()
        return self._bounded(left_s, lambda deadline: bmc.send(command, deadline))

    # ---- for those who ask for more

    def run(
        self, nodes: Collection[str], work: Callable[[RedfishBmc, Deadline], T], deadline_s: float
    ) -> dict[str, T | None]:
        """Do a piece of work with each BMC, in the readers' threads.

        Args:
            nodes: which.
            work: must not raise.
            deadline_s: for all of it; None for those that were not done by then.
        """
        asked = {
            node: self._readers.submit(
                self._bounded, deadline_s, lambda d, one=self._bmcs[node]: work(one, d)
            )
            for node in nodes
            if node in self._bmcs
        }
        wait(asked.values(), timeout=deadline_s)
        return {
            node: future.result() if future.done() else (future.cancel(), None)[1]
            for node, future in asked.items()
        }

    # ---- bounds

    def _bounded(self, within_s: float, work: Callable[[Deadline], T]) -> T:
        deadline = Deadline(time.monotonic() + within_s)
        with self._lock:
            self._watched.add(deadline)
        try:
            return work(deadline)
        finally:
            with self._lock:
                self._watched.discard(deadline)

    def _reap(self) -> None:
        """Cut what is over its time, and close sessions that nobody uses."""
        while not self._closed.wait(_REAP_S):
            with self._lock:
                late = [one for one in self._watched if one.left_s() < 0]
            for deadline in late:
                deadline.cut()
            for bmc in self._bmcs.values():
                bmc.close(idle_for_s=IDLE_S)

    def close(self) -> None:
        """End every session and thread."""
        if self._closed.is_set():
            return
        self._closed.set()
        atexit.unregister(self.close)
        with self._lock:
            left = list(self._watched)
        for deadline in left:
            deadline.cut()
        for executor in (self._readers, self._senders):
            executor.shutdown(wait=False, cancel_futures=True)
        closers = ThreadPoolExecutor(8, thread_name_prefix="bmc-close")
        wait([closers.submit(bmc.close) for bmc in self._bmcs.values()], timeout=_CLOSE_S)
        closers.shutdown(wait=False, cancel_futures=True)


def _unknown(node: str) -> MachineReading:
    detail = f"no BMC of {node} is configured: name it in the file of [bmc]"
    return MachineReading(node, 0.0, problem=BmcProblem.NOT_CONFIGURED, detail=detail)
