"""Findings and how they come and go. Pure: `now_s` is the uptime and an argument.

A check yields signs. A sign that holds becomes a finding with an occurrence of its own; when its clear rule
is met the finding goes, and the same fault later is a new occurrence. Occurrences are what drains are
counted by.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from slurm_lifecycle.core.fault_catalog import ClearRule, DrainedBy, FaultClass, Level, fault_for

QUIET_S = 600.0
"""How long an application fault or notice must stay away to be gone."""

BURST_S = 5.0
"""Repeats of one code on one GPU within this time are one event: drivers log them in bursts."""

# Single samples of these may be noise: a disk fills for a moment, a driver reload or an administrator's
# reset makes GPUs or the driver vanish for seconds, a busy machine is slow once, and a process that waits
# for a slow disk sleeps as deeply as one that will never wake. So they need a second sample in a row. What
# the driver states of a GPU in so many words (lost, reset required, remap failure) and the kernel log need
# none.
CONFIRM_TWICE: FrozenSet[str] = frozenset(
    {"FS_FULL", "GPU_COUNT", "DRIVER_DOWN", "DRIVER_MISMATCH", "PROBE_HUNG", "PROBE_DSTATE", "CHECK_FAILED"}
)

_CLASS_ORDER: Tuple[FaultClass, ...] = (
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

_UNSAFE = re.compile(r"[^A-Za-z0-9 ._:/+-]+")


def plain(text: str, limit: int = 120) -> str:
    """Text reduced to what may stand in a Slurm reason: one line of a small alphabet, bounded."""
    return " ".join(_UNSAFE.sub(" ", text).split())[:limit].rstrip()


@dataclass(frozen=True)
class Sign:
    """One thing that a check saw to be wrong.

    Attributes:
        component: for people and for Slurm, without blanks: `gpu3`, `/tmp`.
        device: PCI bus id where it is a GPU (`0000:3b:00`), stays when the component gets its index.
        clears: overrides the clear rule of the catalogue.
        level_cap: the finding is at most this bad whatever its code (checks that only observe).
    """

    code: str
    component: str
    text: str = ""
    evidence: str = ""
    device: str = ""
    clears: Optional[ClearRule] = None
    level_cap: Optional[Level] = None

    @property
    def subject(self) -> str:
        """What identifies the thing that is wrong."""
        return self.device or self.component


@dataclass(frozen=True)
class Finding:
    """A sign on record, from raised to cleared. Times are uptimes."""

    check: str
    sign: Sign
    occurrence: str
    raised_s: float
    seen_s: float
    count: int = 1

    @property
    def level(self) -> Level:
        """What it asks of Slurm."""
        level, cap = fault_for(self.sign.code).level, self.sign.level_cap
        return cap if cap is not None and cap.rank < level.rank else level

    @property
    def drained_by_node(self) -> bool:
        """Is it of a class that the node itself may drain for?"""
        return self.level is Level.DRAIN and fault_for(self.sign.code).drained_by is DrainedBy.NODE

    @property
    def clears(self) -> ClearRule:
        """How it gets well."""
        return self.sign.clears or fault_for(self.sign.code).clears

    @property
    def text(self) -> str:
        """Words for people, fit for a reason."""
        return plain(self.sign.text or fault_for(self.sign.code).text)

    def order(self) -> Tuple[int, int, float, str, str]:
        """Sort key, worst first; the older of equals first, so that a verdict does not change its mind."""
        rank = _CLASS_ORDER.index(fault_for(self.sign.code).fault_class)
        return (-self.level.rank, rank, self.raised_s, self.sign.code, self.sign.component)


_Key = Tuple[str, str, str]


class Tracker:
    """The open findings of one boot.

    Args:
        findings: those on record from before a restart of the agent.
        occurrences: how many occurrences this boot has had; counts on.
    """

    def __init__(self, findings: Iterable[Finding] = (), occurrences: int = 0) -> None:
        self._open: Dict[_Key, Finding] = {_key(f.check, f.sign): f for f in findings}
        self._unconfirmed: Dict[_Key, Sign] = {}
        self.occurrences = occurrences

    @property
    def findings(self) -> List[Finding]:
        """Open findings, worst first."""
        return sorted(self._open.values(), key=Finding.order)

    @property
    def has_unconfirmed(self) -> bool:
        """Was something seen once that needs a second sample?"""
        return bool(self._unconfirmed)

    def raise_sign(self, check: str, sign: Sign, seen_s: float) -> None:
        """Record a sign at once; a repeat within the burst time counts as the same event."""
        key = _key(check, sign)
        known = self._open.get(key)
        if known is None:
            self.occurrences += 1
            self._open[key] = Finding(check, sign, f"{sign.code}-{self.occurrences}", seen_s, seen_s)
            return
        count = known.count + (1 if seen_s - known.seen_s > BURST_S else 0)
        kept = replace(sign, component=known.sign.component) if sign.device else sign
        self._open[key] = replace(known, sign=kept, seen_s=max(seen_s, known.seen_s), count=count)

    def apply_sample(
        self, check: str, signs: Iterable[Sign], now_s: float, unread: FrozenSet[str] = frozenset()
    ) -> None:
        """Take the full result of a check that ran: raises what holds, clears what no longer does.

        Args:
            check: id of the check.
            signs: everything it saw in this sample.
            now_s: uptime of the sample.
            unread: subjects that did not answer; their findings stay.
        """
        seen: Dict[_Key, Sign] = {}
        for sign in signs:
            seen[_key(check, sign)] = sign
        pending = {key for key in self._unconfirmed if key[0] == check}
        for key, sign in seen.items():
            if key in self._open or key in pending or sign.code not in CONFIRM_TWICE:
                self._unconfirmed.pop(key, None)
                self.raise_sign(check, sign, now_s)
            else:
                self._unconfirmed[key] = sign
        for key in pending - set(seen):
            del self._unconfirmed[key]

        def well(key: _Key, finding: Finding) -> bool:
            mine = key[0] == check and key not in seen and key[2] not in unread
            return mine and finding.clears is ClearRule.CONDITION

        self._drop(well)

    def clear(self, check: str, device: str, codes: FrozenSet[str]) -> None:
        """Clear findings of one check on one device, because the device's driver says so."""
        self._drop(lambda key, f: key[0] == check and f.sign.device == device and f.sign.code in codes)

    def is_open(self, check: str, code: str, device: str) -> bool:
        """Is there an open finding of this check with this code on this device?"""
        return (check, code, device) in self._open

    def codes_on(self, check: str, device: str) -> FrozenSet[str]:
        """Codes of the open findings of one check on one device."""
        return frozenset(
            f.sign.code for key, f in self._open.items() if key[0] == check and f.sign.device == device
        )

    def tick(self, now_s: float) -> None:
        """Let findings go that stayed away for the quiet time."""
        self._drop(lambda _key, f: f.clears is ClearRule.QUIET and now_s - f.seen_s >= QUIET_S)

    def name_devices(self, components: Mapping[str, str]) -> None:
        """Give findings on PCI devices their GPU index, once it is known.

        Args:
            components: PCI bus id to component.
        """
        for key, finding in list(self._open.items()):
            name = components.get(finding.sign.device)
            if name and name != finding.sign.component:
                self._open[key] = replace(finding, sign=replace(finding.sign, component=name))

    def _drop(self, gone: Callable[[_Key, Finding], bool]) -> None:
        self._open = {key: finding for key, finding in self._open.items() if not gone(key, finding)}


def _key(check: str, sign: Sign) -> _Key:
    return (check, sign.code, sign.subject)
