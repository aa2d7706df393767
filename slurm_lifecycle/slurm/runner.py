"""Runs one of Slurm's commands, bounded in time and output, and says what its failure means.

A read that fails is a TransientError, whatever the cause, and is asked again a bounded number of times.
A write is sent once. It failed for certain when the connection never stood, or when slurmctld named a reason
to refuse; everything else is ambiguous. No theory: with slurmctld stopped (SIGSTOP) `scontrol update`
gave up with `Socket timed out` after 10 s, and the update took effect when slurmctld went on.
"""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from slurm_lifecycle.errors import AmbiguousOutcome, PermanentError, TransientError
from slurm_lifecycle.slurm.refusals import REFUSED, REFUSED_NOW

# scontrol gives up by itself after MessageTimeout (10 s by default) or, where nothing listens, about 9 s.
DEFAULT_TIMEOUT_S = 30.0
# 16,384 nodes make about 10 MB; a fleet of the same size with long texts stays below this.
DEFAULT_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
# How long a killed command may take to be gone before it is left to itself (D state).
_REAP_S = 2.0
_CHUNK_BYTES = 1 << 18

# What the commands may inherit. SQUEUE_*, SCONTROL_* and the like would change what they print.
_INHERITED = ("PATH", "HOME", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "LD_LIBRARY_PATH")

# The request did not reach slurmctld, or was turned away before it was looked at.
_NOT_SENT = (
    "(connect failure)",
    "Connection refused",
    "Could not establish a configuration source",
    "Unable to process configuration file",
    # No credential could be made. An authentication error without this may be about the answer.
    "auth_g_create",
    "standby mode",
    "cannot run ",
)
_ABSENT = re.compile(r"\bNode \S+ not found\b")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit status; None when it was ended from here, and then `stderr` says why.
    """

    code: int | None
    stdout: str
    stderr: str


def base_environment(slurm_conf: str | None = None) -> dict[str, str]:
    """The environment of every command: times in UTC, standard form, no locale, no private settings."""
    environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
    environment.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    if slurm_conf is not None:
        environment["SLURM_CONF"] = slurm_conf
    return environment | {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs commands and classifies their failures.

    Attributes:
        attempts: how often a read is tried.
        pause_s: the wait before the second try; it doubles after each.
    """

    environment: Mapping[str, str]
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
    attempts: int = 2
    pause_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep

    def read(self, argv: Sequence[str], operation: str) -> str:
        """Run a command that changes nothing; returns what it printed.

        Raises:
            PermanentError: the one thing asked for does not exist.
            TransientError: anything else, after the last try.
        """
        detail = ""
        for attempt in range(self.attempts):
            if attempt:
                self.sleep(self.pause_s * 2 ** (attempt - 1))
            ended = self._run(argv)
            if ended.code == 0:
                return ended.stdout
            detail = _detail(argv, ended)
            if ended.code is not None and _ABSENT.search(detail):
                raise PermanentError(operation, detail)
        raise TransientError(operation, detail)

    def write(self, argv: Sequence[str], operation: str) -> None:
        """Run a command that changes something, once. Returns when it said that all is well.

        Raises:
            TransientError: nothing happened, later it may.
            PermanentError: refused.
            AmbiguousOutcome: it may have happened, or happen still.
        """
        ended = self._run(argv)
        if ended.code == 0:
            return
        detail = _detail(argv, ended)
        if ended.code is not None:
            if any(text in detail for text in _NOT_SENT + REFUSED_NOW):
                raise TransientError(operation, detail)
            if any(text in detail for text in REFUSED):
                raise PermanentError(operation, detail)
        raise AmbiguousOutcome(operation, detail)

    def _run(self, argv: Sequence[str]) -> Ended:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment),
                start_new_session=True,
            )
        except OSError as error:
            # The shell's status for a command that could not be started.
            return Ended(code=127, stdout="", stderr=f"cannot run {argv[0]}: {error}")
        why, out, err = _collect(process, time.monotonic() + self.timeout_s, self.max_output_bytes)
        if why:
            _end(process)
            return Ended(code=None, stdout="", stderr=why)
        return Ended(code=process.wait(), stdout=_text(out), stderr=_text(err))


def _collect(
    process: subprocess.Popen[bytes], deadline: float, max_bytes: int
) -> tuple[str, bytearray, bytearray]:
    """Read both pipes to their end; the first value says why it was given up, or is empty."""
    assert process.stdout is not None
    assert process.stderr is not None
    buffers: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    why = ""
    with selectors.DefaultSelector() as selector:
        for pipe in buffers:
            selector.register(pipe, selectors.EVENT_READ, pipe)
        while selector.get_map() and not why:
            left_s = deadline - time.monotonic()
            ready = selector.select(left_s) if left_s > 0 else []
            if not ready:
                why = "no answer in time"
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                buffers[key.data] += chunk
                if not chunk:
                    selector.unregister(key.fileobj)
            if sum(len(buffer) for buffer in buffers.values()) > max_bytes:
                why = f"more than {max_bytes} bytes of output"
    # The pipes may be closed long before the command is gone.
    if not why and not _gone(process, deadline - time.monotonic()):
        why = "no answer in time"
    for pipe in buffers:
        pipe.close()
    return why, buffers[process.stdout], buffers[process.stderr]


def _gone(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        process.wait(max(wait_s, 0.05))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and all it started; one in D state is left behind, not waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _gone(process, _REAP_S)


def _text(data: bytearray) -> str:
    # Bytes that are not UTF-8 survive, so that a foreign Comment can be written back as it was.
    return data.decode("utf-8", "surrogateescape")


def _detail(argv: Sequence[str], ended: Ended) -> str:
    # scontrol says on stdout that a node does not exist, and the rest on stderr.
    text = f"{ended.stdout[-200:]} {ended.stderr}".encode("utf-8", "surrogateescape").decode(
        "utf-8", "replace"
    )
    status = f"{argv[0]} ended with {ended.code}" if ended.code is not None else argv[0]
    return f"{status}: {text.strip()[-400:] or 'no message'}"
