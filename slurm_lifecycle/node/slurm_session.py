"""One conversation with Slurm about this node: look, drain if allowed, publish, look again.

Written as a generator that yields commands and is sent their results: what it decides can be tested without
a process, and the loop runs each command in a child with a deadline while the checks go on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Callable, Generator, List, Optional, Sequence, Tuple

from slurm_lifecycle.node import drain
from slurm_lifecycle.node.child import Outcome, Result
from slurm_lifecycle.node.findings import Finding
from slurm_lifecycle.node.slurm_node import NodeRecord, UnknownNodeError, denies_node, parse_node
from slurm_lifecycle.node.verdict import REASON_PREFIX, Segment, format_reason, join_extra, split_extra

REFUSED_WITHIN_S = 60.0
OLD_ANSWER_S = 0.5
"""A look that took longer may be from before what others asked meanwhile. Seen where slurmctld had hung: it
answered the look, then drained the node for a person, then took our drain, 24 ms apart."""

_REFUSED = "scontrol update refused: "


class SlurmAwayError(Exception):
    """slurmctld did not answer, or not in a way that can be read; nothing is known of what was asked of
    it.
    """


@dataclass(frozen=True)
class Request:
    """What the agent wants of Slurm.

    Attributes:
        due: findings to drain for, worst first; empty for none.
        replace_only: the findings have had their drain, and a person may have undone it: only a `Prolog
        error` of our
            own prolog gets its true reason.
        segment: what the node's Extra field should end with; None to leave the field alone.
    """

    scontrol: str
    node: str
    due: Tuple[Finding, ...] = ()
    segment: Optional[Segment] = None
    replace_only: bool = False


@dataclass(frozen=True)
class Report:
    """What came of it.

    Attributes:
        settled: the node is out for a reason of ours, read back.
        issued: a drain was sent.
        refused: Slurm refused it, and it was not there when read back.
        held: a mark on the node forbids to drain it.
        published: the segment stands in the field, read back.
        segment: the segment as it was written; its number is higher than asked for where the field held a
        higher one. notes: one line each for what did not go as wanted.
    """

    settled: bool = False
    issued: bool = False
    refused: bool = False
    held: bool = False
    published: bool = False
    segment: Optional[Segment] = None
    notes: Tuple[str, ...] = ()


Session = Generator[Sequence[str], Result, Report]


def _nothing() -> None:
    return None


def converse(
    request: Request, now_s: float, refused_here: bool, before_drain: Callable[[], None] = _nothing
) -> Session:
    """The conversation.

    Args:
        request: what is wanted.
        now_s: seconds since the epoch, to judge the age of a reason.
        refused_here: our prolog refused a job in the last minute.
        before_drain: called right before a drain is sent, to write down that it is.

    Raises:
        SlurmAwayError: no readable answer; try again later.
        UnknownNodeError: Slurm does not know the node name; nothing is done.
    """
    record = yield from _look(request, again_when_slow=bool(request.due))
    report, wrote = Report(held=not record.marks.isdisjoint(drain.HOLDING)), False
    if request.due:
        decision = drain.decide(record, now_s, refused_here)
        if decision.act is drain.Act.SETTLED:
            report = replace(report, settled=True)
        elif request.replace_only and not decision.replaces:
            pass
        elif decision.act is drain.Act.LATER:
            report = _noted(report, f"no drain now: {decision.why}")
        else:
            worst = request.due[0]
            reason = format_reason(worst.sign.code, worst.sign.component, worst.text)
            before_drain()
            failed = yield from _update(request, ["State=DRAIN", f"Reason={reason}"])
            report, wrote = (
                _noted(replace(report, issued=True, refused=failed.startswith(_REFUSED)), failed),
                True,
            )
    if request.segment is not None:
        if record.extra is None:
            report = _noted(
                report,
                "the node's Extra cannot be told from its reason, Comment or the like: clear one by hand",
            )
        else:
            foreign, present = split_extra(record.extra)
            segment = _numbered(request.segment, present)
            report = replace(report, segment=segment, published=segment == present)
            if not report.published:
                failed = yield from _update(request, [f"Extra={join_extra(foreign, segment)}"])
                report, wrote = _noted(report, failed), True
    if not wrote:
        return report
    return _read_back((yield from _look(request)), report)


def _read_back(record: NodeRecord, report: Report) -> Report:
    if report.issued:
        ours = "DRAIN" in record.state and record.reason.startswith(REASON_PREFIX)
        report = replace(report, settled=ours, refused=report.refused and not ours)
        if not ours:
            report = _noted(report, f"the drain did not hold: state {'+'.join(sorted(record.state))}")
    if report.segment is not None and not report.published and record.extra is not None:
        report = replace(report, published=split_extra(record.extra)[1] == report.segment)
    return report


def _numbered(wanted: Segment, present: Optional[Segment]) -> Segment:
    """The number counts up within a boot, also for an agent whose own memory of it is gone."""
    if present is None or present.boot_id != wanted.boot_id or present.seq < wanted.seq:
        return wanted
    if (present.published, present.marker) == (wanted.published, wanted.marker):
        return present
    return replace(wanted, seq=present.seq + 1)


def _look(request: Request, again_when_slow: bool = False) -> Generator[Sequence[str], Result, NodeRecord]:
    command = [request.scontrol, "-o", "show", "node", request.node]
    result = yield command
    if again_when_slow and result.took_s > OLD_ANSWER_S:
        result = yield command
    # Slurm prints "Node X not found" to standard output, and exits 0 or 1 with the release.
    if denies_node(result.output + result.error, request.node):
        raise UnknownNodeError(request.node)
    if result.outcome is not Outcome.DONE:
        raise SlurmAwayError(_describe(result))
    try:
        return parse_node(result.output, request.node)
    except ValueError as error:
        raise SlurmAwayError(f"unreadable answer: {error}") from error


def _update(request: Request, assignments: List[str]) -> Generator[Sequence[str], Result, str]:
    """Why it failed, empty when it did not; what a command that hung has done is read from the node."""
    result = yield [request.scontrol, "update", f"NodeName={request.node}", *assignments]
    if result.outcome is Outcome.DONE:
        return ""
    return (_REFUSED if result.outcome is Outcome.FAILED else "scontrol update: ") + _describe(result)


def _describe(result: Result) -> str:
    if result.outcome in (Outcome.HUNG, Outcome.STUCK):
        return "no answer in time"
    words = " ".join((result.error or result.output).split())[:200]
    return f"exit {result.code}: {words}" if words else f"exit {result.code}"


def _noted(report: Report, note: str) -> Report:
    return replace(report, notes=(*report.notes, note)) if note else report


def refused_recently(run_dir: str, now_s: float) -> bool:
    """Did our prolog refuse a job within the last minute, by the note that it leaves?

    Args:
        run_dir: the agent's run directory.
        now_s: seconds since the epoch.
    """
    try:
        with os.scandir(run_dir) as entries:
            times = [entry.stat().st_mtime for entry in entries if entry.name.startswith("refused.")]
    except OSError:
        return False
    return any(-REFUSED_WITHIN_S <= now_s - at_s <= REFUSED_WITHIN_S for at_s in times)
