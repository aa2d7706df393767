"""What an agent decides, as the real one does; tests hold each of these against the real agent's.

The simulation may not import the code that runs on nodes, so it is said again here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from slurm_lifecycle.core.fault_catalog import ClearRule, DrainedBy, FaultClass, Level, fault_for
from slurm_lifecycle.core.formats import REASON_PREFIX
from slurm_lifecycle.core.model import NodeView

MAX_DRAINS_PER_BOOT = 3
PROLOG_ERROR, PROLOG_ERROR_WITHIN_S = "Prolog error", 60.0
ALL_WELL = ("ok", "-", "-")

_CLASS_ORDER = (
    FaultClass.HARDWARE,
    FaultClass.REBOOT,
    FaultClass.GPU_RESET,
    FaultClass.LINK,
    FaultClass.SOFTWARE,
    FaultClass.TRANSIENT,
    FaultClass.PENDING_REMAP,
    FaultClass.UNKNOWN,
    FaultClass.APP,
)
_HOLDING = frozenset({"hold", "stop"})
_MARK = re.compile(r"slc1\[([^\]]*)\]")
_SEGMENT = re.compile(r"(?:^|; )slc1 \S+ \d{1,9} (?:ok|warn|drain) \S+ \S+(?: img=\S+)?$")
_OUT = frozenset({"DRAIN", "DOWN", "FAIL"})
_UNCLEAR = frozenset({"UNKNOWN", "FUTURE", "ERROR", "INVALID_REG", "REBOOT_ISSUED", "POWERED_DOWN"})
_UNCLEAR |= {"POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"}
_KNOWN = frozenset({"IDLE", "ALLOCATED", "MIXED", "COMPLETING", "RESERVED", "MAINTENANCE", "PLANNED"})
_KNOWN |= {"BLOCKED", "NOT_RESPONDING", "REBOOT_REQUESTED", "DYNAMIC_NORM", "CLOUD"}


class Act(Enum):
    """Drain now; out for a reason of ours already; not now."""

    DRAIN = "drain"
    SETTLED = "settled"
    LATER = "later"


@dataclass(slots=True)
class Found:
    """One finding of a boot.

    Attributes:
        fault: key of the fault behind it, "" where there is none.
        occurrence: its number in this boot; a drain is made once for each.
    """

    code: str
    component: str
    fault: str
    occurrence: int
    raised_at: float
    seen_at: float

    @property
    def level(self) -> Level:
        """What it asks of Slurm."""
        return fault_for(self.code).level

    @property
    def clears(self) -> ClearRule:
        """How it gets well."""
        return fault_for(self.code).clears

    @property
    def drained_by_node(self) -> bool:
        """Whether the node may drain itself for it."""
        return self.level is Level.DRAIN and fault_for(self.code).drained_by is DrainedBy.NODE

    def order(self) -> tuple[int, int, float, str, str]:
        """Sort key, worst first."""
        rank = _CLASS_ORDER.index(fault_for(self.code).fault_class)
        return (-self.level.rank, rank, self.raised_at, self.code, self.component)


def published(findings: Iterable[Found]) -> tuple[str, str, str]:
    """Level, code and component of the worst finding."""
    worst = min(findings, key=Found.order, default=None)
    return ALL_WELL if worst is None else (worst.level.value, worst.code, worst.component)


def wanted(findings: Iterable[Found], done: frozenset[int]) -> list[Found]:
    """Findings that the node may drain for and has not yet, worst first.

    Another sign of a component for which it was drained is no reason to drain again where it is no worse.
    """
    drainable = [one for one in findings if one.drained_by_node]
    settled: dict[str, int] = {}
    for one in drainable:
        if one.occurrence in done:
            settled[one.component] = min(one.order()[1], settled.get(one.component, 99))
    return sorted(
        (one for one in drainable if one.order()[1] < settled.get(one.component, 99)), key=Found.order
    )


def held(comment: str) -> bool:
    """Whether a mark in the Comment forbids the node to drain itself."""
    return any(item in _HOLDING for found in _MARK.finditer(comment) for item in found[1].split(";"))


def decide(view: NodeView, now: float, *, refused_here: bool) -> Act:
    """What is done about a drain that is wanted, from a look at the node right before.

    Args:
        refused_here: this node's prolog refused a job within the last minute.
    """
    if held(view.comment) or view.state & _UNCLEAR or not view.state:
        return Act.LATER
    if view.state & _OUT:
        if view.reason.startswith(REASON_PREFIX):
            return Act.SETTLED
        age_s = now - view.reason_at_s if view.reason_at_s is not None else PROLOG_ERROR_WITHIN_S + 1
        fresh = -5.0 <= age_s <= PROLOG_ERROR_WITHIN_S
        return Act.DRAIN if view.reason == PROLOG_ERROR and refused_here and fresh else Act.LATER
    return Act.LATER if view.state - _KNOWN else Act.DRAIN


def joined(extra: str, segment: str) -> str:
    """The Extra field with this segment at its end and what others wrote before it as it was."""
    foreign = _SEGMENT.sub("", extra)
    return f"{foreign}; {segment}" if foreign else segment
