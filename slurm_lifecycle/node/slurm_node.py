"""This node's record as `scontrol -o show node` prints it. Parsing only.

The record's free texts (Reason, Comment, Extra) may hold anything, so nothing is searched for: the state is
taken from before `CfgTRES=`, and the tail is walked from its start.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import FrozenSet, Optional, Tuple

from slurm_lifecycle.node.verdict import split_extra

_MACHINE_KEYS = re.compile(
    r" ?(?:CfgTRES|AllocTRES|CapWatts|CurrentWatts|AveWatts|LowestJoules|ConsumedJoules|ExtSensors\w*)=\S*"
)
_REASON = re.compile(
    r"^ Reason=(.*?) \[([^\]\s]+)@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]"
    r"(?= Comment=| Extra=| InstanceId=| InstanceType=| ReservationName=| *$)",
    re.DOTALL,
)
_END = re.compile(r"(?: InstanceId=\S*| InstanceType=\S*| ReservationName=\S+)+ *$")
# Slurm 24.11 and newer print the reservation, for a node that is in one.
_RESERVATION = re.compile(r" ReservationName=\S+ *")
_RESERVED = frozenset({"RESERVED", "MAINTENANCE", "MAINT"})
_MARK = re.compile(r"slc1\[([^\]]*)\]")


class UnknownNodeError(Exception):
    """Slurm does not know this node's name."""


@dataclass(frozen=True)
class NodeRecord:
    """What Slurm says of this node.

    Attributes:
        state: tokens of `State=`; a trailing sign such as `*` is left away.
        reason: without the trailing user and time.
        reason_at_s: when it was set, None where not printed or not in this node's time.
        extra: the Extra field; None where the text cannot be split with certainty, so that it must not be
        rewritten. marks: items of the daemon's marks in the Comment field.
    """

    state: FrozenSet[str]
    reason: str = ""
    reason_at_s: Optional[float] = None
    comment: str = ""
    extra: Optional[str] = ""
    marks: FrozenSet[str] = frozenset()


def parse_node(output: str, name: str) -> NodeRecord:
    """Read one node's record.

    Args:
        output: what `scontrol -o show node NAME` printed.
        name: the name that was asked for.

    Raises:
        UnknownNodeError: Slurm says it has no such node.
        ValueError: anything that is not one such record.
    """
    text = output.rstrip("\n")
    if denies_node(text, name):
        raise UnknownNodeError(name)
    if not text.startswith(f"NodeName={name} "):
        raise ValueError("not a node record")
    head, found, rest = text.partition(" CfgTRES=")
    match = re.search(r" State=(\S+)", head)
    if not found or match is None:
        raise ValueError("node record without state")
    tokens = frozenset(re.sub(r"[^A-Z_].*$", "", token) for token in match.group(1).split("+")) - {""}
    texts = _free_texts("CfgTRES=" + rest)
    reason, reason_at_s, tail = _split_reason(texts)
    if tail is None:
        comment, extra, tail = "", _own_extra(texts), texts
    else:
        comment, extra = _split_fields(tail, bool(tokens & _RESERVED))
    marks = frozenset(item for text in _MARK.findall(tail) for item in text.split(";"))
    return NodeRecord(tokens, reason, reason_at_s, comment, extra, marks)


def denies_node(output: str, name: str) -> bool:
    """Does Slurm say that it has no such node? A record is no denial, whatever its free texts say.

    Args:
        output: what `scontrol show node NAME` printed, with its errors or without.
        name: the name that was asked for.
    """
    return not output.startswith("NodeName=") and f"Node {name} not found" in output


def _free_texts(tail: str) -> str:
    position = 0
    while True:
        match = _MACHINE_KEYS.match(tail, position)
        if match is None:
            return tail[position:]
        position = match.end()


def _split_reason(tail: str) -> Tuple[str, Optional[float], Optional[str]]:
    """Reason, when it was set, and what follows; None where its end is not known (several lines)."""
    match = _REASON.match(tail)
    if match is None:
        if tail.startswith(" Reason="):
            # A form that this parser does not know: all of it is the reason, so that it is nobody's but a
            # person's.
            return tail[len(" Reason=") :], None, None
        return "", None, tail
    try:
        at_s: Optional[float] = time.mktime(time.strptime(match.group(3), "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        at_s = None
    return match.group(1), at_s, tail[match.end() :]


def _own_extra(texts: str) -> Optional[str]:
    """Extra where it holds our segment and nothing else; that is certain whatever stands before it."""
    _, border, extra = texts.rpartition(" Extra=")
    foreign, segment = split_extra(extra)
    return extra if border and segment is not None and not foreign else None


def _split_fields(tail: str, reserved: bool) -> Tuple[str, Optional[str]]:
    """Comment and Extra. Where both texts could hold the border, Extra is not certain."""
    end = _END.search(tail)
    body = tail[: end.start()] if end else tail
    certain = "\n" not in body and not body.endswith(" ")
    if end and " Extra=" in body and split_extra(body.rpartition(" Extra=")[2])[1] is None:
        # What follows may be fields of Slurm's own, or the end of somebody's text.
        certain = certain and reserved and _RESERVATION.fullmatch(end.group()) is not None
    if body.startswith(" Extra="):
        return "", body[len(" Extra=") :] if certain else None
    if not body.startswith(" Comment="):
        return "", "" if not body.strip() else None
    comment, border, extra = body[len(" Comment=") :].partition(" Extra=")
    if " Extra=" in extra or not certain:
        return comment, None
    return comment, extra if border else ""
