"""Hostlists as Slurm prints them (`n1`, `gpu[001-016,020]`, `r[1-4]n[1-8]`) to node names.

The plain form with one bracket at its end is expanded here, because a tick expands thousands of them;
everything else is left to ClusterShell. The number of names is known and bounded before anything is expanded.
"""

import re
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

# Four times the largest fleet that the suite is made for.
MAX_NAMES = 65_536

_TEXT = re.compile(r"[A-Za-z0-9._\-,\[\]]+")
_PLAIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[([0-9,-]+)\])?")
_BRACKET = re.compile(r"\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


# Running jobs keep their lists from tick to tick; this holds those of 20,000 jobs, a third of them waiting.
@lru_cache(maxsize=16_384)
def expand(text: str) -> tuple[str, ...]:
    """Expand a hostlist to names, in its own order.

    Args:
        text: a hostlist; empty or `(null)` is no node.

    Raises:
        ValueError: not a hostlist, or one of more than `MAX_NAMES` names.
    """
    if text in ("", "(null)"):
        return ()
    plain = _PLAIN.fullmatch(text)
    if plain:
        prefix, ranges = plain.groups()
        return (prefix,) if ranges is None else _expand_bracket(prefix, ranges)
    if not _TEXT.fullmatch(text):
        raise ValueError(f"not a hostlist: {text[:80]!r}")
    _check_size(text)
    try:
        # Without a resolver a name is never looked up as a group in some configuration file.
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError as error:
        raise ValueError(f"not a hostlist: {text[:80]!r}") from error


def _spans(ranges: str) -> list[tuple[int, int, int]]:
    """`001-003,7` as (first, last, width) triples."""
    spans = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"not a hostlist range: {part[:40]!r}")
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low):
            raise ValueError(f"not a hostlist range: {part[:40]!r}")
        spans.append((int(low), int(high), len(low)))
    return spans


def _expand_bracket(prefix: str, ranges: str) -> tuple[str, ...]:
    spans = _spans(ranges)
    _check_count(sum(high - low + 1 for low, high, _ in spans))
    return tuple(f"{prefix}{i:0{width}d}" for low, high, width in spans for i in range(low, high + 1))


def _check_size(text: str) -> None:
    """Bound the product of all brackets: never less than the number of names."""
    count = text.count(",") + 1
    for ranges in _BRACKET.findall(text):
        count *= sum(high - low + 1 for low, high, _ in _spans(ranges))
        _check_count(count)


def _check_count(count: int) -> None:
    if count > MAX_NAMES:
        raise ValueError(f"hostlist of {count} names, more than {MAX_NAMES}")
