"""The reporter against a `scontrol` that keeps one node's record in files, with a clock of the test's own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from slurm_lifecycle.node.config import AgentConfig
from slurm_lifecycle.node.findings import Finding, Sign
from slurm_lifecycle.node.reporter import Reporter
from slurm_lifecycle.node.state import load_state
from slurm_lifecycle.node.verdict import judge

_OURS = "slc:XID79 gpu3 fell off the bus"
_SCRIPT = """\
#!/bin/sh
cd {folder} || exit 9
echo "$@" >>calls
[ ! -e away ] || {{ echo 'Unable to contact slurm controller' >&2; exit 1; }}
if [ "$1" = update ]; then
    [ ! -e refuse ] || {{ echo 'slurm_update error: Invalid user id' >&2; exit 1; }}
    for word; do
        case $word in
            State=DRAIN) printf IDLE+DRAIN >state ;;
            Reason=*) printf %s " Reason=${{word#Reason=}} [root@2026-03-04T05:06:07]" >reason ;;
            Extra=*) printf %s " Extra=${{word#Extra=}}" >extra ;;
        esac
    done
    [ ! -e lost ] || {{ touch away; exit 1; }}
    exit 0
fi
printf 'NodeName=n1 Arch=x86_64 State=%s CfgTRES=cpu=2 AllocTRES=%s%s%s\\n' \\
    "$(cat state)" "$(cat reason)" "$(cat comment)" "$(cat extra)"
