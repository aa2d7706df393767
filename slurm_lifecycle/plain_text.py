"""Text from outside made fit to be shown: nothing in it moves a cursor, starts a line or hides words."""

import unicodedata

# Cc: control characters. Cf: formatting ones, which turn the direction of what follows. Cs: half characters.
# Zl, Zp: line breaks that `str.splitlines` knows and a terminal may not.
_BAD = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"})


def plain_line(text: object, limit: int = 500) -> str:
    """One line of printable characters, at most `limit` long; runs of blanks become one.

    Args:
        text: anything; what is no text is written as Python writes it.
        limit: how many characters are kept.
    """
    # Cut first: what a node sends may be large, and each kept character is looked at.
    raw = str(text)[: limit * 4]
    if raw.isascii() and raw.isprintable():
        return " ".join(raw.split())[:limit]
    kept = "".join(" " if unicodedata.category(char) in _BAD else char for char in raw)
    return " ".join(kept.split())[:limit]
