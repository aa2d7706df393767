"""May this node drain itself now? Pure: a table over what is known here and what Slurm says of the node.

The rule behind all of it: a person's decision is never overwritten, and a drain that nobody needs is never
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Dict, FrozenSet, Iterable, List, Tuple

from slurm_lifecycle.node.findings import Finding
from slurm_lifecycle.node.slurm_node import NodeRecord
from slurm_lifecycle.node.verdict import REASON_PREFIX

HOLDING = ("hold", "stop")
"""Marks in the node's Comment by which a person, or the daemon for the whole fleet, forbids to drain it."""

MAX_DRAINS_PER_BOOT = 3
PROLOG_ERROR = "Prolog error"
PROLOG_ERROR_WITHIN_S = 60.0

_OUT = frozenset({"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING"})
# States in which a drain may get lost, means nothing, or that nobody here knows: wait until they are over.
_UNCLEAR = frozenset(
    {
        "UNKNOWN",
        "FUTURE",
        "ERROR",
        "INVAL",
        "INVALID_REG",
        "REBOOT_ISSUED",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_UP",
    }
)
_KNOWN = frozenset(
    {
        "IDLE",
        "ALLOCATED",
        "MIXED",
        "COMPLETING",
        "RESERVED",
        "MAINTENANCE",
        "MAINT",
        "PLANNED",
        "BLOCKED",
        "NOT_RESPONDING",
        "REBOOT_REQUESTED",
        "DYNAMIC_NORM",
        "CLOUD",
        "PERFCTRS",
    }
)


class Act(Enum):
    """What to do now.

    DRAIN: update state and reason. SETTLED: out for a reason of ours already. LATER: not now, look again.
    """

    DRAIN = "drain"
    SETTLED = "settled"
    LATER = "later"


@dataclass(frozen=True)
class Decision:
    """What to do about a drain, and why. `replaces`: the node is out already, only its reason changes."""

    act: Act
    why: str
    replaces: bool = False


def wanted(findings: Iterable[Finding], done: FrozenSet[str]) -> Tuple[Finding, ...]:
    """Findings that the node may drain for and has not yet, worst first.

    A dead GPU shows in several ways, one after another: once the node was drained for that GPU, another
    sign of it that is no worse is not a reason to drain it again after a person has undrained it.

    Args:
        findings: open findings.
        done: occurrences that are settled.
    """
    drainable = [f for f in findings if f.drained_by_node]
    settled: Dict[str, int] = {}
    for f in drainable:
        if f.occurrence in done:
            rank = f.order()[1]
            settled[f.sign.component] = min(rank, settled.get(f.sign.component, rank))
    due: List[Finding] = [f for f in drainable if f.order()[1] < settled.get(f.sign.component, 99)]
    return tuple(sorted(due, key=Finding.order))


def decide_locally(mode: str, drains_this_boot: int, stop_file_exists: bool) -> Decision:
    """What is decided before Slurm is asked anything.

    Args:
        mode: the agent's mode.
        drains_this_boot: how many drains the agent has made since the node booted.
        stop_file_exists: a person laid the stop file.
    """
    if mode != "drain":
        return Decision(Act.LATER, "mode is observe")
    if stop_file_exists:
        return Decision(Act.LATER, "the stop file exists")
    if drains_this_boot >= MAX_DRAINS_PER_BOOT:
        return Decision(Act.LATER, f"{drains_this_boot} drains in this boot are enough: a person must look")
    return Decision(Act.DRAIN, "")


def decide(node: NodeRecord, now_s: float, refused_here: bool) -> Decision:
    """What Slurm's record of the node allows, read right before the update.

    Args:
        node: the record.
        now_s: seconds since the epoch.
        refused_here: our own prolog refused a job within the last minute and left its note.
    """
    for mark in HOLDING:
        if mark in node.marks:
            return Decision(Act.LATER, f"the node's Comment says {mark}")
    unclear = sorted(node.state & _UNCLEAR)
    if unclear or not node.state:
        return Decision(Act.LATER, f"state {'+'.join(unclear) or 'missing'}")
    if node.state & _OUT:
        return _decide_out(node, now_s, refused_here)
    strange = sorted(node.state - _KNOWN)
    if strange:
        return Decision(Act.LATER, f"unknown state {'+'.join(strange)}")
    # A reason on a node in service is left over from before and means nothing.
    return Decision(Act.DRAIN, "in service")


def _decide_out(node: NodeRecord, now_s: float, refused_here: bool) -> Decision:
    if node.reason.startswith(REASON_PREFIX):
        return Decision(Act.SETTLED, f"already out: {node.reason}")
    age_s = None if node.reason_at_s is None else now_s - node.reason_at_s
    fresh = age_s is not None and -5.0 <= age_s <= PROLOG_ERROR_WITHIN_S
    if node.reason == PROLOG_ERROR and refused_here and fresh:
        return Decision(Act.DRAIN, "our prolog refused a job: the true reason replaces Prolog error", True)
    return Decision(Act.LATER, f"out for another reason: {node.reason or 'none given'}")
