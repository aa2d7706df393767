"""Notices: each cause told once in a while, bounded, and never a reason to fail."""

import logging
import stat
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.service import notify
from slurm_lifecycle.service.log import configure_logging
from slurm_lifecycle.service.notify import CommandNotifier, LogNotifier


class _Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def log() -> Iterator[StringIO]:
    stream = StringIO()
    configure_logging("text", stream=stream)
    yield stream
    logging.getLogger("slurm_lifecycle").handlers.clear()


@pytest.fixture
def command(tmp_path: Path) -> Callable[[str], list[str]]:
    def make(body: str) -> list[str]:
        path = tmp_path / "command"
        path.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/ran\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return [str(path)]

    return make


def _ran(tmp_path: Path) -> int:
    return len((tmp_path / "ran").read_text().splitlines()) if (tmp_path / "ran").exists() else 0


def _notice(key: str = "held:n1", text: str = "held for a person") -> Notice:
    return Notice(key, "page", "n1", text)


def test_the_command_gets_one_plain_line(
    command: Callable[[str], list[str]], tmp_path: Path, clock: _Clock, log: StringIO
) -> None:
    argv = command(f'printf "%s|%s|%s|%s" "$TEXT" "$NODE" "$URGENCY" "$KEY" > {tmp_path}/told')
    CommandNotifier(argv, clock.now).notify(_notice(text="a\nb \x1b[31m$(id) \x00c"))
    assert (tmp_path / "told").read_text() == "a b [31m$(id) c|n1|page|held:n1"
    assert "notice text=" in log.getvalue()


def test_a_cause_is_told_once_in_six_hours(
    command: Callable[[str], list[str]], tmp_path: Path, clock: _Clock, log: StringIO
) -> None:
    notifier = CommandNotifier(command("exit 0"), clock.now)
    for _ in range(5):
        notifier.notify(_notice())
        clock.at += 10
    assert _ran(tmp_path) == 1
    notifier.notify(_notice("held:n2"))
    assert _ran(tmp_path) == 2
    clock.at += 6 * 3600
    notifier.notify(_notice())
    assert _ran(tmp_path) == 3
    assert log.getvalue().count(" notice ") == 3


def test_a_clock_that_was_set_back_silences_nothing(
    command: Callable[[str], list[str]], tmp_path: Path, clock: _Clock, log: StringIO
) -> None:
    notifier = CommandNotifier(command("exit 0"), clock.now)
    notifier.notify(_notice())
    clock.at -= 500
    notifier.notify(_notice())
    assert _ran(tmp_path) == 2


def test_a_failing_command_is_logged_and_tried_again_later(
    command: Callable[[str], list[str]], tmp_path: Path, clock: _Clock, log: StringIO
) -> None:
    notifier = CommandNotifier(command("echo no route >&2; exit 7"), clock.now)
    for _ in range(10):
        notifier.notify(_notice())
        clock.at += 10
    assert _ran(tmp_path) == 1
    assert log.getvalue().count("notice_failed") == 1
    assert "ended with 7: no route" in log.getvalue()
    clock.at += notify.RETRY_AFTER_S
    notifier.notify(_notice())
    assert _ran(tmp_path) == 2


def test_a_command_that_hangs_holds_the_daemon_once(
    command: Callable[[str], list[str]], tmp_path: Path, clock: _Clock, log: StringIO
) -> None:
    notifier = CommandNotifier(command("sleep 30"), clock.now, timeout_s=0.3)
    began = time.monotonic()
    for number in range(200):
        notifier.notify(_notice(f"held:n{number}"))
    assert time.monotonic() - began < 5
    assert _ran(tmp_path) == 1
    assert "did not end within 0.3 s" in log.getvalue()
    # All of them are in the log, and those that were not told are told when the command works.
    assert log.getvalue().count(" notice ") == 200
    command("exit 0")
    clock.at += notify.RETRY_AFTER_S
    notifier.notify(_notice("held:n199"))
    assert _ran(tmp_path) == 2


def test_a_slow_command_gets_a_share_of_the_time_and_what_still_waits_is_told_later(
    command: Callable[[str], list[str]], tmp_path: Path, log: StringIO
) -> None:
    later = [0.0]

    def now() -> float:
        # Each run of the command takes two seconds of this clock.
        return 1000.0 + later[0] + 2.0 * _ran(tmp_path)

    notifier = CommandNotifier(command("exit 0"), now)
    for number in range(50):
        notifier.notify(_notice(f"waits:n{number}"))
    assert _ran(tmp_path) == 8
    for _ in range(10):
        later[0] += 60.0
        for number in range(50):
            notifier.notify(_notice(f"waits:n{number}"))
    assert _ran(tmp_path) == 50


def test_a_command_that_is_missing_is_logged(tmp_path: Path, clock: _Clock, log: StringIO) -> None:
    CommandNotifier([str(tmp_path / "absent")], clock.now).notify(_notice())
    assert "No such file" in log.getvalue()


def test_memory_is_bounded(clock: _Clock, log: StringIO) -> None:
    notifier = LogNotifier(clock.now)
    for number in range(notify.MAX_KEYS + 100):
        notifier.notify(_notice(f"k{number}"))
    assert len(notifier._quiet._until) == notify.MAX_KEYS
    # The oldest was forgotten, the newest not.
    before = log.getvalue().count("\n")
    notifier.notify(_notice("k0"))
    notifier.notify(_notice(f"k{notify.MAX_KEYS + 99}"))
    assert log.getvalue().count("\n") == before + 1


def test_urgency_decides_the_level(clock: _Clock, log: StringIO) -> None:
    LogNotifier(clock.now).notify(Notice("a", "page", "n1", "look"))
    LogNotifier(clock.now).notify(Notice("b", "info", "n1", "fyi"))
    first, second = log.getvalue().splitlines()
    assert " warning notice " in first
    assert " info notice " in second
