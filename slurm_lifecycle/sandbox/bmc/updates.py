"""Firmware of an emulated machine: staged by an upload, in force from an activation level on.

Levels in order: `none` < `bmc_reset` < `host_reboot` < `dc_cycle` < `ac_cycle`. A BMC's own firmware needs
its reset, a BIOS a reboot of the host, GPU and baseboard firmware a DC cycle, ERoT and CPLD an AC cycle.
"""

from __future__ import annotations

from typing import Any

from slurm_lifecycle.sandbox.bmc.faults import Faults
from slurm_lifecycle.sandbox.bmc.profiles import SimProfile
from slurm_lifecycle.sandbox.bmc.tree import ROOT

LEVELS = ("none", "bmc_reset", "host_reboot", "dc_cycle", "ac_cycle")
INVENTORY = f"{ROOT}/UpdateService/FirmwareInventory"


class Updates:
    """Versions in force, and versions that wait.

    Attributes:
        versions: by component, where they differ from the profile's. staged: by component.
    """

    def __init__(self, profile: SimProfile, faults: Faults) -> None:
        """As the profile says."""
        self._profile = profile
        self._faults = faults
        self.versions: dict[str, str] = {}
        self.staged: dict[str, str] = {}

    def stage(self, components: list[str], version: str) -> None:
        """An upload ended well."""
        partial = self._faults.has("partial-component")
        for name in components or list(self._profile.firmware):
            if partial is None or partial.get("component", "") not in name:
                self.staged[name] = version

    def level_of(self, component: str) -> str:
        """What it takes to bring a component's new version into force."""
        late = self._faults.has("version-after-level")
        if late is not None:
            return str(late.get("level", "ac_cycle"))
        name = component.lower()
        if "erot" in name or "cpld" in name:
            return "ac_cycle"
        if "hgx" in name or "gpu" in name or "switch" in name:
            return "dc_cycle"
        return "host_reboot" if "bios" in name or "uefi" in name else "bmc_reset"

    def activate(self, level: str) -> None:
        """Something of that level happened."""
        for name, version in list(self.staged.items()):
            if LEVELS.index(self.level_of(name)) <= LEVELS.index(level):
                self.versions[name] = version
                del self.staged[name]

    def lay_over(self, path: str, shown: dict[str, Any]) -> None:
        """Put the version in force into an entry that is being shown."""
        if path.startswith(f"{INVENTORY}/"):
            name = path.rsplit("/", 1)[-1]
            shown["Version"] = self.versions.get(name, shown["Version"])
