"""From lines of the kernel log to findings."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.core.fault_catalog import Level
from slurm_lifecycle.node.checks.kernel import CHECK_ID, KernelInterpreter
from slurm_lifecycle.node.checks.xid import normal_bus_id, parse_line
from slurm_lifecycle.node.config import AgentConfig
from slurm_lifecycle.node.findings import Sign, Tracker
from slurm_lifecycle.node.kernel_log import KernelLog, Record, parse_record, split_records
from slurm_lifecycle.node.monitor import Monitor
from slurm_lifecycle.node.state import AgentState

_LINES = Path(__file__).with_name("data") / "kernel_lines.txt"
_BUS = "0000:3b:00"
_OFF = f"NVRM: Xid (PCI:{_BUS}): 79, GPU has fallen off the bus."


def _golden() -> list[list[str]]:
    rows = _LINES.read_text(encoding="utf-8").splitlines()
    return [row.split("\t") for row in rows if not row.startswith("#")]


class _Log:
    """An interpreter that is fed lines at given uptimes."""

    def __init__(self, components: dict[str, str] | None = None) -> None:
        self.tracker = Tracker()
        names = components or {}
        self.interpreter = KernelInterpreter(
            self.tracker, lambda device: names.get(device, device), lambda _check, sign: sign
        )
        self.seq = 0

    def say(self, line: str, when_s: float = 100.0, now_s: float | None = None) -> None:
        self.seq += 1
        self.interpreter.feed([Record(self.seq, when_s, (line,))], when_s if now_s is None else now_s)

    def codes(self) -> list[str]:
        return [finding.sign.code for finding in self.tracker.findings]


@pytest.mark.parametrize("row", _golden(), ids=lambda row: row[3][:60])
def test_golden_lines(row: list[str]) -> None:
    level, code, subject, line = row
    log = _Log()
    log.say(line)
    found = [(f.level.value, f.sign.code, f.sign.device or f.sign.component) for f in log.tracker.findings]
    assert found == ([] if level == "-" else [(level, code, subject)])


def test_golden_file_covers_what_it_should() -> None:
    assert len(_golden()) >= 35
    assert {row[0] for row in _golden()} == {"-", "warn", "drain"}


def test_index_names_the_gpu() -> None:
    log = _Log({_BUS: "gpu3"})
    log.say(_OFF)
    assert log.tracker.findings[0].sign.component == "gpu3"


def test_index_that_comes_later_keeps_the_occurrence() -> None:
    log = _Log()
    log.say(_OFF)
    before = log.tracker.findings[0]
    log.tracker.name_devices({_BUS: "gpu3"})
    log.say(_OFF, 200.0)
    after = log.tracker.findings[0]
    assert (before.sign.component, after.sign.component) == (_BUS, "gpu3")
    assert before.occurrence == after.occurrence
    assert len(log.tracker.findings) == 1


def test_off_bus_in_three_lines() -> None:
    log = _Log()
    log.say("NVRM: The NVIDIA GPU 0000:3b:00.0")
    log.say("NVRM: (PCI ID: 10de:2330) installed in this system has")
    log.say("NVRM: fallen off the bus and is not responding to commands.")
    assert log.codes() == ["GPU_OFF_BUS"]
    assert log.tracker.findings[0].sign.device == _BUS


def test_third_line_without_the_first_is_nothing() -> None:
    log = _Log()
    log.say("NVRM: fallen off the bus and is not responding to commands.")
    log.say("NVRM: The NVIDIA GPU 0000:3b:00.0", 100.0)
    log.say("NVRM: fallen off the bus and is not responding to commands.", 150.0)
    assert log.codes() == []


@pytest.mark.parametrize("first", [0, 1])
def test_off_bus_and_xid_79_are_one_fault(first: int) -> None:
    lines = [_OFF, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."]
    log = _Log()
    log.say(lines[first])
    log.say(lines[1 - first])
    assert len(log.codes()) == 1


def test_three_lines_in_one_record() -> None:
    text = "NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: (PCI ID: 10de:2330) x"
    text += "\\x0aNVRM: fallen off the bus and is not responding"
    record = parse_record(f"4,1,100000000,-;{text}")
    assert record is not None
    log = _Log()
    log.interpreter.feed([record], 100.0)
    assert log.codes() == ["GPU_OFF_BUS"]


def test_45_after_its_cause_is_not_a_finding() -> None:
    log = _Log()
    log.say(f"NVRM: Xid (PCI:{_BUS}): 31, pid=1, name=x, MMU Fault", 100.0)
    for at_s in (100.1, 101.0, 104.9):
        log.say(f"NVRM: Xid (PCI:{_BUS}): 45, pid=1, name=x, Ch 1", at_s)
    assert log.codes() == ["XID31"]


def test_burst_is_one_event() -> None:
    log = _Log()
    for at_s in (100.0, 100.5, 104.0, 108.5):
        log.say(f"NVRM: Xid (PCI:{_BUS}): 31, pid=1, name=x, MMU Fault", at_s)
    assert log.tracker.findings[0].count == 1
    log.say(f"NVRM: Xid (PCI:{_BUS}): 31, pid=1, name=x, MMU Fault", 120.0)
    assert log.tracker.findings[0].count == 2


def _recovery(old: str, new: str) -> str:
    return f"NVRM: Xid (PCI:{_BUS}): 154, GPU recovery action changed from {old} to {new}"


def test_154_overrides_the_table_in_both_directions() -> None:
    log = _Log()
    log.say(f"NVRM: Xid (PCI:{_BUS}): 119, pid=1, name=x, Timeout")
    log.say(_recovery("0x0 (None)", "0x1 (GPU Reset Required)"))
    log.say(_recovery("0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)"))
    assert log.codes() == ["RECOVERY_REBOOT", "XID119"]
    log.say(_recovery("0x2 (Node Reboot Required)", "0x0 (None)"))
    assert log.codes() == []


def test_154_to_none_does_not_heal_a_gpu_off_the_bus_or_another_gpu() -> None:
    log = _Log()
    log.say(_OFF)
    log.say("NVRM: Xid (PCI:0000:4c:00): 119, pid=1, name=x, Timeout")
    log.say(_recovery("0x2 (Node Reboot Required)", "0x0 (None)"))
    assert log.codes() == ["XID79", "XID119"]


def test_application_fault_is_quiet_after_ten_minutes() -> None:
    log = _Log()
    log.say(f"NVRM: Xid (PCI:{_BUS}): 13, pid=1, name=x, Graphics Exception", 100.0)
    log.tracker.tick(699.0)
    assert log.codes() == ["XID13"]
    log.tracker.tick(700.0)
    assert log.codes() == []
    log.say(f"NVRM: Xid (PCI:{_BUS}): 13, pid=1, name=x, Graphics Exception", 100.0, now_s=2000.0)
    assert log.codes() == []


def test_hardware_fault_of_early_in_the_boot_is_found_late() -> None:
    log = _Log()
    log.say(_OFF, 100.0, now_s=90000.0)
    log.tracker.tick(90000.0)
    assert log.codes() == ["XID79"]


def test_lost_records_warn_and_go() -> None:
    log = _Log()
    log.interpreter.lost_records(50.0)
    assert [(f.sign.code, f.level) for f in log.tracker.findings] == [("CHECK_FAILED", Level.WARN)]
    log.tracker.tick(650.0)
    assert log.codes() == []


# ---------------------------------------------------------------- records


def test_user_space_cannot_forge_a_record() -> None:
    assert parse_record(f"12,1,5,-;{_OFF}") is None  # facility 1: written to /dev/kmsg by a process
    assert parse_record(f"30,1,5,-;{_OFF}") is None
    assert parse_record(f"6,1,5,-;{_OFF}") == Record(1, 5e-6, (_OFF,))


def test_forged_continuation_line_is_no_text() -> None:
    record = parse_record(f"6,7,5000000,c,more;harmless\n SUBSYSTEM=pci\n {_OFF}")
    assert record == Record(7, 5.0, ("harmless",))


@pytest.mark.parametrize(
    "quoting", ["app[42]: segfault at 0 error 6 in {}[1102,7f60]", "tmpfs: Unknown parameter '{}'"]
)
@pytest.mark.parametrize(
    "forged",
    [
        _OFF,
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30",
        "NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: fallen off the bus and is not responding",
    ],
)
def test_a_name_with_newlines_in_a_kernel_message_forges_nothing(quoting: str, forged: str) -> None:
    # Both were seen on Linux 6.18, from an unprivileged user: a shared library, and a mount option.
    record = parse_record("4,1,100000000,-;" + quoting.format(f"x\\x0a{forged}\\x0a"))
    assert record is not None
    assert len(record.lines) > 2
    log = _Log()
    log.interpreter.feed([record], 100.0)
    assert log.codes() == []


def test_a_name_with_newlines_takes_no_verdict_of_the_driver_back() -> None:
    log = _Log()
    log.say(f"NVRM: Xid (PCI:{_BUS}): 119, pid=1, name=x, Timeout")
    forged = _recovery("0x1 (GPU Reset Required)", "0x0 (None)")
    record = parse_record(f"4,2,100000000,-;NVRM: evil[42]: segfault in x\\x0a{forged}")
    assert record is not None
    log.interpreter.feed([record], 100.0)
    assert log.codes() == ["XID119"]


@pytest.mark.parametrize("text", ["", ";", "x,y,z;a", "6,1;a", "-6,1,2,-;a", "no record", "6,1,2,-"])
def test_garbage_is_no_record(text: str) -> None:
    assert parse_record(text) is None


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_record(text)
    parse_line(text)


@given(st.text(alphabet="NVRM: Xid(PC0123456789abf.,)-\n", max_size=80))
def test_nearly_right_lines_never_raise(text: str) -> None:
    event = parse_line(text)
    assert event is None or "Xid" in text


@given(
    st.lists(st.from_regex(r"6,[0-9]{1,4},[0-9]{1,6},-;[a-z ]{0,20}(\n [A-Z]+=[a-z]{1,5})?", fullmatch=True)),
    st.data(),
)
def test_a_file_cut_anywhere_gives_the_same_records(records: list[str], data: st.DataObject) -> None:
    text = "".join(f"{record}\n" for record in records)
    cut = data.draw(st.integers(0, len(text)))
    begin, rest = split_records(text[:cut])
    end, left = split_records(rest + text[cut:])
    assert left == ""
    # A continuation line may be cut from its record; the records' own lines are the same either way.
    heads = [record.split("\n")[0] for record in begin + end if not record.startswith(" ")]
    assert heads == [record.split("\n")[0] for record in records]


@given(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31), st.booleans())
def test_bus_id_forms_are_one(domain: int, bus: int, device: int, long: bool) -> None:
    text = f"{domain:08X}:{bus:02X}:{device:02X}.0" if long else f"{domain:04x}:{bus:02x}:{device:02x}"
    assert normal_bus_id(text) == f"{domain:04x}:{bus:02x}:{device:02x}"


def test_file_is_read_on_from_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,10,-;one\n6,2,20,-;two\n6,3,30,-;thr", encoding="utf-8")
    log = KernelLog(str(path), after_seq=1)
    assert log.polled
    assert [record.lines for record in log.read()] == [("two",)]
    with path.open("a", encoding="utf-8") as file:
        file.write("ee\n12,4,40,-;user\n6,5,50,-;five\n")
    assert [record.lines for record in log.read()] == [("three",), ("five",)]
    assert (log.read(), log.seq) == ([], 5)
    log.close()


def _monitor(folder: Path) -> Monitor:
    config = AgentConfig(run_dir=str(folder), kmsg=str(folder / "kmsg"), filesystems=(), expected_gpus=0)
    return Monitor(config, AgentState("b0"))


def test_a_fault_behind_much_of_user_space_is_found_in_the_same_turn(tmp_path: Path) -> None:
    noise = "".join(f"12,{seq},5,-;{'x' * 100}\n" for seq in range(3000))
    (tmp_path / "kmsg").write_text(f"{noise}3,5000,5,-;{_OFF}\n", encoding="ascii")
    monitor = _monitor(tmp_path)
    monitor.advance(100.0)
    monitor.close()
    assert [finding.sign.code for finding in monitor.tracker.findings] == ["XID79"]


def test_a_log_that_never_ends_does_not_hold_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kmsg").write_text("", encoding="ascii")
    monitor, reads = _monitor(tmp_path), []

    def read(log: KernelLog) -> list[Record]:
        reads.append(1)
        return [Record(len(reads), 1.0, (_OFF,))]

    monkeypatch.setattr(KernelLog, "read", read)
    monitor.advance(100.0)
    monitor.close()
    assert 1 < len(reads) < 1000
    assert [finding.sign.code for finding in monitor.tracker.findings] == ["XID79"]


def test_device_gives_a_record_a_read_and_says_what_was_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, kernel = socket.socketpair(
        socket.AF_UNIX, socket.SOCK_DGRAM
    )  # keeps message borders, as the device does
    ours.setblocking(False)
    path = tmp_path / "kmsg"
    path.write_text("", encoding="utf-8")
    log = KernelLog(str(path))
    os.dup2(ours.fileno(), log.fd)
    log.polled = False
    kernel.send(b"6,8,1,-;eight\n KEY=value\n")
    kernel.send(b"6,9,2,-;nine\n")
    assert [record.lines for record in log.read()] == [("eight",), ("nine",)]
    assert not log.take_lost()
    real_read, failures = os.read, [OSError(32, "Broken pipe")]

    def read_with_epipe(fd: int, size: int) -> bytes:
        if fd == log.fd and failures:
            raise failures.pop()
        return real_read(fd, size)

    monkeypatch.setattr(os, "read", read_with_epipe)
    kernel.send(b"6,90,3,-;ninety\n")
    assert [record.seq for record in log.read()] == [90]
    assert log.take_lost()
    assert not log.take_lost()
    for end in (ours, kernel):
        end.close()
    log.close()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="needs to read /dev/kmsg")
def test_the_real_kernel_log_can_be_read() -> None:
    log = KernelLog("/dev/kmsg")
    assert not log.polled
    first = log.read()
    numbers = [record.seq for record in first]
    assert numbers == sorted(set(numbers))
    log.close()


def test_observed_check_warns_at_most() -> None:
    tracker = Tracker()
    interpreter = KernelInterpreter(
        tracker,
        str,
        lambda _check, sign: Sign(sign.code, sign.component, device=sign.device, level_cap=Level.WARN),
    )
    interpreter.feed([Record(1, 1.0, (_OFF,))], 1.0)
    assert [(f.check, f.level) for f in tracker.findings] == [(CHECK_ID, Level.WARN)]
