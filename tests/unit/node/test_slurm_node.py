"""The node's record, the drain decision, and the conversation with Slurm. No process is started here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.node.child import Outcome, Result
from slurm_lifecycle.node.drain import Act, Decision, decide, decide_locally, wanted
from slurm_lifecycle.node.findings import Finding, Sign
from slurm_lifecycle.node.slurm_node import NodeRecord, UnknownNodeError, parse_node
from slurm_lifecycle.node.slurm_session import Report, Request, SlurmAwayError, converse
from slurm_lifecycle.node.verdict import Segment

_HEAD = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUTot=2 CPULoad=0.10 AvailableFeatures=(null) "
    "Gres=gpu:h100:8 NodeAddr=127.0.0.1 NodeHostName=n1 Port=0 Version=22.05.8 OS=Linux 6.1.0 #1 SMP Debian "
    "RealMemory=1 AllocMem=0 FreeMem=1 Sockets=2 Boards=1 State={state} ThreadsPerCore=1 Partitions=batch "
    "BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:10 LastBusyTime=2026-01-01T00:00:20 "
    "CfgTRES=cpu=2,mem=1M,billing=2 AllocTRES={old} CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s "
    "ExtSensorsWatts=0 ExtSensorsTemp=n/s"
)
_AT = "2026-03-04T05:06:07"
_AT_S = time.mktime(time.strptime(_AT, "%Y-%m-%dT%H:%M:%S"))


def _text(state: str = "IDLE", tail: str = "", old: str = " CapWatts=n/a") -> str:
    return _HEAD.format(state=state, old=old) + tail + "\n"


def _parse(state: str = "IDLE", tail: str = "") -> NodeRecord:
    return parse_node(_text(state, tail), "n1")


# ---------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("state", "tokens"),
    [
        ("IDLE", {"IDLE"}),
        ("IDLE+DRAIN", {"IDLE", "DRAIN"}),
        ("DOWN*+DRAIN", {"DOWN", "DRAIN"}),
        ("IDLE*", {"IDLE"}),
        ("IDLE+NOT_RESPONDING+REBOOT_REQUESTED", {"IDLE", "NOT_RESPONDING", "REBOOT_REQUESTED"}),
    ],
)
def test_state_tokens(state: str, tokens: set[str]) -> None:
    assert _parse(state).state == tokens


@pytest.mark.parametrize(
    ("tail", "reason", "comment", "extra"),
    [
        ("", "", "", ""),
        (f" Reason=bad disk [root@{_AT}]", "bad disk", "", ""),
        (f" Reason=x [y] [root@{_AT}] Comment=c", "x [y]", "c", ""),
        (f" Reason=a [root@{_AT}] b [op@{_AT}] Extra=e", f"a [root@{_AT}] b", "", "e"),
        (f" Reason=a Comment=fake [root@{_AT}] Comment=c d Extra=e f", "a Comment=fake", "c d", "e f"),
        (" Comment=a b Reason=fake State=DOWN", "", "a b Reason=fake State=DOWN", ""),
        (" Comment=c Extra=rack 7; slc1 b 1 ok - -", "", "c", "rack 7; slc1 b 1 ok - -"),
        (
            " Extra=e; slc1 b 1 ok - - InstanceId=i-1 InstanceType=t ReservationName=slc-1",
            "",
            "",
            "e; slc1 b 1 ok - -",
        ),
        (" Extra=slc1 b 1 ok - - InstanceId=i-1 InstanceType=t", "", "", "slc1 b 1 ok - -"),
        (" Comment=c ReservationName=slc-1", "", "c", ""),
        (" ReservationName=slc-1", "", "", ""),
    ],
)
@pytest.mark.parametrize("old", [" CapWatts=n/a", "", "cpu=2 LowestJoules=0 ConsumedJoules=0"])
def test_tail(tail: str, reason: str, comment: str, extra: str, old: str) -> None:
    record = parse_node(_text("IDLE", tail, old), "n1")
    assert (record.reason, record.comment, record.extra) == (reason, comment, extra)
    assert record.reason_at_s == (_AT_S if reason else None)
    assert record.state == {"IDLE"}


@pytest.mark.parametrize(
    "tail",
    [
        " Comment=a Extra=b Extra=c",
        " Comment=a\n more",
        " Extra=two\nlines",
        " Extra=ends blank ",
        " NewKey=1",
        " Extra=rack 7 ReservationName=old",
        " Extra=rack 7 InstanceId=i-1",
        f" Reason=one [root@{_AT}]        two Comment=c Extra=rack 7",
        f" Reason=one [root@{_AT}]        two Comment=c Extra=rack 7; slc1 b 1 ok - -",
    ],
)
def test_an_extra_that_is_not_certain_is_not_rewritten(tail: str) -> None:
    assert _parse(tail=tail).extra is None


def test_the_reservation_that_slurm_prints_is_not_of_the_extra() -> None:
    assert _parse("IDLE+RESERVED", " Extra=rack 7 ReservationName=slc-1").extra == "rack 7"
    assert _parse("IDLE+MAINTENANCE+RESERVED", " Comment=c Extra=e ReservationName=slc-1").extra == "e"


def test_a_reason_of_several_lines_hides_neither_marks_nor_what_is_ours_alone() -> None:
    reason = f" Reason=one [root@{_AT}]        two Comment=c slc1[hold]"
    record = _parse("IDLE+DRAIN", f"{reason} Extra=slc1 b 1 ok - -")
    assert record.extra == "slc1 b 1 ok - -"
    assert record.marks == {"hold"}
    assert not record.reason.startswith("slc:")
    assert _parse("IDLE+DRAIN", reason).extra is None


@given(st.text(alphabet="aE x=;slc1RervationNmtIdokg-[]@\n\t ", max_size=60))
def test_a_foreign_extra_is_kept_or_left_alone(foreign: str) -> None:
    slurm = _Slurm(extra=foreign)
    slurm.talk(Request("scontrol", "n1", (), _SEGMENT))
    kept = foreign.rstrip("\n")
    assert slurm.extra in (foreign, f"{kept}; {_SEGMENT.format()}") or not kept


def test_marks_are_found_wherever_they_are() -> None:
    assert _parse(tail=" Comment=rack 7 slc1[drain;hold;op7]").marks == {"drain", "hold", "op7"}
    assert _parse(tail=" Comment=a Extra=b slc1[stop] Extra=c").marks == {"stop"}


def test_reason_of_an_unknown_form_is_somebodys() -> None:
    record = _parse("IDLE+DRAIN", " Reason=slc-like text")
    assert decide(record, 0.0, False).act is Act.LATER


@pytest.mark.parametrize(
    "text", ["", "garbage", "NodeName=n2 State=IDLE CfgTRES=x", "NodeName=n1 State=IDLE"]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="record"):
        parse_node(text, "n1")


def test_unknown_node() -> None:
    with pytest.raises(UnknownNodeError):
        parse_node("Node n1 not found\n", "n1")


@pytest.mark.parametrize(
    "field",
    [
        {"comment": "Node n1 not found in plan"},
        {"extra": "Node n1 not found"},
        {"reason": "Node n1 not found"},
    ],
)
def test_free_text_does_not_deny_the_node(field: dict[str, str]) -> None:
    slurm = _Slurm(**field)
    assert slurm.talk(_BOTH).settled


@given(st.text())
def test_any_tail_is_read_or_refused(tail: str) -> None:
    record = parse_node(_text("IDLE+DRAIN", " " + tail), "n1")
    assert record.state == {"IDLE", "DRAIN"}


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r")))
def test_a_reason_is_read_back_as_it_was_written(reason: str) -> None:
    if f"@{_AT}]" in reason or reason != reason.strip():
        return
    assert _parse("IDLE+DRAIN", f" Reason={reason} [root@{_AT}]").reason == reason


# ---------------------------------------------------------------- the decision table

_OURS = "slc:XID79 gpu3 fell off the bus"


@pytest.mark.parametrize(
    ("state", "reason", "act"),
    [
        ("IDLE", "", Act.DRAIN),
        ("IDLE", "stale text of a person", Act.DRAIN),
        ("IDLE", _OURS, Act.DRAIN),
        ("ALLOCATED", "", Act.DRAIN),
        ("MIXED+COMPLETING", "", Act.DRAIN),
        ("IDLE+MAINTENANCE+RESERVED", "", Act.DRAIN),
        ("IDLE+NOT_RESPONDING", "", Act.DRAIN),
        ("IDLE+REBOOT_REQUESTED", "", Act.DRAIN),
        ("IDLE+DRAIN", _OURS, Act.SETTLED),
        ("MIXED+DRAIN", _OURS + " : reboot issued", Act.SETTLED),
        ("DOWN+DRAIN", _OURS, Act.SETTLED),
        ("DOWN", _OURS, Act.SETTLED),
        ("IDLE+DRAIN", "person at work", Act.LATER),
        ("IDLE+DRAIN", "", Act.LATER),
        ("IDLE+DRAIN", "see slc:XID79", Act.LATER),
        ("DOWN", "Not responding", Act.LATER),
        ("DOWN+DRAIN+REBOOT_ISSUED", _OURS, Act.LATER),
        ("IDLE+DRAIN", "Prolog error", Act.LATER),
        ("UNKNOWN+DRAIN", _OURS, Act.LATER),
        ("UNKNOWN", "", Act.LATER),
        ("FUTURE", "", Act.LATER),
        ("IDLE+SOMETHING_NEW", "", Act.LATER),
        ("", "", Act.LATER),
        ("FAIL", "", Act.LATER),
        ("IDLE+POWERED_DOWN", "", Act.LATER),
    ],
)
def test_decision_table(state: str, reason: str, act: Act) -> None:
    tokens = frozenset(state.split("+")) - {""}
    decision = decide(NodeRecord(tokens, reason, _AT_S), _AT_S + 10, refused_here=False)
    assert decision.act is act
    assert decision.why


@pytest.mark.parametrize(
    ("age_s", "refused", "act"), [(10, True, Act.DRAIN), (10, False, Act.LATER), (61, True, Act.LATER)]
)
def test_a_prolog_error_of_our_own_gets_its_true_reason(age_s: float, refused: bool, act: Act) -> None:
    node = NodeRecord(frozenset({"IDLE", "DRAIN"}), "Prolog error", _AT_S)
    assert decide(node, _AT_S + age_s, refused).act is act


@pytest.mark.parametrize("mark", ["hold", "stop"])
@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED"])
def test_a_mark_stops_every_drain(mark: str, state: str) -> None:
    node = NodeRecord(frozenset({state}), marks=frozenset({"x", mark}))
    assert decide(node, 0.0, True) == Decision(Act.LATER, f"the node's Comment says {mark}")


def test_local_decisions() -> None:
    assert decide_locally("drain", 0, False).act is Act.DRAIN
    assert decide_locally("observe", 0, False).act is Act.LATER
    assert decide_locally("drain", 0, True).act is Act.LATER
    assert decide_locally("drain", 3, False).act is Act.LATER


def _finding(code: str = "XID79", occurrence: str = "XID79-1") -> Finding:
    return Finding("check", Sign(code, "gpu3"), occurrence, 1.0, 1.0)


def test_only_hardware_and_only_once() -> None:
    findings = [_finding(), _finding("FS_FULL", "a"), _finding("XID31", "b"), _finding("REMAP_FAILURE", "c")]
    assert [f.sign.code for f in wanted(findings, frozenset())] == ["REMAP_FAILURE", "XID79"]
    assert [f.sign.code for f in wanted(findings, frozenset({"c", "XID79-1"}))] == []


# ---------------------------------------------------------------- the conversation


class _Slurm:
    """Answers commands from a record that updates change; what is run against real daemons is tested live."""

    def __init__(self, state: str = "IDLE", reason: str = "", comment: str = "", extra: str = "") -> None:
        self.state, self.reason, self.comment, self.extra = state, reason, comment, extra
        self.commands: list[list[str]] = []
        self.broken: Callable[[list[str]], Result | None] = lambda _command: None

    def answer(self, command: Sequence[str]) -> Result:
        self.commands.append(list(command))
        broken = self.broken(list(command))
        if broken is not None:
            return broken
        for word in command[3:] if command[1] == "update" else ():
            key, _, value = word.partition("=")
            if key == "State":
                self.state = "IDLE+DRAIN"
            setattr(self, key.lower(), value) if key != "State" else None
        tail = f" Reason={self.reason} [root@{_AT}]" if self.reason else ""
        tail += f" Comment={self.comment}" if self.comment else ""
        tail += f" Extra={self.extra}" if self.extra else ""
        return Result(Outcome.DONE, _text(self.state, tail), code=0)

    def talk(self, request: Request, refused: bool = False) -> Report:
        session = converse(request, _AT_S + 1, refused)
        command = next(session)
        while True:
            try:
                command = session.send(self.answer(command))
            except StopIteration as end:
                report: Report = end.value
                return report

    @property
    def updates(self) -> list[list[str]]:
        return [command[2:] for command in self.commands if command[1] == "update"]


_SEGMENT = Segment("b0", 4, "drain", "XID79", "gpu3")
_BOTH = Request("scontrol", "n1", (_finding(),), _SEGMENT)


def test_drain_and_publish() -> None:
    slurm = _Slurm(extra="rack=7")
    report = slurm.talk(_BOTH)
    assert (report.settled, report.issued, report.published, report.notes) == (True, True, True, ())
    assert slurm.updates == [
        ["NodeName=n1", "State=DRAIN", "Reason=slc:XID79 gpu3 fell off the bus"],
        ["NodeName=n1", "Extra=rack=7; slc1 b0 4 drain XID79 gpu3"],
    ]
    assert len(slurm.commands) == 4


@pytest.mark.parametrize(("state", "reason"), [("IDLE+DRAIN", "person at work"), ("DOWN", "Not responding")])
def test_a_foreign_reason_is_never_overwritten(state: str, reason: str) -> None:
    slurm = _Slurm(state, reason)
    report = slurm.talk(_BOTH)
    assert (report.settled, report.issued, report.published) == (False, False, True)
    assert "another reason" in report.notes[0]
    assert all("State=DRAIN" not in update for update in slurm.updates)
    assert slurm.reason == reason


@pytest.mark.parametrize(
    ("state", "reason", "refused", "issued"),
    [
        ("IDLE+DRAIN", "Prolog error", True, True),
        ("IDLE+DRAIN", "Prolog error", False, False),
        ("IDLE", "", True, False),  # a person undrained the node and no prolog has failed since
        ("IDLE+DRAIN", "person at work", True, False),
    ],
)
def test_a_known_fault_only_gets_its_reason_back(
    state: str, reason: str, refused: bool, issued: bool
) -> None:
    slurm = _Slurm(state, reason)
    report = slurm.talk(Request("scontrol", "n1", (_finding(),), None, replace_only=True), refused)
    assert report.issued is issued
    assert slurm.reason == ("slc:XID79 gpu3 fell off the bus" if issued else reason)


def test_hold_in_the_comment_stops_the_drain_and_not_the_verdict() -> None:
    slurm = _Slurm(comment="rack 7 slc1[hold]")
    report = slurm.talk(_BOTH)
    assert (report.issued, report.published) == (False, True)
    assert slurm.comment == "rack 7 slc1[hold]"


def test_nothing_is_written_when_all_is_said() -> None:
    slurm = _Slurm("IDLE+DRAIN", _OURS, extra=_SEGMENT.format())
    report = slurm.talk(_BOTH)
    assert (report.settled, report.published, slurm.updates) == (True, True, [])


def test_the_number_counts_on_after_a_lost_state() -> None:
    slurm = _Slurm(extra="slc1 b0 9 ok - -")
    report = slurm.talk(Request("scontrol", "n1", (), Segment("b0", 1, "warn", "XID31", "gpu1")))
    assert report.segment == Segment("b0", 10, "warn", "XID31", "gpu1")
    assert slurm.extra == "slc1 b0 10 warn XID31 gpu1"


def test_a_new_boot_begins_at_its_own_number() -> None:
    slurm = _Slurm(extra="a; slc1 old 99 drain XID79 gpu3")
    slurm.talk(Request("scontrol", "n1", (), Segment("b0", 1, "ok", "-", "-")))
    assert slurm.extra == "a; slc1 b0 1 ok - -"


def test_an_uncertain_extra_is_left_alone() -> None:
    slurm = _Slurm(comment="c Extra=fake", extra="e")
    report = slurm.talk(_BOTH)
    assert (report.settled, report.published) == (True, False)
    assert any("by hand" in note for note in report.notes)
    assert slurm.extra == "e"


@pytest.mark.parametrize(
    "result",
    [
        Result(Outcome.FAILED, "", "slurm_load_node error: Unable to contact slurm controller", 1),
        Result(Outcome.HUNG),
        Result(Outcome.STUCK),
        Result(Outcome.DONE, "", "", 0),
        Result(Outcome.DONE, "\x00\x01garbage\n", "", 0),
        Result(Outcome.FAILED, "", "FileNotFoundError: scontrol", 127),
    ],
)
def test_no_readable_answer_is_away_and_nothing_is_written(result: Result) -> None:
    slurm = _Slurm()
    slurm.broken = lambda _command: result
    with pytest.raises(SlurmAwayError):
        slurm.talk(_BOTH)
    assert slurm.updates == []


@pytest.mark.parametrize(
    "result",
    [Result(Outcome.DONE, "Node n1 not found\n"), Result(Outcome.FAILED, "", "Node n1 not found", 1)],
)
def test_unknown_node_is_said_loudly(result: Result) -> None:
    slurm = _Slurm()
    slurm.broken = lambda _command: result
    with pytest.raises(UnknownNodeError):
        slurm.talk(_BOTH)


def test_a_refused_update_is_seen_by_reading_back() -> None:
    slurm = _Slurm()
    denied = Result(Outcome.FAILED, "", "slurm_update error: Invalid user id", 1)
    slurm.broken = lambda command: denied if command[1] == "update" else None
    report = slurm.talk(_BOTH)
    assert (report.settled, report.published) == (False, False)
    assert any("Invalid user id" in note for note in report.notes)
    assert any("did not hold" in note for note in report.notes)


def test_what_a_person_asked_of_a_hung_slurmctld_is_seen_before_the_drain() -> None:
    slurm = _Slurm()

    def slow(command: list[str]) -> Result | None:
        slurm.broken = lambda _command: None
        answer = replace(slurm.answer(command), took_s=9.0)
        slurm.state, slurm.reason = "IDLE+DRAIN", "person at work"
        return answer

    slurm.broken = slow
    report = slurm.talk(_BOTH)
    assert (report.issued, slurm.reason) == (False, "person at work")


def test_a_slurmctld_that_is_always_slow_still_drains() -> None:
    slurm = _Slurm()

    def slow(command: list[str]) -> Result | None:
        slurm.broken = lambda _command: None
        answer = replace(slurm.answer(command), took_s=9.0)
        slurm.broken = slow
        return answer

    slurm.broken = slow
    assert slurm.talk(_BOTH).settled


def test_an_update_that_hung_but_worked_counts_as_done() -> None:
    slurm = _Slurm()

    def hang(command: list[str]) -> Result | None:
        if command[1] != "update":
            return None
        slurm.broken = lambda _command: None
        slurm.answer(command)
        slurm.broken = hang
        return Result(Outcome.HUNG)

    slurm.broken = hang
    report = slurm.talk(_BOTH)
    assert (report.settled, report.published) == (True, True)