"""


class _Slurm:
    """One node's record as files, and the reporter that speaks with it."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder, self.now_s = folder, 100.0
        for name in ("reason", "comment", "extra", "calls"):
            self.set(name, "")
        self.set("state", "IDLE")
        script = folder / "scontrol"
        script.write_text(_SCRIPT.format(folder=folder), encoding="utf-8")
        script.chmod(0o755)
        values: dict[str, Any] = {"mode": "drain", "channel": "extra", **config}
        self.config = AgentConfig(
            run_dir=str(folder), scontrol=str(script), stop_file=str(folder / "stop"), **values
        )
        self.said: list[str] = []
        self.start()

    def start(self) -> None:
        """An agent that begins with what the last one left."""
        self.state = load_state(str(self.folder), "b0")
        self.reporter = Reporter(self.config, "n1", self.state, self.said.append, jitter=lambda: 0.5)

    def set(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def get(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def updates(self, word: str) -> int:
        return sum(f"update NodeName=n1 {word}" in line for line in self.get("calls").splitlines())

    def looks(self) -> int:
        return self.get("calls").count("show node")

    def findings(self, *codes: str) -> list[Finding]:
        return [Finding("check", Sign(code, "gpu3"), f"{code}-1", 1.0, 1.0) for code in codes]

    def announce(self, *codes: str) -> None:
        findings = self.findings(*codes)
        self.reporter.announce(judge(findings, self.reporter.may_gate(findings)), findings)

    def gated(self, *codes: str) -> bool:
        return self.reporter.may_gate(self.findings(*(codes or ("XID79",))))

    def settle(self) -> None:
        """Let what runs come to its end; the clock stands still."""
        self.reporter.advance(self.now_s)
        end_s = time.monotonic() + 10
        while self.reporter.busy:
            assert time.monotonic() < end_s
            time.sleep(0.005)
            self.reporter.advance(self.now_s)


@pytest.fixture
def slurm(tmp_path: Path) -> _Slurm:
    return _Slurm(tmp_path)


def test_an_extra_that_cannot_be_read_does_not_hold_up_a_drain(slurm: _Slurm) -> None:
    slurm.set("extra", ' Extra={"a":\n1}')
    slurm.announce()
    slurm.settle()
    assert "by hand" in " ".join(slurm.reporter.notes)
    slurm.now_s += 0.1
    slurm.announce("XID79")
    slurm.settle()
    assert slurm.get("state") == "IDLE+DRAIN"
    assert slurm.get("extra") == ' Extra={"a":\n1}'


# ---------------------------------------------------------------- counting drains


def test_a_drain_that_slurm_refused_is_none(slurm: _Slurm) -> None:
    slurm.set("refuse", "")
    slurm.announce("XID79")
    for _ in range(5):
        slurm.settle()
        slurm.now_s += 31
    assert (slurm.state.drains, slurm.updates("State=DRAIN")) == (0, 5)
    (slurm.folder / "refuse").unlink()
    slurm.settle()
    assert (slurm.get("state"), slurm.state.drains) == ("IDLE+DRAIN", 1)


def test_a_drain_whose_answer_was_lost_counts_once(slurm: _Slurm) -> None:
    slurm.set("lost", "")
    slurm.announce("XID79")
    slurm.settle()
    assert "does not answer" in " ".join(slurm.reporter.notes)
    (slurm.folder / "lost").unlink()
    (slurm.folder / "away").unlink()
    slurm.now_s += 61
    slurm.settle()
    assert (slurm.state.drains, slurm.state.done, slurm.updates("State=DRAIN")) == (1, {"XID79-1"}, 1)


def test_kills_right_after_each_drain_leave_room_for_no_fourth(slurm: _Slurm) -> None:
    for _ in range(6):
        slurm.set("state", "IDLE")  # a person undrains the node
        slurm.set("lost", "")  # and the agent is killed before it hears what came of the drain
        slurm.start()
        slurm.announce("XID79")
        slurm.settle()
        (slurm.folder / "away").unlink(missing_ok=True)
    assert slurm.updates("State=DRAIN") == 3


def test_the_number_of_drains_outlives_a_good_end(slurm: _Slurm) -> None:
    slurm.announce("XID79")
    slurm.settle()
    slurm.start()
    assert (slurm.state.drains, slurm.state.sent) == (1, False)


# ---------------------------------------------------------------- what forbids a drain forbids the gate


def test_the_stop_file_opens_the_gate_and_leaves_a_prolog_error_alone(slurm: _Slurm) -> None:
    assert slurm.gated()
    slurm.set("stop", "")
    assert not slurm.gated()
    slurm.set("refused.7", "XID79 gpu3")  # by a prolog that had read the verdict before
    slurm.set("state", "IDLE+DRAIN")
    at = time.strftime("%Y-%m-%dT%H:%M:%S")
    slurm.set("reason", f" Reason=Prolog error [root@{at}]")
    slurm.state.done = {"XID79-1"}
    slurm.announce("XID79")
    slurm.settle()
    assert slurm.updates("State=DRAIN") == 0
    (slurm.folder / "stop").unlink()
    slurm.announce("XID79")
    slurm.settle()
    assert slurm.updates("State=DRAIN") == 1


@pytest.mark.parametrize("mark", ["slc1[hold]", "slc1[drain;stop]"])
def test_a_mark_opens_the_gate_for_as_long_as_it_stands(slurm: _Slurm, mark: str) -> None:
    slurm.set("refuse", "")  # no drain comes to stand, which would open the gate by itself
    slurm.announce("XID79")
    slurm.settle()
    assert slurm.gated()
    slurm.set("comment", f" Comment={mark}")
    slurm.now_s += 31
    slurm.settle()
    assert not slurm.gated()
    slurm.set("comment", "")
    slurm.now_s += 31
    slurm.settle()
    assert slurm.gated()


def test_the_gate_opens_once_the_drain_stands_and_stays_so_after_a_persons_undrain(slurm: _Slurm) -> None:
    assert slurm.gated()
    slurm.announce("XID79")
    slurm.settle()
    assert slurm.get("state") == "IDLE+DRAIN"
    assert not slurm.gated()
    slurm.set("state", "IDLE")
    slurm.now_s += 120
    slurm.announce("XID79")
    slurm.settle()
    assert not slurm.gated()
    assert slurm.updates("State=DRAIN") == 1
    # Another part's fault is news.
    other = [*slurm.findings("XID79"), Finding("check", Sign("REMAP_FAILURE", "gpu5"), "R-2", 2.0, 2.0)]
    assert slurm.reporter.may_gate(other)


@pytest.mark.parametrize("codes", [(), ("XID79",)])
def test_a_node_without_a_gate_is_not_looked_at_for_marks(slurm: _Slurm, codes: tuple[str, ...]) -> None:
    slurm.announce(*codes)
    slurm.settle()
    slurm.announce(*codes)  # with what is settled by now
    slurm.settle()
    looks = slurm.looks()
    slurm.now_s += 100
    slurm.settle()
    assert slurm.looks() == looks


# ---------------------------------------------------------------- the verdict stays where it was written


def test_a_verdict_that_somebody_wrote_over_comes_back(slurm: _Slurm) -> None:
    slurm.announce()
    slurm.settle()
    slurm.set("extra", " Extra=rack 7")
    slurm.now_s += 901
    slurm.settle()
    assert slurm.get("extra") == " Extra=rack 7; slc1 b0 1 ok - -"
    writes = slurm.updates("Extra=")
    slurm.now_s += 901
    slurm.settle()
    assert slurm.updates("Extra=") == writes


def test_what_is_settled_is_remembered_for_open_findings_only(slurm: _Slurm) -> None:
    slurm.announce("XID79")
    slurm.settle()
    slurm.state.done |= {f"GPU_LOST-{number}" for number in range(5000)}
    slurm.announce("XID79")
    slurm.settle()
    slurm.announce("XID79", "XID31")
    slurm.settle()
    slurm.start()
    assert slurm.state.done == {"XID79-1"}
