"""Children that can be given up."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.node.child import FILE_LIMIT_BYTES, OUTPUT_LIMIT_BYTES, Child, Outcome, still_lives
from slurm_lifecycle.node.system import process_stat


def _gone(pid: int) -> bool:
    for _ in range(40):
        stat = process_stat(pid)
        if stat is None or stat.state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_function_and_its_lines() -> None:
    def work() -> Iterator[str]:
        yield "one"
        yield "two \udcff"

    result = Child(work, 5).wait()
    assert (result.outcome, result.output, result.code) == (Outcome.DONE, "one\ntwo \udcff\n", 0)


def test_a_command_with_its_own_errors() -> None:
    result = Child(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], 5).wait()
    assert (result.outcome, result.output, result.error, result.code) == (Outcome.FAILED, "out\n", "err", 3)


def test_a_missing_command_and_a_failing_function() -> None:
    missing = Child(["/nonexistent/tool"], 5).wait()
    assert (missing.outcome, missing.code) == (Outcome.FAILED, 127)

    def work() -> Iterator[str]:
        yield "begun"
        raise RuntimeError("no")

    failing = Child(work, 5).wait()
    assert (failing.outcome, failing.output, failing.error) == (Outcome.FAILED, "begun\n", "RuntimeError: no")


def test_a_hang_is_killed_with_all_it_started_and_keeps_its_output(tmp_path: Path) -> None:
    script = f"echo early; sleep 60 & echo $! >{tmp_path}/pid; trap '' TERM; wait"
    begin = time.monotonic()
    result = Child(["/bin/sh", "-c", script], 0.5).wait()
    assert time.monotonic() - begin < 3
    assert (result.outcome, result.output) == (Outcome.HUNG, "early\n")
    assert _gone(int((tmp_path / "pid").read_text(encoding="ascii")))
    assert not still_lives(result.pid, result.started_ticks)


def test_what_a_child_leaves_behind_is_ended(tmp_path: Path) -> None:
    script = f"sleep 60 >/dev/null 2>&1 & echo $! >{tmp_path}/pid"
    assert Child(["/bin/sh", "-c", script], 5).wait().outcome is Outcome.DONE
    assert _gone(int((tmp_path / "pid").read_text(encoding="ascii")))


def test_output_is_bounded() -> None:
    result = Child(["/bin/sh", "-c", "head -c 5000000 /dev/zero"], 10).wait()
    assert result.outcome is Outcome.DONE
    assert len(result.output) <= OUTPUT_LIMIT_BYTES + 65536


def test_endless_output_and_errors_take_bounded_memory_and_time() -> None:
    child = Child(["/bin/sh", "-c", "yes & exec yes >&2"], 1)
    largest, begin = 0, time.monotonic()
    while child.poll() is None:
        largest = max(largest, os.fstat(child._errors).st_size)
        assert time.monotonic() - begin < 8
    assert child.result is not None
    assert child.result.outcome is not Outcome.DONE
    assert 0 < largest <= FILE_LIMIT_BYTES
    assert len(child.result.output) <= OUTPUT_LIMIT_BYTES + 65536


def test_a_child_that_closes_its_output_is_waited_for_without_a_descriptor() -> None:
    child = Child(["/bin/sh", "-c", "exec >&- ; sleep 0.3"], 5)
    assert child.waiting_fd is not None
    select.select([child.waiting_fd], [], [], 5)
    child.poll()
    assert child.waiting_fd is None
    assert child.wait().outcome is Outcome.DONE


def test_children_die_with_a_killed_agent(tmp_path: Path) -> None:
    script = (
        "import time; from slurm_lifecycle.node.child import Child\n"
        "child = Child(['/bin/sleep', '60'], 60); time.sleep(0.2)\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait(timeout=5)
    assert _gone(pid)


def test_no_descriptor_leaks() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        Child(["/bin/true"], 5).wait()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.fixture
def frozen_file(tmp_path: Path) -> Iterator[Path]:
    """A file on a frozen file system: whoever writes to it sleeps where no signal reaches."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["truncate", "-s", "16M", str(image)], check=True, timeout=30)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, timeout=60)
    try:
        subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True, timeout=30)
    except subprocess.CalledProcessError:
        pytest.skip("cannot mount a loop device here")
    try:
        subprocess.run(["fsfreeze", "-f", str(mount)], check=True, timeout=30)
        try:
            yield mount / "file"
        finally:
            subprocess.run(["fsfreeze", "-u", str(mount)], check=True, timeout=30)
            time.sleep(0.2)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True, timeout=30)


@pytest.mark.live
def test_a_child_in_uninterruptible_sleep_is_stuck_and_not_waited_for(frozen_file: Path) -> None:
    def work() -> Iterator[str]:
        yield "before"
        frozen_file.write_text("x", encoding="ascii")

    begin = time.monotonic()
    result = Child(work, 0.5).wait()
    assert time.monotonic() - begin < 3
    assert (result.outcome, result.output) == (Outcome.STUCK, "before\n")
    assert still_lives(result.pid, result.started_ticks)
    assert not still_lives(result.pid, result.started_ticks + 1)
