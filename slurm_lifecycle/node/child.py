"""Work in a child process that can be given up: own session, a deadline, bounded output.

A driver call or a dead mount can block for ever, in the worst case in uninterruptible sleep, where SIGKILL
waits too. So whatever may block runs in a child, and the agent looks at the child without waiting for it.
The agent has one thread, which is what makes `fork` without `exec` safe here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import time
from dataclasses import dataclass
from enum import Enum
from typing import Callable, Iterable, Optional, Sequence, Union

from slurm_lifecycle.node.system import process_stat

OUTPUT_LIMIT_BYTES = 1 << 20
FILE_LIMIT_BYTES = 8 << 20
"""Its errors are kept in memory: a tool that repeats one for ever must not fill the node's."""

_CHUNKS_A_LOOK = 64
_PR_SET_PDEATHSIG = 1
_REAP_TRIES = 20
_REAP_PAUSE_S = 0.01

Work = Union[Sequence[str], Callable[[], Iterable[str]]]


class Outcome(Enum):
    """How a child ended. STUCK: past its deadline and in the kernel, where no signal reaches it."""

    DONE = "done"
    FAILED = "failed"
    HUNG = "hung"
    STUCK = "stuck"


@dataclass(frozen=True)
class Result:
    """What became of a child.

    Attributes:
        output: standard output, also of a child that did not finish.
        error: standard error's beginning, or why it could not start.
        code: exit status, negative for a signal, None where it did not end.
        took_s: from its start to its end.
        pid: its process id, of use while it is stuck.
        started_ticks: its start time, which tells a recycled id apart.
    """

    outcome: Outcome
    output: str = ""
    error: str = ""
    code: Optional[int] = None
    pid: int = 0
    started_ticks: int = 0
    took_s: float = 0.0


def _die_with_parent() -> None:
    # An agent that is killed must leave no probe behind. Best effort: no C library, no such help.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _run_in_child(work: Work, output: int, error: int) -> None:
    """Never returns."""
    code = 125
    try:
        os.setsid()
        _die_with_parent()
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES))
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (error, 2)):
            os.dup2(source, target)
        os.closerange(3, 256)
        if callable(work):
            for line in work():
                os.write(1, line.encode("utf-8", "surrogateescape") + b"\n")
            code = 0
        else:
            os.execvp(work[0], list(work))
    except BaseException as problem:  # the child must end here whatever happens
        code = 127 if isinstance(problem, FileNotFoundError) else 126
        words = f"{type(problem).__name__}: {problem}"
        if not callable(work) and isinstance(problem, OSError):
            words = f"cannot run {work[0]}: {problem.strerror}"
        os.write(2, words.encode("utf-8", "replace"))
    finally:
        os._exit(code)


class Child:
    """One running child. Read it when `fd` is readable, and look at it again by `poll` until it has a result.

    Args:
        work: a command as an argument list, or a function that yields lines of output.
        timeout_s: when it is given up.
    """

    def __init__(self, work: Work, timeout_s: float) -> None:
        self._started_s = time.monotonic()
        self.deadline_s = self._started_s + timeout_s
        self.result: Optional[Result] = None
        self._output = bytearray()
        self._eof = False
        self._errors = os.memfd_create("errors")
        self.fd, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(output, True)
        self.pid = os.fork()
        if self.pid == 0:
            _run_in_child(work, output, self._errors)
        os.close(output)
        stat = process_stat(self.pid)
        self._started_ticks = stat.started_ticks if stat else 0

    @property
    def waiting_fd(self) -> Optional[int]:
        """What to wait on; None when it has said all it will and only its end is awaited."""
        return None if self._eof or self.result is not None else self.fd

    def poll(self) -> Optional[Result]:
        """Read what there is; settle the result when it ended or its time is over. It blocks briefly."""
        if self.result is not None:
            return self.result
        self._read()
        if self._eof and self._reaped() is not None:
            return self.result
        if time.monotonic() >= self.deadline_s:
            self.give_up()
        return self.result

    def give_up(self) -> Result:
        """Kill its process group; a child that stays is stuck where it sleeps in the kernel, else it hung."""
        if self.result is not None:
            return self.result
        self._kill()
        for _ in range(_REAP_TRIES):
            if self._wait_status() is not None:
                break
            time.sleep(_REAP_PAUSE_S)
        self._read()
        stat = process_stat(self.pid)
        stuck = stat is not None and stat.state == "D"
        return self._settle(Outcome.STUCK if stuck else Outcome.HUNG, None)

    def wait(self) -> Result:
        """Block until it has a result; for one-shot runs."""
        while self.poll() is None:
            time.sleep(0.005)
        assert self.result is not None
        return self.result

    def _read(self) -> None:
        # Bounded, since a child that writes as fast as it is read would hold the loop for ever.
        for _ in range(_CHUNKS_A_LOOK):
            if self._eof:
                return
            try:
                chunk = os.read(self.fd, 65536)
            except BlockingIOError:
                return
            self._eof = not chunk
            if len(self._output) < OUTPUT_LIMIT_BYTES:
                self._output += chunk

    def _wait_status(self) -> Optional[int]:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        return None if pid == 0 else status

    def _reaped(self) -> Optional[Result]:
        status = self._wait_status()
        if status is None:
            return None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        self._kill()  # what it may have started and left
        return self._settle(Outcome.DONE if code == 0 else Outcome.FAILED, code)

    def _kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EPERM):
                raise

    def _settle(self, outcome: Outcome, code: Optional[int]) -> Result:
        os.close(self.fd)
        error = os.pread(self._errors, 2000, 0).decode("utf-8", "replace")
        os.close(self._errors)
        text = bytes(self._output).decode("utf-8", "surrogateescape")
        took_s = time.monotonic() - self._started_s
        self.result = Result(outcome, text, error.strip(), code, self.pid, self._started_ticks, took_s)
        return self.result


def still_lives(pid: int, started_ticks: int) -> bool:
    """Is a child that was given up still there (and not another process with its id)?"""
    with contextlib.suppress(OSError):  # a child of an earlier run of the agent is not ours to reap
        os.waitpid(pid, os.WNOHANG)
    stat = process_stat(pid)
    return stat is not None and stat.started_ticks == started_ticks and stat.state not in "ZX"
