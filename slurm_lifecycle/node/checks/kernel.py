"""From the driver's words in the kernel log to findings."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Optional, Tuple

from slurm_lifecycle.core.fault_catalog import ClearRule, FaultClass, fault_for, xid_fault
from slurm_lifecycle.node.checks.xid import (
    NOTICES,
    RECOVERY_CODES,
    OffBus,
    OffBusBegin,
    OffBusEnd,
    SXid,
    Xid,
    parse_line,
)
from slurm_lifecycle.node.findings import QUIET_S, Sign, Tracker
from slurm_lifecycle.node.kernel_log import Record

CHECK_ID = "kernel_log"
_PROBE_LINES_S = 1.0
_FOLLOWS_S = 5.0
_RECOVERY_SET = frozenset(code for code in RECOVERY_CODES.values() if code) | {"RECOVERY_UNKNOWN"}


def _lines_of_driver(record: Record) -> Tuple[str, ...]:
    """The lines of a record that only the driver can have written.

    The kernel quotes what users name: the file that a process crashed in, an option of a mount in a user
    namespace. Such a name may hold a newline and then a line that looks like the driver's. But it never
    stands at the start of a record, save for a process name, whose 15 bytes are too short for any line that
    counts here. So what follows the first line counts only where the first is the driver's own.
    """
    if parse_line(record.lines[0]) is None:
        return ()
    return record.lines


class KernelInterpreter:
    """Applies kernel-log records to the findings, in order.

    Args:
        tracker: where findings are kept.
        component_of: PCI bus id to component; the bus id itself where the index is not known yet.
        limit: lowers the level of a sign where the check only observes.
    """

    def __init__(
        self, tracker: Tracker, component_of: Callable[[str], str], limit: Callable[[str, Sign], Sign]
    ) -> None:
        self._tracker = tracker
        self._component_of = component_of
        self._limit = limit
        self._last_xid_s: Dict[str, float] = {}
        self._probe: Optional[Tuple[str, float]] = None

    def feed(self, records: Iterable[Record], now_s: float) -> None:
        """Take new records.

        Args:
            records: in the order of the log.
            now_s: uptime now; a record from the future counts as of now.
        """
        for record in records:
            when_s = min(record.uptime_s, now_s)
            for line in _lines_of_driver(record):
                self._line(line, when_s, now_s)

    def lost_records(self, now_s: float) -> None:
        """The log overwrote records before they were read: faults may have been missed."""
        text = "kernel log records lost"
        self._raise(Sign("CHECK_FAILED", "kernel-log", text, clears=ClearRule.QUIET), now_s, now_s)

    def _line(self, line: str, when_s: float, now_s: float) -> None:
        event = parse_line(line)
        if event is None:
            return
        if isinstance(event, Xid):
            self._xid(event, line, when_s, now_s)
        elif isinstance(event, SXid):
            severity = "fatal" if event.fatal else "non-fatal"
            sign = Sign(
                f"SXID{event.number}", f"nvswitch{event.switch}", f"NVSwitch {severity} {event.text}", line
            )
            self._raise(sign, when_s, now_s)
        elif isinstance(event, OffBus):
            self._off_bus(event.device, line, when_s, now_s)
        elif isinstance(event, OffBusBegin):
            self._probe = (event.device, when_s)
        elif isinstance(event, OffBusEnd) and self._probe is not None:
            device, begun_s = self._probe
            self._probe = None
            if when_s - begun_s <= _PROBE_LINES_S:
                self._off_bus(device, line, when_s, now_s)

    def _xid(self, xid: Xid, line: str, when_s: float, now_s: float) -> None:
        if xid.recovery is not None:
            self._recovery(xid, line, when_s, now_s)
            return
        if xid.number in NOTICES:
            return
        cause_s = self._last_xid_s.get(xid.device)
        if xid.number == 45 and (xid.follows or (cause_s is not None and when_s - cause_s <= _FOLLOWS_S)):
            return  # the channels that die of another fault; that one is on record
        if xid.number != 45:
            self._last_xid_s[xid.device] = when_s
        fault = xid_fault(xid.number)
        if xid.number == 79 and self._tracker.is_open(CHECK_ID, "GPU_OFF_BUS", xid.device):
            return
        text = "" if fault.fault_class is not FaultClass.UNKNOWN else f"XID {xid.number} {xid.text}"
        component = self._component_of(xid.device)
        self._raise(Sign(fault.code, component, text, line, xid.device), when_s, now_s)

    def _off_bus(self, device: str, line: str, when_s: float, now_s: float) -> None:
        if not self._tracker.is_open(CHECK_ID, "XID79", device):
            self._raise(Sign("GPU_OFF_BUS", self._component_of(device), "", line, device), when_s, now_s)

    def _recovery(self, xid: Xid, line: str, when_s: float, now_s: float) -> None:
        """XID 154 is the driver's own verdict: it goes before the table, also where it takes a verdict
        back.
        """
        code = RECOVERY_CODES.get(-1 if xid.recovery is None else xid.recovery, "RECOVERY_UNKNOWN")
        gone = _RECOVERY_SET - {code}
        if not code:
            # No action needed any more: the reset that these asked for has been done.
            gone |= frozenset(
                known
                for known in self._tracker.codes_on(CHECK_ID, xid.device)
                if fault_for(known).fault_class is FaultClass.GPU_RESET
            )
        self._tracker.clear(CHECK_ID, xid.device, gone)
        if code:
            self._raise(Sign(code, self._component_of(xid.device), "", line, xid.device), when_s, now_s)

    def _raise(self, sign: Sign, when_s: float, now_s: float) -> None:
        limited = self._limit(CHECK_ID, sign)
        quiet = (limited.clears or fault_for(limited.code).clears) is ClearRule.QUIET
        if quiet and now_s - when_s >= QUIET_S:
            return  # over before it was read
        self._tracker.raise_sign(CHECK_ID, limited, when_s)
