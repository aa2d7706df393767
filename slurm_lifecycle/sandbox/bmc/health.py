"""What differs from one emulated machine to the next in its parts: health, serial numbers, event log."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from slurm_lifecycle.sandbox.bmc.hardware import chassis_path, system_path
from slurm_lifecycle.sandbox.bmc.layout import ROOT, Parts, parts_of
from slurm_lifecycle.sandbox.bmc.profiles import SimProfile

HEALTHS = ("OK", "Warning", "Critical")
ABSENT = "Absent"
_HOT_C = 52


class Health:
    """Parts that are not well, or not those that the machine came with.

    Parts are called `psu0`, `fan1`, `temp`, `gpu3`, `dimm2`, `drive1`; `system` is the machine as a whole.
    """

    def __init__(self, profile: SimProfile, gpus: int) -> None:
        """All is well."""
        self._profile = profile
        self._system = system_path(profile)
        self._chassis = chassis_path(profile)
        self._log_path = f"{ROOT}/{profile.layout.log}"
        self._parts: Parts = parts_of(profile.layout, self._system, self._chassis, gpus)
        self._bad: dict[str, str] = {}
        self._serials: dict[str, str] = {}
        self._log: list[dict[str, Any]] = []
        self._logged = 0

    def names(self) -> list[str]:
        """Parts that this machine has."""
        return [*self._parts.places, "system"]

    def set(self, part: str, health: str) -> None:
        """From now on a part is `OK`, `Warning`, `Critical`, or `Absent`, which is a state.

        Raises:
            ValueError: no such part, or no such health.
        """
        if health not in (*HEALTHS, ABSENT):
            raise ValueError(f"no health {health!r}: choose one of {' '.join((*HEALTHS, ABSENT))}")
        if part != "system":
            self._parts.of(part)
        self._bad = {**self._bad, part: health}

    def replace(self, part: str, serial: str) -> None:
        """Another part is in the same place.

        Raises:
            ValueError: no such part.
        """
        self._parts.of(part)
        self._serials = {**self._serials, part: serial}

    # ---- the event log

    def log(self, severity: str, message: str, created: str = "") -> None:
        """Add an entry to the event log."""
        self._logged += 1
        path = f"{self._log_path}/Entries/{self._logged}"
        now = created or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S+00:00")
        entry = {"@odata.id": path, "Id": str(self._logged), "EntryType": "SEL", "Created": now}
        self._log = [*self._log, {**entry, "Severity": severity, "Message": message}]

    def clear_log(self) -> None:
        """No entry is left."""
        self._log = []

    def log_entry(self, path: str) -> dict[str, Any] | None:
        """One entry by its path."""
        return next((dict(one) for one in self._log if one["@odata.id"] == path), None)

    # ---- what is shown

    def lay_over(self, path: str, shown: dict[str, Any]) -> None:
        """Put what is special about this machine into a resource that is being shown."""
        if path == f"{self._log_path}/Entries":
            shown["Members"] = [dict(one) for one in reversed(self._log)]
            shown["Members@odata.count"] = len(self._log)
        for part, serial in self._serials.items():
            for row in self._rows(part, path, shown):
                row["SerialNumber"] = serial
        for part, health in self._bad.items():
            for row in self._rows(part, path, shown):
                _mark(part, health, row)
        if path == self._system and "system" in self._bad and not self._profile.rollup:
            shown["Status"]["Health"] = self._bad["system"]
        self._roll_up(path, shown)

    def _rows(self, part: str, path: str, shown: dict[str, Any]) -> list[dict[str, Any]]:
        if part == "system":
            return []
        here = [one for one in self._parts.of(part) if one.path == path]
        return [shown[one.rows][one.row] if one.rows else shown for one in here]

    def _roll_up(self, path: str, shown: dict[str, Any]) -> None:
        """A resource for the whole tells the worst of its parts, where it tells a rollup at all."""
        status = shown.get("Status")
        if not isinstance(status, dict) or "HealthRollup" not in status:
            return
        baseboard = f"{ROOT}/Systems/{self._profile.baseboard}" if self._profile.baseboard else ""
        kinds = {
            self._system: ("system", "dimm", "drive") if baseboard else ("system", "dimm", "drive", "gpu"),
            self._chassis: ("psu", "fan", "temp"),
            baseboard: ("gpu",),
        }.get(path, ())
        if not kinds:
            return
        found = [health for part, health in self._bad.items() if part.rstrip("0123456789") in kinds]
        status["HealthRollup"] = max(
            (one for one in found if one in HEALTHS), key=HEALTHS.index, default="OK"
        )


def _mark(part: str, health: str, row: dict[str, Any]) -> None:
    """Write a part's health into the resource, or the row, that stands for it."""
    if health == ABSENT:
        row["Status"] = {"State": ABSENT, "Health": "Critical"}
        return
    row["Status"] = {**row.get("Status", {}), "State": "Enabled", "Health": health}
    if "HealthRollup" in row["Status"]:
        row["Status"]["HealthRollup"] = health
    if health == "OK":
        return
    if part == "temp":
        row["ReadingCelsius" if "ReadingCelsius" in row else "Reading"] = _HOT_C
    elif part.startswith("fan"):
        if "SpeedPercent" in row:
            row["SpeedPercent"] = {"Reading": 0, "SpeedRPM": 0}
        else:
            row["Reading"] = 0
