"""The verdict: what the node says of itself now, and its forms in the run directory and in Slurm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, List, Optional, Tuple

from slurm_lifecycle.core.fault_catalog import Level
from slurm_lifecycle.node.findings import Finding, plain

REASON_PREFIX = "slc:"
REASON_LIMIT_BYTES = 200
ALL_WELL = "all checks passed"

_SEGMENT = re.compile(r"(?:^|; )slc1 (\S+) (\d{1,9}) (ok|warn|drain) (\S+) (\S+)(?: (img=\S+))?$")


@dataclass(frozen=True)
class Verdict:
    """The worst finding in short. CODE and component are `-` when all is well."""

    level: Level = Level.OK
    code: str = "-"
    component: str = "-"
    text: str = ALL_WELL
    gate: bool = False

    @property
    def published(self) -> Tuple[str, str, str]:
        """The part whose change is news to Slurm."""
        return (self.level.value, self.code, self.component)


def judge(findings: Iterable[Finding], may_gate: bool) -> Verdict:
    """The verdict on open findings.

    Args:
        findings: open findings in any order.
        may_gate: the prolog may refuse jobs, which it does for hardware-certain classes only.
    """
    ranked: List[Finding] = sorted(findings, key=Finding.order)
    if not ranked:
        return Verdict()
    worst = ranked[0]
    gate = may_gate and any(finding.drained_by_node for finding in ranked)
    component = plain(worst.sign.component).replace(" ", "_") or "-"
    return Verdict(worst.level, worst.sign.code, component, worst.text, gate)


def format_file(verdict: Verdict, uptime_s: float, boot_id: str) -> str:
    """The two lines of the verdict file, as the hooks read them."""
    # Rounded down: a verdict from the future is invalid, and a reader of the same second sees the same
    # figure.
    words = plain(verdict.text if verdict.code == "-" else f"{verdict.component} {verdict.text}")
    gate = "yes" if verdict.gate else "no"
    return f"v1 {verdict.level.value} {int(uptime_s)} {boot_id} {verdict.code} {words}\ngate {gate}\n"


def format_reason(code: str, component: str, text: str) -> str:
    """A Slurm reason: useful in its first 20 characters, at most 200 bytes."""
    return f"{REASON_PREFIX}{code} {plain(component)} {plain(text)}"[:REASON_LIMIT_BYTES].rstrip()


@dataclass(frozen=True)
class Segment:
    """Our part of a node's Extra field; `marker` is that of the node's image, "" where it has none."""

    boot_id: str
    seq: int
    level: str
    code: str
    component: str
    marker: str = ""

    @property
    def published(self) -> Tuple[str, str, str]:
        """Comparable with `Verdict.published`."""
        return (self.level, self.code, self.component)

    def format(self) -> str:
        """As it stands in the field."""
        said = f"slc1 {self.boot_id} {self.seq} {self.level} {self.code} {self.component}"
        return f"{said} {self.marker}" if self.marker else said


def split_extra(extra: str) -> Tuple[str, Optional[Segment]]:
    """Somebody else's text in an Extra field, and our segment at its end where there is one."""
    match = _SEGMENT.search(extra)
    if match is None:
        return extra, None
    boot_id, seq, level, code, component, marker = match.groups()
    return extra[: match.start()], Segment(boot_id, int(seq), level, code, component, marker or "")


def join_extra(foreign: str, segment: Segment) -> str:
    """The Extra field with our segment as its end and the foreign text as it was."""
    return f"{foreign}; {segment.format()}" if foreign else segment.format()
