"""Runs a site's own command (reimage, ticket, notice, ssh), bounded in time and output, without a shell."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_OUTPUT_BYTES = 64 * 1024
# A command may leave a worker behind that holds its output open; what it had to say came before it ended.
_AFTER_END_S = 0.5
# How long a killed command may take to be gone before it is left to itself (D state).
_REAP_S = 2.0
_LOOK_S = 0.1
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit status, negative for a signal; None when it was not started or did not end in time.
        started: False when nothing was run at all.
        failure: why `code` is None, "" otherwise.
    """

    code: int | None
    stdout: str
    stderr: str
    started: bool = True
    failure: str = ""

    @property
    def first_words(self) -> str:
        """What it said, for an error: the end of stderr, or of stdout where that is empty."""
        return (self.stderr.strip() or self.stdout.strip())[-300:]


def run_site_command(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Ended:
    """Run a command and wait for its end.

    It gets a process group of its own, which is killed as a whole when the time is over. A worker that the
    command left behind lives on. Output beyond the limit is read and thrown away.

    Args:
        argv: the command and its arguments.
        environment: all it gets beside a standard PATH and a plain locale.
        timeout_s: until it is killed.
        max_output_bytes: kept of each of stdout and stderr.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": DEFAULT_PATH, "LC_ALL": "C", **environment},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        # ValueError: a NUL in an argument.
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Ended(
            None, "", "", started=False, failure=f"cannot run {argv[0] if argv else '(nothing)'}: {why}"
        )
    deadline = time.monotonic() + timeout_s
    out, err = _collect(process, deadline, max_output_bytes)
    if not _gone(process, deadline - time.monotonic()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        _gone(process, _REAP_S)
        return Ended(None, _text(out), _text(err), failure=f"{argv[0]} did not end within {timeout_s:g} s")
    return Ended(process.returncode, _text(out), _text(err))


def _collect(process: subprocess.Popen[bytes], deadline: float, limit: int) -> tuple[bytearray, bytearray]:
    """Read both pipes until they end, the command is gone, or the time is over."""
    assert process.stdout is not None
    assert process.stderr is not None
    kept: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    gone = False
    with selectors.DefaultSelector() as selector:
        for pipe in kept:
            selector.register(pipe, selectors.EVENT_READ, pipe)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(_LOOK_S):
                chunk = os.read(key.fd, _CHUNK_BYTES)
                kept[key.data] += chunk[: max(0, limit - len(kept[key.data]))]
                if not chunk:
                    selector.unregister(key.fileobj)
            if not gone and process.poll() is not None:
                gone = True
                deadline = min(deadline, time.monotonic() + _AFTER_END_S)
    for pipe in kept:
        pipe.close()
    return kept[process.stdout], kept[process.stderr]


def _gone(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        process.wait(max(wait_s, 0.05))
    except subprocess.TimeoutExpired:
        return False
    return True


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
