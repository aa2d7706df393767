"""The runner, over small programs that behave badly, and the back end over a scontrol that lies."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_lifecycle.errors import AmbiguousOutcome, BackendError, PermanentError, TransientError
from slurm_lifecycle.slurm.runner import CommandRunner, base_environment
from slurm_lifecycle.slurm.scontrol import ScontrolSettings, ScontrolSlurm


class Program:
    """A sh script in the place of scontrol, which notes every call."""

    def __init__(self, directory: Path, body: str) -> None:
        self.path = directory / "scontrol"
        self._log = directory / "calls"
        self.path.write_text(f'#!/bin/sh\necho "$@" >>{self._log}\n{body}\n')
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


def runner(**settings: object) -> CommandRunner:
    defaults: dict[str, object] = {"environment": base_environment(), "timeout_s": 5.0, "sleep": _no_sleep}
    return CommandRunner(**{**defaults, **settings})  # type: ignore[arg-type]


def _no_sleep(_: float) -> None:
    return


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("slurm_update error: Unable to contact slurm controller (connect failure)", TransientError),
        ("Error: Slurm backup controller in standby mode", TransientError),
        ("x: auth_g_create: REQUEST_UPDATE_NODE has authentication error", TransientError),
        ("delete_reservation x: Requested reservation is in use", TransientError),
        ("slurm_update error: Invalid user id", PermanentError),
        ("slurm_update error: Invalid node name specified", PermanentError),
        ("slurm_update error: Access/permission denied", PermanentError),
        ("slurm_update error: Socket timed out on send/recv operation", AmbiguousOutcome),
        ("slurm_update error: Zero Bytes were transmitted or received", AmbiguousOutcome),
        ("slurm_update error: Unable to contact slurm controller (receive failure)", AmbiguousOutcome),
        ("slurm_update error: Protocol authentication error", AmbiguousOutcome),
        ("Error creating the reservation: Unexpected message received", AmbiguousOutcome),
        ("something nobody has seen", AmbiguousOutcome),
        ("", AmbiguousOutcome),
    ],
)
def test_what_a_failed_write_means(tmp_path: Path, message: str, error: type[BackendError]) -> None:
    program = Program(tmp_path, f'echo "{message}" >&2; exit 1')
    with pytest.raises(error) as caught:
        runner().write([str(program.path), "update"], "drain n1")
    assert message in str(caught.value)
    assert type(caught.value) is error
    assert len(program.calls) == 1


def test_a_failed_read_is_asked_again_a_bounded_number_of_times(tmp_path: Path) -> None:
    program = Program(tmp_path, "echo 'Socket timed out' >&2; exit 1")
    waits: list[float] = []
    with pytest.raises(TransientError, match="Socket timed out"):
        runner(attempts=3, sleep=waits.append).read([str(program.path), "show"], "read nodes")
    assert len(program.calls) == 3
    assert waits == [0.5, 1.0]


def test_a_read_that_works_at_the_second_try(tmp_path: Path) -> None:
    program = Program(tmp_path, f"[ $(wc -l <{tmp_path}/calls) -gt 1 ] && echo fine && exit 0; exit 1")
    assert runner().read([str(program.path)], "read nodes") == "fine\n"


def test_an_absent_node_is_not_asked_for_again(tmp_path: Path) -> None:
    program = Program(tmp_path, "echo 'Node n9 not found'; exit 1")
    with pytest.raises(PermanentError):
        runner().read([str(program.path)], "read node n9")
    assert len(program.calls) == 1


def test_a_hanging_command_dies_with_all_its_children(tmp_path: Path) -> None:
    program = Program(tmp_path, f"sleep 300 & echo $! >{tmp_path}/child; trap '' TERM; wait; sleep 300")
    began = time.monotonic()
    with pytest.raises(AmbiguousOutcome, match="no answer in time"):
        runner(timeout_s=0.5).write([str(program.path)], "drain n1")
    assert time.monotonic() - began < 5
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 2
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_a_hanging_read_is_transient(tmp_path: Path) -> None:
    program = Program(tmp_path, "exec sleep 300")
    with pytest.raises(TransientError, match="no answer in time"):
        runner(timeout_s=0.2).read([str(program.path)], "read nodes")
    assert len(program.calls) == 2


def test_a_command_that_closes_its_pipes_and_stays(tmp_path: Path) -> None:
    program = Program(tmp_path, "exec >/dev/null 2>&1; sleep 300")
    with pytest.raises(AmbiguousOutcome, match="no answer in time"):
        runner(timeout_s=0.5).write([str(program.path)], "drain n1")


def test_output_without_end(tmp_path: Path) -> None:
    program = Program(tmp_path, "exec cat /dev/zero")
    limits = {"max_output_bytes": 100_000, "attempts": 1}
    with pytest.raises(TransientError, match="more than 100000 bytes"):
        runner(**limits).read([str(program.path)], "read nodes")
    with pytest.raises(AmbiguousOutcome, match="more than 100000 bytes"):
        runner(**limits).write([str(program.path)], "drain n1")


def test_a_command_killed_from_outside_is_ambiguous(tmp_path: Path) -> None:
    program = Program(tmp_path, "kill -9 $$")
    with pytest.raises(AmbiguousOutcome):
        runner().write([str(program.path)], "drain n1")


@pytest.mark.parametrize("path", ["/nonexistent/scontrol", "/dev/null"])
def test_a_command_that_cannot_start_has_sent_nothing(path: str) -> None:
    for call in (runner().write, runner().read):
        with pytest.raises(TransientError, match="cannot run"):
            call([path], "drain n1")


def test_the_environment_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("SQUEUE_STATES", "SQUEUE_FORMAT2", "SLURM_CLUSTERS", "SCONTROL_ALL", "SLURM_BITSTR_LEN"):
        monkeypatch.setenv(key, "x")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    program = Program(tmp_path, "env")
    own = CommandRunner(environment=base_environment("/etc/x.conf"))
    lines = own.read([str(program.path)], "x").splitlines()
    assert {"TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard", "SLURM_CONF=/etc/x.conf"} <= set(lines)
    names = {line.partition("=")[0] for line in lines}
    assert not names & {
        "SQUEUE_STATES",
        "SQUEUE_FORMAT2",
        "SLURM_CLUSTERS",
        "SCONTROL_ALL",
        "SLURM_BITSTR_LEN",
    }


# ---------------------------------------------------------------- the back end


def back_end(program: Program) -> ScontrolSlurm:
    settings = ScontrolSettings(scontrol=str(program.path), squeue=str(program.path), timeout_s=5.0)
    return ScontrolSlurm(settings, sleep=_no_sleep)


@pytest.mark.parametrize("body", ["echo garbage", "exit 0", "exit 1", "head -c 2000 /dev/urandom"])
def test_reads_from_a_scontrol_that_lies(tmp_path: Path, body: str) -> None:
    slurm = back_end(Program(tmp_path, body))
    reads: list[Callable[[], object]] = [
        slurm.nodes,
        slurm.jobs,
        slurm.reservations,
        slurm.config,
        lambda: slurm.node("n1"),
        lambda: slurm.jobs_on("n1"),
    ]
    for read in reads:
        with pytest.raises(TransientError):
            read()


@pytest.mark.parametrize("body", ["echo garbage", "exit 0", "exit 1"])
def test_writes_to_a_scontrol_that_lies_are_never_success(tmp_path: Path, body: str) -> None:
    program = Program(tmp_path, body)
    slurm = back_end(program)
    writes: list[Callable[[], None]] = [
        lambda: slurm.drain("n1", "slc:X gpu0 y"),
        lambda: slurm.undrain("n1"),
        lambda: slurm.resume("n1"),
        lambda: slurm.set_comment("n1", "x"),
        lambda: slurm.set_extra("n1", "x"),
        lambda: slurm.create_fence("slc-x", "n1"),
        lambda: slurm.renew_fence("slc-x", 1e9),
        lambda: slurm.remove_fence("slc-x"),
    ]
    for write in writes:
        with pytest.raises(AmbiguousOutcome):
            write()
    sent = [call for call in program.calls if not call.startswith("show")]
    assert len(sent) == len(writes), "a write is sent once"
    with pytest.raises(TransientError):
        slurm.reboot("n1")
    assert not [call for call in program.calls if call.startswith("reboot")], (
        "never sent without a look before"
    )
