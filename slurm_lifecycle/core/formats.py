"""The strings that live in Slurm: reasons, the node's verdict in Extra, the daemon's mark in Comment.

One writer a field: the agent writes Extra, the daemon writes Comment; what others wrote there is kept.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from slurm_lifecycle.core.fault_catalog import Level, fault_for
from slurm_lifecycle.core.model import Verdict

REASON_PREFIX = "slc:"
# slurmdbd's event table holds 255 bytes of reason; Slurm appends ` : reboot issued : reboot timed out`.
REASON_MAX_BYTES = 200
NO_COMPONENT = "-"

# How a mark and a claim begin: a Comment without these words holds neither.
MARK_OPENS = "slc1["
CLAIM_OPENS = "slcd["

# Nodes say the same thing tick after tick; twice as many texts are kept as the largest fleet has nodes.
_VERDICTS_KEPT = 32_768

_NOT_IN_REASON = re.compile(r"[^A-Za-z0-9 ._:/+-]+")
_VERDICT = re.compile(
    r"(?:^|; )slc1 (?P<boot>[0-9a-f-]{8,64}) (?P<seq>[0-9]{1,9}) (?P<level>ok|warn|drain)"
    r" (?P<code>[A-Z0-9_]{1,40}|-) (?P<component>[A-Za-z0-9._:/+-]{1,80})"
    # The marker of the node's last reimage; a node without one says nothing of it.
    r"(?: img=(?P<image_op>[A-Za-z0-9][A-Za-z0-9._:-]{0,199}),(?P<image>[A-Za-z0-9._:/@+-]{1,200}))?$"
)
_MARK = re.compile(r" ?slc1\[([^\]\[]*)\]")
_CLAIM = re.compile(r" ?slcd\[([^\]\[@:]*)@([^\]\[@:]*):([0-9]{1,9})\]")


def make_reason(code: str, component: str, text: str = "") -> str:
    """The reason we drain with: `slc:<CODE> <component> <text>`, one line, at most 200 bytes.

    The text comes from the catalogue where none is given. Foreign characters become a blank.
    """
    where = "" if component in ("", NO_COMPONENT) else f"{component} "
    raw = f"{REASON_PREFIX}{code} {where}{text or fault_for(code).text}"
    return " ".join(_NOT_IN_REASON.sub(" ", raw).split())[:REASON_MAX_BYTES].rstrip()


def is_our_reason(reason: str) -> bool:
    """Whether the text is ours. Only the prefix counts: Slurm appends to reasons and resets their uid."""
    return reason.startswith(REASON_PREFIX)


def tells_of_a_reboot(reason: str) -> bool:
    """Whether Slurm added to a reason at an earlier reboot.

    At the next one 22.05 writes `reboot issued` over the whole of such a reason (measured), and the drain is
    nobody's any more. Newer releases leave it as it is.
    """
    return "reboot issued" in reason or "reboot timed out" in reason


def reason_code(reason: str) -> tuple[str, str]:
    """Code and component of a reason of ours; component is `-` where it names none."""
    words = reason.removeprefix(REASON_PREFIX).split(" : ")[0].split()
    code = words[0] if words else ""
    component = words[1] if len(words) > 1 and re.fullmatch(r"[a-z]+[0-9][A-Za-z0-9._:-]*", words[1]) else ""
    return code, component or NO_COMPONENT


@lru_cache(maxsize=_VERDICTS_KEPT)
def parse_verdict(extra: str) -> Verdict | None:
    """The node's verdict at the end of its Extra field, None where there is none or it is malformed."""
    found = _VERDICT.search(extra)
    if found is None:
        return None
    return Verdict(
        boot_id=found["boot"],
        seq=int(found["seq"]),
        level=Level(found["level"]),
        code="" if found["code"] == "-" else found["code"],
        component=found["component"],
        image_op=found["image_op"] or "",
        image=found["image"] or "",
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """The daemon's mark on a node that it works on: which instance, which incident, how far."""

    instance: str
    incident_id: str
    revision: int
    step: str
    hold: bool = False


def parse_mark(comment: str) -> Mark | None:
    """The mark in a node's Comment, None where there is none or it is malformed."""
    found = _MARK.search(comment) if MARK_OPENS in comment else None
    if found is None:
        return None
    items = found[1].split(";")
    if len(items) < 4 or not items[2].isdigit():
        return None
    return Mark(items[0], items[1], int(items[2]), items[3], "hold" in items[4:])


def with_mark(comment: str, mark: Mark | None) -> str:
    """The comment with our mark replaced (removed when None), everything else as it was."""
    rest = _MARK.sub("", comment)
    if mark is None:
        return rest
    hold = ";hold" if mark.hold else ""
    text = f"slc1[{mark.instance};{mark.incident_id};{mark.revision};{mark.step}{hold}]"
    return f"{rest} {text}" if rest else text


@dataclass(frozen=True, slots=True)
class Claim:
    """Which daemon acts on this cluster; it stands in the Comment of the first readable node by name."""

    instance: str
    host: str
    generation: int


def parse_claim(comment: str) -> Claim | None:
    """The claim in a node's Comment, None where there is none."""
    found = _CLAIM.search(comment) if CLAIM_OPENS in comment else None
    return None if found is None else Claim(found[1], found[2], int(found[3]))


def with_claim(comment: str, claim: Claim) -> str:
    """The comment with the claim set, everything else as it was."""
    rest = _CLAIM.sub("", comment)
    text = f"slcd[{claim.instance}@{claim.host}:{claim.generation}]"
    return f"{rest} {text}" if rest else text
