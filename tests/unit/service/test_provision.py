"""The reimage commands of a site, as real processes."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_lifecycle.core.model import ProvisionState
from slurm_lifecycle.errors import AmbiguousOutcome, BackendError, PermanentError, TransientError
from slurm_lifecycle.provision.command import CommandProvisioner

Script = Callable[[str, str], list[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Makes an executable sh script and gives its argument list."""

    def make(name: str, body: str) -> list[str]:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return [str(path)]

    return make


def test_start_hands_over_what_is_asked_for_and_nothing_else(script: Script, tmp_path: Path) -> None:
    start = script("start", f'echo "$#:$1:$NODE:$IMAGE:$OP_ID" > {tmp_path}/seen; env > {tmp_path}/env')
    os.environ["SLC_TEST_SECRET"] = "x"
    try:
        CommandProvisioner([*start, "a b;c"], []).start("n1", "ubuntu $(id)", "n1.5.reimage.1")
    finally:
        del os.environ["SLC_TEST_SECRET"]
    assert (tmp_path / "seen").read_text() == "1:a b;c:n1:ubuntu $(id):n1.5.reimage.1\n"
    names = {line.split("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == {"NODE", "IMAGE", "OP_ID", "PATH", "LC_ALL"}


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("echo no such image >&2; exit 3", PermanentError, "refused with 3: no such image"),
        ("echo busy; exit 75", TransientError, "not now: busy"),
        ("kill -9 $$", AmbiguousOutcome, "signal 9"),
        ("sleep 30", AmbiguousOutcome, "did not end within 0.3 s"),
        ("printf 'a\\033[2Jb\\nc' >&2; exit 1", PermanentError, "a [2Jb c"),
    ],
)
def test_what_a_failing_start_means(script: Script, body: str, error: type[BackendError], words: str) -> None:
    provisioner = CommandProvisioner(script("start", body), [], timeout_s=0.3 if "sleep" in body else 20)
    with pytest.raises(error) as raised:
        provisioner.start("n1", "i", "op")
    assert type(raised.value) is error
    assert words in str(raised.value)
    assert str(raised.value).isprintable()


def test_without_a_command_nothing_is_tried(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"set \[reimage\] start"):
        CommandProvisioner([], []).start("n1", "i", "op")
    with pytest.raises(PermanentError, match="No such file"):
        CommandProvisioner([str(tmp_path / "absent")], []).start("n1", "i", "op")
    status = CommandProvisioner([], []).poll("op", "n1")
    assert status.state is ProvisionState.UNKNOWN
    assert "[reimage] poll" in status.text


def test_a_start_that_hangs_is_killed_with_all_it_started(script: Script, tmp_path: Path) -> None:
    start = script("start", f"(sleep 1; touch {tmp_path}/late) & wait")
    with pytest.raises(AmbiguousOutcome):
        CommandProvisioner(start, [], timeout_s=0.2).start("n1", "i", "op")
    time.sleep(1.3)
    assert not (tmp_path / "late").exists()


def test_a_worker_that_start_leaves_behind_lives_on_and_delays_nothing(
    script: Script, tmp_path: Path
) -> None:
    # The worker keeps the output open, as a careless hook does.
    start = script("start", f"(sleep 2; touch {tmp_path}/worked) & exit 0")
    began = time.monotonic()
    CommandProvisioner(start, [], timeout_s=20).start("n1", "i", "op")
    assert time.monotonic() - began < 1.9
    deadline = time.monotonic() + 10
    while not (tmp_path / "worked").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "worked").exists()


@pytest.mark.parametrize(
    ("body", "state", "text"),
    [
        ("echo running 40%", ProvisionState.RUNNING, "40%"),
        ("echo done; echo failed", ProvisionState.DONE, ""),
        ("echo failed disk is gone", ProvisionState.FAILED, "disk is gone"),
        ("printf 'failed \\033]0;x\\007 \\342\\200\\256y'", ProvisionState.FAILED, "]0;x y"),
        ("echo done; exit 1", ProvisionState.UNKNOWN, "ended with 1: done"),
        ("echo finished", ProvisionState.UNKNOWN, "neither running, done nor failed: finished"),
        ("echo donee", ProvisionState.UNKNOWN, "neither"),
        ("echo; echo done", ProvisionState.UNKNOWN, "neither"),
        ("true", ProvisionState.UNKNOWN, "neither"),
        ("sleep 30", ProvisionState.UNKNOWN, "did not end within"),
        ("kill -9 $$", ProvisionState.UNKNOWN, "ended with -9"),
        ("echo running; yes | head -c 50000000", ProvisionState.RUNNING, ""),
    ],
)
def test_what_poll_prints(script: Script, body: str, state: ProvisionState, text: str) -> None:
    timeout_s = 0.3 if "sleep" in body else 30
    status = CommandProvisioner([], script("poll", body), timeout_s=timeout_s).poll("op", "n1")
    assert status.state is state, status
    assert text in status.text
    assert status.text.isprintable()
    assert len(status.text) <= 400


def test_poll_knows_the_operation(script: Script) -> None:
    poll = script("poll", 'echo "running $NODE $OP_ID $IMAGE"')
    assert CommandProvisioner([], poll, image="ubuntu").poll("op7", "n1").text == "n1 op7 ubuntu"


def test_an_operation_that_is_over_is_told_where_there_is_a_way(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    command = ("sh", "-c", f'echo "$NODE $OP_ID" >> {seen}; exit ${{CODE:-0}}')
    CommandProvisioner((), (), abort=command).abort("n1.1.reimage.1", "n1")
    assert seen.read_text() == "n1 n1.1.reimage.1\n"
    CommandProvisioner((), ()).abort("n1.1.reimage.1", "n1")
    with pytest.raises(TransientError, match="abort the reimage of n1"):
        CommandProvisioner((), (), abort=("sh", "-c", "echo no such host; exit 3")).abort("x.1", "n1")
