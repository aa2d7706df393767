"""What an emulated BMC says of its machine's health, and its event log."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from slurm_lifecycle.sandbox.bmc.profiles import SimProfile
from slurm_lifecycle.sandbox.bmc.tree import chassis_path, gpu_id, system_path

_HOT_C = 52


class Health:
    """Health by component: `psu0`, `fan1`, `temp`, `gpu3`, `dimm2`, `drive1`, `system`."""

    def __init__(self, profile: SimProfile) -> None:
        """All is well."""
        self._profile = profile
        self._system = system_path(profile)
        self._chassis = chassis_path(profile)
        self._bad: dict[str, str] = {}
        self._log: list[dict[str, Any]] = []

    def set(self, component: str, health: str) -> None:
        """From now on a component is `OK`, `Warning`, `Critical`, or `Absent`, which is a state."""
        self._bad[component] = health

    def log(self, severity: str, message: str, created: str = "") -> None:
        """Add an entry to the event log."""
        number = len(self._log) + 1
        path = f"{self._system}/LogServices/SEL/Entries/{number}"
        now = created or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S+00:00")
        entry = {"@odata.id": path, "Id": str(number), "EntryType": "SEL", "Created": now}
        self._log.append({**entry, "Severity": severity, "Message": message})

    def log_entry(self, path: str) -> dict[str, Any] | None:
        """One entry by its path."""
        return next((dict(one) for one in self._log if one["@odata.id"] == path), None)

    def lay_over(self, path: str, shown: dict[str, Any]) -> None:
        """Put what is not well into a resource that is being shown."""
        if path == f"{self._system}/LogServices/SEL/Entries":
            shown["Members"] = [dict(one) for one in reversed(self._log)]
            shown["Members@odata.count"] = len(self._log)
        for component, health in self._bad.items():
            self._one(component, health, path, shown)

    def _one(self, component: str, health: str, path: str, shown: dict[str, Any]) -> None:
        kind = component.rstrip("0123456789")
        number = int(component[len(kind) :] or 0)
        if kind == "system" and path == self._system:
            shown["Status"]["HealthRollup"] = health
        elif kind == "temp":
            self._hot(path, shown)
        elif kind in ("psu", "fan"):
            name, key = ("PowerSupplies", "PSU") if kind == "psu" else ("Fans", "Fan")
            for row in shown.get(name, []) if isinstance(shown.get(name), list) else []:
                if row["Name"] == f"{key} {number}":
                    _status(row, health)
            if path.endswith(f"/{name}/{number}"):
                _status(shown, health)
        else:
            ends = {
                "gpu": f"/Processors/{gpu_id(self._profile, number + 1)}",
                "dimm": f"/Memory/DIMM_{number}",
                "drive": f"/Drives/{number}",
            }
            if kind in ends and path.endswith(ends[kind]):
                _status(shown, health)

    def _hot(self, path: str, shown: dict[str, Any]) -> None:
        if path == f"{self._chassis}/Thermal":
            shown["Temperatures"][0] |= {"ReadingCelsius": _HOT_C, "Status": _bad("Critical")}
        elif path == f"{self._chassis}/Sensors/Inlet":
            shown |= {"Reading": _HOT_C, "Status": _bad("Critical")}


def _status(row: dict[str, Any], health: str) -> None:
    row["Status"] = {"State": "Absent", "Health": "Critical"} if health == "Absent" else _bad(health)


def _bad(health: str) -> dict[str, str]:
    return {"State": "Enabled", "Health": health}
