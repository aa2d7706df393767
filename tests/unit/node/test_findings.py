"""How findings come and go, and what verdict they make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.core.fault_catalog import FAULTS, Level
from slurm_lifecycle.node.findings import Sign, Tracker, plain
from slurm_lifecycle.node.state import AgentState, load_state, save_state
from slurm_lifecycle.node.verdict import (
    Segment,
    Verdict,
    format_file,
    format_reason,
    join_extra,
    judge,
    split_extra,
)

_BOOT = "b0"


def test_condition_clears_when_the_check_reads_well() -> None:
    tracker = Tracker()
    tracker.apply_sample("gpu_lost", [Sign("GPU_LOST", "gpu3")], 1.0)
    tracker.apply_sample("gpu_ecc", [], 2.0)
    assert [f.sign.code for f in tracker.findings] == ["GPU_LOST"]
    tracker.apply_sample("gpu_lost", [], 3.0)
    assert tracker.findings == []


def test_a_subject_that_did_not_answer_has_not_become_well() -> None:
    tracker = Tracker()
    sign = Sign("REMAP_FAILURE", "gpu3", device="0000:40:00")
    tracker.apply_sample("gpu_remap", [sign], 1.0)
    tracker.apply_sample("gpu_remap", [], 2.0, frozenset({"0000:40:00"}))
    assert len(tracker.findings) == 1


def test_the_same_fault_again_is_a_new_occurrence() -> None:
    tracker = Tracker()
    seen = []
    for now_s in (1.0, 2.0):
        tracker.apply_sample("gpu_lost", [Sign("GPU_LOST", "gpu3")], now_s)
        seen.append(tracker.findings[0].occurrence)
        tracker.apply_sample("gpu_lost", [], now_s + 0.5)
    assert seen[0] != seen[1]


def test_boot_rule_holds_whatever_the_check_says_later() -> None:
    tracker = Tracker()
    for at_s in (1.0, 1.5):
        tracker.apply_sample("probe.nvml", [Sign("PROBE_DSTATE", "nvml")], at_s)
    tracker.apply_sample("probe.nvml", [], 2.0)
    tracker.tick(1e9)
    assert len(tracker.findings) == 1


@pytest.mark.parametrize("code", ["FS_FULL", "GPU_COUNT", "DRIVER_MISMATCH", "DRIVER_DOWN", "PROBE_HUNG"])
def test_noise_needs_two_samples_in_a_row(code: str) -> None:
    tracker, sign = Tracker(), Sign(code, "x")
    tracker.apply_sample("check", [sign], 1.0)
    assert (tracker.findings, tracker.has_unconfirmed) == ([], True)
    tracker.apply_sample("check", [], 2.0)
    assert not tracker.has_unconfirmed
    tracker.apply_sample("check", [sign], 3.0)
    assert tracker.findings == []
    tracker.apply_sample("check", [sign], 4.0)
    assert [f.sign.code for f in tracker.findings] == [code]
    assert not tracker.has_unconfirmed


@pytest.mark.parametrize("code", ["GPU_LOST", "REMAP_FAILURE", "RECOVERY_REBOOT"])
def test_certain_signs_need_one(code: str) -> None:
    tracker = Tracker()
    tracker.apply_sample("check", [Sign(code, "x")], 1.0)
    assert len(tracker.findings) == 1


def _judged(*signs: Sign, mode: str = "drain") -> Verdict:
    tracker = Tracker()
    for number, sign in enumerate(signs):
        tracker.raise_sign("check", sign, float(number))
    return judge(tracker.findings, mode == "drain")


def test_the_worst_finding_decides() -> None:
    verdict = _judged(
        Sign("XID31", "gpu1"), Sign("FS_FULL", "/tmp"), Sign("XID48", "gpu2"), Sign("XID79", "gpu3")
    )
    assert (verdict.level, verdict.code, verdict.component, verdict.gate) == (
        Level.DRAIN,
        "XID79",
        "gpu3",
        True,
    )


def test_of_equals_the_first_stays() -> None:
    assert _judged(Sign("XID79", "gpu3"), Sign("GPU_LOST", "gpu3"), Sign("GPU_COUNT", "gpus")).code == "XID79"


@pytest.mark.parametrize(
    ("code", "mode", "gate"),
    [
        ("XID79", "drain", True),
        ("XID79", "observe", False),
        ("FS_READONLY", "drain", False),
        ("DRIVER_MISMATCH", "drain", False),
        ("XID31", "drain", False),
        ("REMAP_PENDING", "drain", False),
    ],
)
def test_the_gate_closes_for_certain_hardware_in_drain_mode_only(code: str, mode: str, gate: bool) -> None:
    assert _judged(Sign(code, "gpu1"), mode=mode).gate is gate


def test_a_check_that_observes_never_closes_the_gate() -> None:
    verdict = _judged(Sign("XID79", "gpu3", level_cap=Level.WARN))
    assert (verdict.level, verdict.gate) == (Level.WARN, False)


def test_verdict_file() -> None:
    assert format_file(_judged(), 77.9, _BOOT) == f"v1 ok 77 {_BOOT} - all checks passed\ngate no\n"
    text = format_file(_judged(Sign("XID79", "gpu3")), 77.9, _BOOT)
    assert text == f"v1 drain 77 {_BOOT} XID79 gpu3 fell off the bus\ngate yes\n"


@given(st.text(), st.text(), st.sampled_from(sorted(FAULTS)))
def test_no_text_breaks_the_file_or_the_reason(text: str, component: str, code: str) -> None:
    verdict = _judged(Sign(code, component, text, text))
    lines = format_file(verdict, 1.0, _BOOT).split("\n")
    assert len(lines) == 3
    assert lines[0].split(" ")[:5] == ["v1", verdict.level.value, "1", _BOOT, code]
    assert " " not in verdict.component
    reason = format_reason(code, component, text)
    assert re.fullmatch(r"slc:[A-Za-z0-9 ._:/+-]{1,196}", reason)
    assert plain(plain(text)) == plain(text)


_WORD = st.from_regex(r"[A-Za-z0-9_.:-]{1,12}", fullmatch=True)
_SEGMENTS = st.builds(
    Segment, _WORD, st.integers(0, 10**8), st.sampled_from(["ok", "warn", "drain"]), _WORD, _WORD
)


@given(st.text(), _SEGMENTS, _SEGMENTS)
def test_foreign_extra_survives(foreign: str, first: Segment, second: Segment) -> None:
    if split_extra(foreign)[1] is not None:
        return
    written = join_extra(foreign, first)
    assert split_extra(written) == (foreign, first)
    again = join_extra(split_extra(written)[0], second)
    assert split_extra(again) == (foreign, second)


@pytest.mark.parametrize(
    "extra",
    ["", "rack=7", "slc1 b 1 ok - -; rack=7", "slc1 b x ok - -", "slc1 b 1 fine - -", "myslc1 b 1 ok - -"],
)
def test_what_is_not_our_segment_at_the_end_is_foreign(extra: str) -> None:
    assert split_extra(extra) == (extra, None)


def test_state_survives_a_restart_and_not_a_boot(tmp_path: Path) -> None:
    tracker = Tracker()
    tracker.raise_sign("kernel_log", Sign("XID79", "gpu3", "", "line", "0000:40:00"), 5.0)
    tracker.raise_sign("fs_space", Sign("FS_FULL", "/tmp", level_cap=Level.WARN), 6.0)
    state = AgentState(_BOOT, 3, ("drain", "XID79", "gpu3"), 1, {"XID79-1"}, 2, 44, {"nvml": (7, 8)})
    state.findings = tracker.findings
    save_state(str(tmp_path), state)
    assert load_state(str(tmp_path), _BOOT) == state
    assert load_state(str(tmp_path), "b1") == AgentState("b1")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"boot_id": "b0"}', '{"boot_id": "b0", "seq": []}'])
def test_damaged_state_is_a_fresh_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "agent_state.json").write_text(text, encoding="utf-8")
    assert load_state(str(tmp_path), _BOOT) == AgentState(_BOOT)
