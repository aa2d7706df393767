"""What a system's resource says, read strictly: each value may be of any type."""

from collections.abc import Mapping
from typing import Any

from slurm_lifecycle.core.machine import BootOverride, MachineCommand, PowerState
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.redfish.connection import Nonsense
from slurm_lifecycle.redfish.profiles import Profile

_WORD_LIMIT = 64
_POWER = {
    "On": PowerState.ON,
    "Off": PowerState.OFF,
    "PoweringOn": PowerState.POWERING_ON,
    "PoweringOff": PowerState.POWERING_OFF,
}
_TARGETS = "BootSourceOverrideTarget@Redfish.AllowableValues"
_FIELDS = ("BootSourceOverrideEnabled", "BootSourceOverrideTarget", "BootSourceOverrideMode")


def parameter_values(info: Mapping[str, Any]) -> list[Any]:
    """Values of ResetType in an ActionInfo; none where it does not tell them."""
    rows = info.get("Parameters")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("Name") == "ResetType":
            values = row.get("AllowableValues")
            return values if isinstance(values, list) else []
    return []


def settings_path(system: Mapping[str, Any]) -> str:
    """Path of the resource that takes changes for the system, "" where the system itself does."""
    settings = system.get("@Redfish.Settings")
    link = settings.get("SettingsObject") if isinstance(settings, dict) else None
    path = link.get("@odata.id") if isinstance(link, dict) else None
    return path if isinstance(path, str) else ""


def power_state(system: Mapping[str, Any]) -> PowerState:
    """The power as it says it.

    Raises:
        Nonsense: in no word at all.
    """
    found = system.get("PowerState")
    if not isinstance(found, str):
        raise Nonsense(f"its PowerState is {found!r}")
    return _POWER.get(found, PowerState.UNKNOWN)


def word(resource: Mapping[str, Any], key: str, limit: int = _WORD_LIMIT) -> str:
    """A property that is text, as one short line; "" where it is none."""
    found = resource.get(key)
    return plain_line(found, limit) if isinstance(found, str) else ""


def boot_override(fields: Mapping[str, Any]) -> BootOverride:
    """The boot override of a Boot object."""
    return BootOverride(*(word(fields, key) for key in _FIELDS))


def boot_targets(boot: Mapping[str, Any]) -> list[str]:
    """What it says it can boot from; nothing where it does not tell."""
    offers = boot.get(_TARGETS)
    return [plain_line(one, _WORD_LIMIT) for one in offers[:50]] if isinstance(offers, list) else []


def boot_fields(profile: Profile, command: MachineCommand, boot: Mapping[str, Any]) -> dict[str, str]:
    """What BOOT_ONCE or BOOT_CLEAR writes, after the Boot object that is there."""
    clears = command is MachineCommand.BOOT_CLEAR
    enabled, target = ("Disabled", "None") if clears else ("Once", profile.boot_target)
    fields = {_FIELDS[0]: enabled, _FIELDS[1]: target}
    mode = boot.get(_FIELDS[2])
    if _FIELDS[2] not in boot:
        # An ARM host has none; OpenBMC answers 404 for it after it took the others.
        return fields
    if profile.mode_only_if_different and (clears or mode == profile.boot_mode):
        return fields
    # Who takes the override away changes no mode (story 2008252: on some it outlives the override).
    stays = isinstance(mode, str) and mode and clears
    return {**fields, _FIELDS[2]: str(mode) if stays else profile.boot_mode}
