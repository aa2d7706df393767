"""The agent: one thread, one loop. Checks and Slurm run in children, and the loop waits for neither alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from typing import Callable, Dict, List, Optional

from slurm_lifecycle.core.fault_catalog import Level
from slurm_lifecycle.node import output, system
from slurm_lifecycle.node.config import AgentConfig
from slurm_lifecycle.node.monitor import CONFIRM_AFTER_S, Monitor
from slurm_lifecycle.node.reporter import Reporter
from slurm_lifecycle.node.state import load_state, save_state
from slurm_lifecycle.node.verdict import Verdict, judge

EXIT_OK, EXIT_DRAIN, EXIT_CONFIG, EXIT_FAILED = 0, 1, 2, 3
ONCE_CONFIRM_AFTER_S = 0.5
NAMES_GRACE_S = 0.8


class AlreadyRunningError(Exception):
    """Another agent holds the lock of the run directory."""


def log(text: str) -> None:
    """One line for the journal; where nobody listens (a pipe closed, a disk full) the agent goes on."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def take_lock(run_dir: str) -> int:
    """Make the run directory where it is missing, and hold its lock until the process ends.

    Raises:
        AlreadyRunningError: another agent is at work.
    """
    os.makedirs(run_dir, mode=0o755, exist_ok=True)
    descriptor = os.open(f"{run_dir}/agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AlreadyRunningError(run_dir) from error
    return descriptor


class Agent:
    """One agent on one boot of one node; the caller holds the lock.

    Args:
        config: what the administrator set.
        confirm_after_s: pause before the second sample of what needs one.
        say: takes one line for people.
    """

    def __init__(
        self, config: AgentConfig, confirm_after_s: float = CONFIRM_AFTER_S, say: Callable[[str], None] = log
    ) -> None:
        self.config, self._say = config, say
        self.node = system.node_name(config.node_name)
        self.state = load_state(config.run_dir, system.boot_id())
        self.monitor = Monitor(config, self.state, confirm_after_s)
        self.reporter = Reporter(config, self.node, self.state, say)
        self.verdict: Optional[Verdict] = None
        self._started_s = system.uptime_s()
        self._written_s = -1e9
        self._findings_seen: object = None
        self._unwritten: Dict[str, str] = {}
        self._stop = False

    def run(self) -> int:
        """Work until TERM or INT."""
        wakeup = self._catch_signals()
        self._say(
            f"agent of node {self.node} in mode {self.config.mode}, run directory {self.config.run_dir}"
        )
        try:
            while not self._stop:
                self._turn()
                self._wait(wakeup)
        finally:
            self._close()
        return EXIT_OK

    def run_once(self, budget_s: float) -> int:
        """One full check, published; the whole run bounded.

        Args:
            budget_s: when to stop, whatever is still missing.

        Returns:
            The exit status: 0 ok or warn, 1 drain, 3 where not even a verdict could be written.
        """
        wakeup = self._catch_signals()
        end_s = time.monotonic() + budget_s
        try:
            while not self._stop and time.monotonic() < end_s:
                self._turn()
                if self.monitor.settled and not self.reporter.pending():
                    break
                self._wait(wakeup, end_s - time.monotonic())
            self.monitor.end_round(system.uptime_s())
            self._publish(system.uptime_s(), force=True)
        finally:
            self._close()
        if self.verdict is None or output.VERDICT_FILE in self._unwritten:
            return EXIT_FAILED
        return EXIT_DRAIN if self.verdict.level is Level.DRAIN else EXIT_OK

    # ---------------------------------------------------------------- one turn

    def _turn(self) -> None:
        now_s = system.uptime_s()
        self.monitor.advance(now_s)
        self._publish(now_s)
        self.reporter.advance(now_s)

    def _publish(self, now_s: float, force: bool = False) -> None:
        findings = self.monitor.tracker.findings
        verdict = judge(findings, self.reporter.may_gate(findings))
        # The first verdict of a run means nothing before every probe has answered and no sign waits for its
        # second sample, unless it is bad already: after a repair an early `ok` reads as checks that passed.
        # A bad one waits a moment for the driver probe, which turns bus addresses into GPU numbers.
        named = self.monitor.complete or now_s - self._started_s >= NAMES_GRACE_S
        early = not self.monitor.complete or (self.verdict is None and self.monitor.tracker.has_unconfirmed)
        if early and not (verdict.level is Level.DRAIN and named) and not force:
            return
        beat = now_s - self._written_s >= self.config.heartbeat_s
        # Not when a finding was last seen: a driver that repeats itself must not keep the agent writing.
        signature = [(f.occurrence, f.sign.component, f.level, f.sign.text) for f in findings]
        changed = signature != self._findings_seen or verdict != self.verdict
        if not (beat or changed or force):
            return
        self.verdict = verdict
        self._findings_seen = signature
        self._written_s = now_s
        self._restore_run_dir()
        self._write(output.VERDICT_FILE, output.write_verdict, now_s)
        self.reporter.announce(verdict, findings)
        self._save_state()
        self._write(output.REPORT_FILE, output.write_report, now_s)
        if self.config.textfile:
            self._write(
                "textfile", lambda _dir, status: output.write_metrics(self.config.textfile, status), now_s
            )
        output.keep_order(self.config.run_dir, verdict.level)

    def _write(self, what: str, write: Callable[[str, output.Status], None], now_s: float) -> None:
        status = output.Status(
            verdict=self.verdict or Verdict(),
            findings=tuple(self.monitor.tracker.findings),
            inventory=self.monitor.inventory,
            snapshot=self.monitor.snapshot,
            boot_id=self.state.boot_id,
            node=self.node,
            mode=self.config.mode,
            uptime_s=now_s,
            wall_s=time.time(),
            seq=self.state.seq,
            drains=self.state.drains,
            notes=(*self.monitor.problems.values(), *self.reporter.notes),
        )
        self._guarded(what, lambda: write(self.config.run_dir, status))

    def _restore_run_dir(self) -> None:
        """Without its directory the node has no verdict, and every hook lets jobs start."""
        if os.path.isdir(self.config.run_dir):
            return
        try:
            take_lock(self.config.run_dir)
        except AlreadyRunningError:
            self._say(f"another agent works in {self.config.run_dir} now: this one ends")
            self._stop = True
        except OSError as error:
            self._say(f"cannot make run directory {self.config.run_dir}: {error.strerror}")
        else:
            self._say(f"run directory {self.config.run_dir} was gone: made anew")

    def _save_state(self) -> None:
        self._guarded("state", lambda: save_state(self.config.run_dir, self.state))

    def _guarded(self, what: str, effect: Callable[[], None]) -> None:
        """A full or read-only disk must not end the agent: it says so once, and goes on watching."""
        try:
            effect()
        except OSError as error:
            text = f"cannot write {error.filename or self.config.run_dir}: {error.strerror}"
            if text != self._unwritten.get(what):
                self._say(text)
            self._unwritten[what] = text
        else:
            self._unwritten.pop(what, None)

    # ---------------------------------------------------------------- waiting

    def _wait(self, wakeup: int, at_most_s: float = 3600.0) -> None:
        now_s = system.uptime_s()
        waits = [at_most_s, self.monitor.timeout_s(now_s), self.reporter.timeout_s(now_s)]
        if self.verdict is not None:
            waits.append(self._written_s + self.config.heartbeat_s - now_s)
        elif not self.monitor.complete:
            waits.append(0.25)
        poller = select.poll()
        fds: List[int] = [wakeup, *self.monitor.waiting_fds(), *self.reporter.waiting_fds()]
        for fd in fds:
            poller.register(fd, select.POLLIN)
        poller.poll(max(0.0, min(waits)) * 1000.0)
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 512)

    def _catch_signals(self) -> int:
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

        def stop(_number: int, _frame: object) -> None:
            self._stop = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        return reading

    def _close(self) -> None:
        self.monitor.close()
        self.reporter.close()
        self._save_state()
