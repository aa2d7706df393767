"""Power and the boot override of an emulated BMC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurm_lifecycle.sandbox.bmc.chassis import Chassis
from slurm_lifecycle.sandbox.bmc.faults import Faults
from slurm_lifecycle.sandbox.bmc.http import Reply
from slurm_lifecycle.sandbox.bmc.profiles import SimProfile

_FIELDS = ("BootSourceOverrideEnabled", "BootSourceOverrideTarget", "BootSourceOverrideMode")
_NETWORK = ("Pxe", "UefiHttp")
_ENABLED = ("Disabled", "Once", "Continuous")


def error(status: int, message_id: str, text: str) -> Reply:
    """An error as Redfish words it."""
    info = {"MessageId": f"Base.1.13.{message_id}", "Message": text, "Severity": "Critical"}
    body = {"error": {"code": f"Base.1.13.{message_id}", "message": text, "@Message.ExtendedInfo": [info]}}
    return Reply(status, body)


class Power:
    """What a BMC does with its machine.

    Attributes:
        override: the three fields of Boot, whether or not they are all shown.
        on_start: told at each start, before the machine is switched on.
        on_mains: told when the mains side is cut.
    """

    def __init__(
        self, profile: SimProfile, chassis: Chassis, faults: Faults, clock: Callable[[], float]
    ) -> None:
        """No override."""
        self.profile = profile
        self.chassis = chassis
        idle = ("Disabled", "None", profile.mode_while_idle)
        self.override: dict[str, str | None] = dict(zip(_FIELDS, idle, strict=True))
        self.on_start: list[Callable[[], None]] = []
        self.on_mains: list[Callable[[], None]] = []
        self._faults = faults
        self._clock = clock
        self._off_at = float("-inf")
        self.started_at = float("-inf")

    def state(self) -> str:
        """Redfish `PowerState`, true unless a fault lies."""
        lie = self._faults.has("power-says")
        return str(lie.get("state", "Off")) if lie else ("On" if self.chassis.power() == "on" else "Off")

    def offered(self) -> list[str]:
        """Values of ResetType."""
        gone = "GracefulShutdown" if self._faults.has("no-graceful") else ""
        return [one for one in self.profile.resets if one != gone]

    # ---- reset

    def check(self, kind: Any) -> Reply | None:
        """Why a Reset is refused, None when it is not."""
        if self._faults.strikes("refuse-reset"):
            return error(400, "ActionParameterValueFormatError", "the value is not accepted now")
        if kind not in self.offered():
            return error(400, "ActionParameterNotSupported", f"ResetType {kind!r} is not supported")
        late = self._faults.has("conflict-409")
        if kind == "On" and late and self._clock() < self._off_at + float(late.get("seconds", 10)):
            self._faults.strikes("conflict-409")
            return error(409, "ResourceInUse", "the server was switched off just now")
        if kind == "On" and self.chassis.power() == "on" and self.profile.on_while_on != 204:
            return error(self.profile.on_while_on, "PSU507", "the server is on already")
        return None

    def reset(self, kind: str) -> None:
        """Do it."""
        if self._faults.strikes("power-deaf"):
            return
        if kind in ("On", "ForceOn"):
            self.start()
        elif kind == "GracefulShutdown":
            self._off_at = self._clock()
            self.chassis.ask_shutdown()
        elif kind == "ForceOff":
            self._off_at = self._clock()
            self.chassis.cut()
        elif kind == "PushPowerButton" and self.chassis.power() == "off":
            self.start()
        elif kind == "PushPowerButton":
            self.chassis.ask_shutdown()
        elif kind in ("ForceRestart", "GracefulRestart", "PowerCycle"):
            self.chassis.cut()
            self.start()

    def start(self) -> None:
        """Switch on, from where the override says."""
        if self.chassis.power() == "on":
            return
        for told in self.on_start:
            told()
        enabled, target, _ = (self.override[one] for one in _FIELDS)
        network = (
            enabled in ("Once", "Continuous")
            and target in _NETWORK
            and not self._faults.strikes("boot-ignored")
        )
        if enabled == "Once" and not self._faults.strikes("boot-never-cleared"):
            kept = target if self.profile.target_stays else "None"
            self.override.update(zip(_FIELDS[:2], ("Disabled", kept), strict=True))
        self.started_at = self._clock()
        self.chassis.press_on("network" if network else "disk")

    def cut_mains(self) -> None:
        """The mains side goes off and on: the BMC starts anew as well."""
        for told in self.on_mains:
            told()
        self._off_at = self._clock()
        self.chassis.cut_mains()

    # ---- boot

    def shown(self) -> dict[str, str | None]:
        """The fields as they are read back."""
        fields = dict(self.override)
        if not self.profile.modes:
            del fields[_FIELDS[2]]
        if self._faults.has("boot-continuous") and fields[_FIELDS[0]] == "Once":
            fields[_FIELDS[0]] = "Continuous"
        return fields

    def set_boot(self, wanted: Any) -> Reply:
        """PATCH of Boot."""
        if not isinstance(wanted, dict) or not wanted or not set(wanted) <= set(_FIELDS):
            return error(400, "PropertyUnknown", "Boot holds a property that is not known")
        enabled, target, mode = (wanted.get(one) for one in _FIELDS)
        if self.chassis.power() == "on" and self._faults.strikes("boot-post-400"):
            return error(400, "UnableToModifyDuringSystemPOST", "not while the system is in POST")
        if enabled == "Disabled" and self._faults.strikes("boot-clear-refused"):
            return error(400, "PropertyValueNotInList", "Disabled is not accepted")
        if enabled is not None and enabled not in _ENABLED:
            return error(400, "PropertyValueNotInList", f"{enabled!r} is not known here")
        if target is not None and target not in self.profile.targets:
            return error(400, "PropertyValueNotInList", f"{target!r} is not a boot target here")
        if mode is not None and self.profile.modes and mode not in self.profile.modes:
            return error(400, "PropertyValueNotInList", f"{mode!r} is not a boot mode here")
        if self.profile.mode_is_job and mode == self.override[_FIELDS[2]]:
            return error(400, "SYS428", "a job for the boot mode is scheduled")
        if self._faults.strikes("boot-not-set"):
            return Reply(204)
        if enabled is None and self.profile.all_boot_fields:
            # Supermicro: Enabled becomes Once unless it is sent (story 2008547).
            wanted = {**wanted, _FIELDS[0]: "Once"}
        known = _FIELDS if self.profile.modes else _FIELDS[:2]
        self.override.update({key: str(value) for key, value in wanted.items() if key in known})
        if mode is not None and not self.profile.modes:
            # OpenBMC sets the fields one after another; on an ARM host there is no boot type to set
            # (bmcweb, setBootType): it answers that, and has taken the others.
            return error(404, "ResourceNotFound", "The requested resource named Set of type BootType")
        return Reply(204)
