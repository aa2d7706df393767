"""`$expand` of Redfish: resources in place of the references to them, some levels deep."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

_FORM = re.compile(r"(?P<what>[.~*])(?:\(\$levels=(?P<levels>\d+)\))?")
_LINKS = "Links"
# References go round in circles; a real BMC runs out of memory or time, here the rest stays references.
_MOST_RESOURCES = 2000


@dataclass(frozen=True, slots=True)
class Expansion:
    """What is to be expanded.

    Attributes:
        inside: references in `Links` too (`*` and `~`). outside: those that are not in `Links` (`*` and `.`).
    """

    inside: bool
    outside: bool
    levels: int

    @classmethod
    def asked(cls, query: str, most: int) -> Expansion | str | None:
        """What a query asks for: None for nothing, a text where it cannot be had.

        Args:
            query: of the request.
            most: levels that the BMC goes at most; 0 where it knows no expansion.
        """
        wanted = parse_qs(query).get("$expand", [""])[0]
        if not wanted:
            return None
        form = _FORM.fullmatch(wanted)
        if not most or form is None:
            return "$expand is not known here"
        levels = int(form["levels"] or 1)
        if not 1 <= levels <= most:
            return f"$levels is {most} at most"
        return cls(form["what"] != ".", form["what"] != "~", levels)

    def expand(self, shown: dict[str, Any], read: Callable[[str], dict[str, Any] | None]) -> dict[str, Any]:
        """The resource with those that it refers to.

        Args:
            shown: the resource.
            read: gives a resource by its path, None where it cannot be had: then the reference stays.
        """
        left = [_MOST_RESOURCES]

        def counted(path: str) -> dict[str, Any] | None:
            left[0] -= 1
            return read(path) if left[0] >= 0 else None

        return {
            key: self._value(value, counted, self.levels, linked=key == _LINKS)
            for key, value in shown.items()
        }

    def _value(
        self, value: Any, read: Callable[[str], dict[str, Any] | None], levels: int, *, linked: bool
    ) -> Any:
        if isinstance(value, list):
            return [self._value(one, read, levels, linked=linked) for one in value]
        if not isinstance(value, dict):
            return value
        if set(value) != {"@odata.id"}:
            return {
                key: self._value(one, read, levels, linked=linked or key == _LINKS)
                for key, one in value.items()
            }
        if levels == 0 or not (self.inside if linked else self.outside):
            return value
        found = read(value["@odata.id"])
        if found is None:
            return value
        return {key: self._value(one, read, levels - 1, linked=key == _LINKS) for key, one in found.items()}
