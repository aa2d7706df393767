"""Firmware of an emulated machine: staged by an upload, in force from an activation level on.

Levels in order: `none` < `bmc_reset` < `host_reboot` < `dc_cycle` < `ac_cycle`. A BMC's own firmware needs
its reset, a BIOS a reboot of the host, GPU and baseboard firmware a DC cycle, ERoT and CPLD an AC cycle.
"""

from __future__ import annotations

from typing import Any

from slurm_lifecycle.sandbox.bmc.faults import Faults
from slurm_lifecycle.sandbox.bmc.layout import ROOT
from slurm_lifecycle.sandbox.bmc.profiles import SimProfile

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

    def meant(self, targets: list[str]) -> list[str] | None:
        """Components that an upload is for, by the targets it names; None where they are not accepted.

        None named means all, but on NVIDIA's machines the part that is not the baseboard's. There
        `FirmwareInventory/HGX_0` (DGX H100) or `Chassis/HGX_Chassis_0` (GB200) means the baseboard, and the
        BMC of a GB200 takes no other target (libredfish PR#39).
        """
        known = list(self._profile.firmware)
        hgx = [name for name in known if name.startswith("HGX_")]
        names = [one.rsplit("/", 1)[-1] for one in targets]
        if not self._profile.baseboard:
            return (names or known) if set(names) <= set(known) else None
        if not names:
            return [name for name in known if name not in hgx]
        if names in (["HGX_0"], ["HGX_Chassis_0"]):
            return hgx
        return names if self._profile.name != "gb200" and set(names) <= set(known) else None

    def stage(self, components: list[str], version: str) -> None:
        """An upload ended well."""
        partial = self._faults.has("partial-component")
        for name in components:
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
