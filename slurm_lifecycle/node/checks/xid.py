"""What the NVIDIA driver says in the kernel log: line by line, pure.

Formats: `NVRM: Xid (PCI:dddd:bb:dd): N, text`, in old drivers without `PCI:`, with MIG instances inside the
parentheses, with or without pid and name; `nvidia-nvswitchN: SXid (PCI:...): N, Fatal|Non-fatal, Link N
text`, followed by lines of detail; and a GPU off the bus without an XID, in one line or in three.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Union

# Field 230 and the text of XID 154 use the same numbers.
RECOVERY_CODES = {
    0: "",
    1: "RECOVERY_RESET",
    2: "RECOVERY_REBOOT",
    3: "RECOVERY_DRAIN_P2P",
    4: "RECOVERY_RESET",
    5: "RECOVERY_UNKNOWN",  # recover the IMEX domain: not this node's to do
    6: "RECOVERY_REBOOT",  # bus reset: a reboot includes it, and a GPU reset does not
    7: "RECOVERY_REBOOT",
}

# The vendor's table says to ignore these, and no other public table drains for them.
NOTICES = frozenset({37, 38, 44, 63, 92, 106, 107, 108, 121, 141, 152, 153, 160, 161, 162})

_BUS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?({_BUS})((?: GPU-I:\d+)?(?: GPU-CI:\d+)?)\): (\d{{1,5}})(?:, (.*))?$"
)
_SXID = re.compile(rf"nvidia-nvswitch(\d+): SXid \(PCI:({_BUS})\): (\d{{1,6}}), (Fatal|Non-fatal), (.*)$")
_OFF_BUS = re.compile(rf"NVRM: GPU (?:at PCI:)?({_BUS}): GPU has fallen off the bus")
_PROBE_1 = re.compile(rf"NVRM: The NVIDIA GPU ({_BUS})")
_PROBE_3 = re.compile(r"NVRM: fallen off the bus and is not responding")
_RECOVERY = re.compile(r"GPU recovery action changed from 0x[0-9a-fA-F]+ \(.*?\) to 0x([0-9a-fA-F]{1,8})\b")
_AFTER_XID = re.compile(r"caused by previous Xid \d+")


@dataclass(frozen=True)
class Xid:
    """One XID line.

    Attributes:
        recovery: for 154, the number of the recovery action that the driver now asks for; -1 where
        unreadable. follows: the line itself says that it is the effect of another XID.
    """

    device: str
    number: int
    text: str
    mig: str = ""
    recovery: Optional[int] = None
    follows: bool = False


@dataclass(frozen=True)
class SXid:
    """One NVSwitch error."""

    switch: int
    number: int
    fatal: bool
    text: str


@dataclass(frozen=True)
class OffBus:
    """A GPU that left the bus, said without an XID."""

    device: str


@dataclass(frozen=True)
class OffBusBegin:
    """First line of three: which GPU the third one speaks of."""

    device: str


@dataclass(frozen=True)
class OffBusEnd:
    """Third line of three."""


Event = Union[Xid, SXid, OffBus, OffBusBegin, OffBusEnd]


def normal_bus_id(text: str) -> str:
    """One form for the many of a PCI address: `dddd:bb:dd`, lower case, without function.

    Args:
        text: `0000:3B:00`, `00000000:3B:00.0` and such.
    """
    domain, bus, device = text.split(".", maxsplit=1)[0].lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}"


def parse_line(line: str) -> Optional[Event]:
    """What a line of the kernel log says of a GPU or an NVSwitch; None for all other lines."""
    match = _XID.match(line)
    if match:
        return _xid(match)
    match = _SXID.match(line)
    if match:
        switch, _bus, number, severity, text = match.groups()
        return SXid(int(switch), int(number), severity == "Fatal", text)
    match = _OFF_BUS.match(line)
    if match:
        return OffBus(normal_bus_id(match.group(1)))
    match = _PROBE_1.match(line)
    if match:
        return OffBusBegin(normal_bus_id(match.group(1)))
    return OffBusEnd() if _PROBE_3.match(line) else None


def _xid(match: re.Match[str]) -> Xid:
    bus, mig, number_text, text = match.groups()
    number, text = int(number_text), text or ""
    recovery = None
    if number == 154:
        action = _RECOVERY.search(text)
        recovery = int(action.group(1), 16) if action else -1
    return Xid(normal_bus_id(bus), number, text, mig.strip(), recovery, bool(_AFTER_XID.search(text)))
