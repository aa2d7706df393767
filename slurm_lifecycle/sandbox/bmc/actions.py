"""What changes something on an emulated BMC, and what follows from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from slurm_lifecycle.sandbox.bmc.hardware import manager_path, system_path
from slurm_lifecycle.sandbox.bmc.http import Reply, Request
from slurm_lifecycle.sandbox.bmc.layout import ROOT
from slurm_lifecycle.sandbox.bmc.power import error
from slurm_lifecycle.sandbox.bmc.sessions import ACCOUNTS, SESSIONS

if TYPE_CHECKING:
    from slurm_lifecycle.sandbox.bmc.simulator import BmcSimulator

_RESET_TASK_S, _UPDATE_S, _ERASE_S = 0.5, 5.0, 2.0
_BMC_RESTART_S, _AFTER_MAINS_S = 3.0, 5.0
_UPDATE = f"{ROOT}/UpdateService"
_VERSION = re.compile(r"VERSION=([A-Za-z0-9._-]+)")
_TARGETS = re.compile(r'"Targets"\s*:\s*\[([^\]]*)\]')


def change(bmc: BmcSimulator, request: Request) -> Reply:
    """Carry out a POST, PATCH or DELETE."""
    path, profile = request.path, bmc.profile
    if request.method == "DELETE" and path.startswith(f"{SESSIONS}/"):
        return bmc.sessions.logout(path.rsplit("/", 1)[-1])
    if path.startswith(f"{ACCOUNTS}/"):
        return bmc.sessions.change_account(request, path.rsplit("/", 1)[-1])
    if request.method == "PATCH":
        return _patch(bmc, request)
    if path == f"{system_path(profile)}/Actions/ComputerSystem.Reset":
        return _reset(bmc, request)
    if profile.ac_cycle is not None and path == profile.ac_cycle.path:
        return _ac_cycle(bmc, request)
    if path.startswith(f"{manager_path(profile)}/Actions/Manager."):
        return _manager(bmc, request)
    if path == f"{ROOT}/{profile.layout.log}/Actions/LogService.ClearLog":
        bmc.health.clear_log()
        return Reply(204)
    if path.endswith("/Actions/Drive.SecureErase"):
        return _erase(bmc, request)
    if path.startswith(_UPDATE):
        return _update(bmc, request)
    return error(404, "ResourceMissingAtURI", f"{path} cannot be changed")


def _body(request: Request) -> dict[str, Any]:
    found = request.json()
    return found if isinstance(found, dict) else {}


def _manager(bmc: BmcSimulator, request: Request) -> Reply:
    """Restart the BMC, or make it as it came; sessions end, and it answers nothing for a while."""
    profile, kind = bmc.profile, _body(request).get("ResetType")
    to_defaults = request.path.endswith("/Manager.ResetToDefaults")
    if not to_defaults and not request.path.endswith("/Manager.Reset"):
        return error(404, "ResourceMissingAtURI", f"{request.path} is not there")
    if kind not in (profile.manager_defaults if to_defaults else profile.manager_resets):
        return error(400, "ActionParameterNotSupported", f"ResetType {kind!r} is not supported")
    if to_defaults and kind != "PreserveNetworkAndUsers":
        bmc.sessions.factory()
    bmc.updates.activate("bmc_reset")
    _restart_bmc(bmc, _BMC_RESTART_S)
    return Reply(204)


def _patch(bmc: BmcSimulator, request: Request) -> Reply:
    profile, body = bmc.profile, _body(request)
    owner = profile.settings or system_path(profile)
    if request.path in (owner, system_path(profile)) and set(body) == {"Boot"}:
        if request.path != owner:
            return error(400, "PropertyNotWritable", "Boot is written to the settings")
        return bmc.power.set_boot(body["Boot"])
    if request.path == f"{system_path(profile)}/Bios/{profile.bios_settings}" and "Attributes" in body:
        return _patch_bios(bmc, body)
    return error(405, "ActionNotSupported", f"{request.path} cannot be patched so")


def _patch_bios(bmc: BmcSimulator, body: dict[str, Any]) -> Reply:
    """Attributes for the next start; where it needs a job, only with a time to apply them."""
    tpm, wanted = bmc.profile.tpm, body["Attributes"]
    known = {"QuietBoot": ("Enabled", "Disabled"), **({tpm.attribute: (tpm.clear, tpm.idle)} if tpm else {})}
    if not set(body) <= {"Attributes", "@Redfish.SettingsApplyTime"} or not isinstance(wanted, dict):
        return error(400, "PropertyUnknown", "a property that is not known")
    for name, value in wanted.items():
        if name not in known:
            return error(400, "PropertyUnknown", f"no attribute {name!r}")
        if value not in known[name]:
            return error(400, "PropertyValueNotInList", f"{value!r} is not known for {name}")
    bmc.bios_next.update(wanted)
    bmc.bios_job = "@Redfish.SettingsApplyTime" in body or not (tpm and tpm.needs_job)
    return Reply(204)


def _reset(bmc: BmcSimulator, request: Request) -> Reply:
    kind = _body(request).get("ResetType")
    refused = bmc.power.check(kind)
    if refused is not None:
        return refused
    if not bmc.profile.reset_is_task:
        bmc.power.reset(str(kind))
        return Reply(204)
    if not bmc.faults.has("task-exception"):
        bmc.power.reset(str(kind))
    return bmc.tasks.begin(f"Reset {kind}", _RESET_TASK_S)


def _ac_cycle(bmc: BmcSimulator, request: Request) -> Reply:
    cycle, body = bmc.profile.ac_cycle, _body(request)
    assert cycle is not None
    value = body.get(cycle.key)
    if value not in (cycle.value, cycle.forced_value or cycle.value):
        return error(400, "ActionParameterNotSupported", f"{value!r} is not supported")
    if cycle.needs_off and value != cycle.forced_value and bmc.power.chassis.power() == "on":
        # infra-controller#909: AuxPowerReset is refused while the host is on.
        return error(400, "ChassisPowerStateOffRequired", "the chassis has to be off")
    if bmc.faults.strikes("power-deaf"):
        return Reply(204)
    bmc.power.cut_mains()
    if body.get("FinalPowerState") == "On":
        bmc.power.start()
    return Reply(204)


def starts(bmc: BmcSimulator) -> None:
    """The machine is switched on after it was off: what waits for that comes into force."""
    bmc.updates.activate("dc_cycle")
    tpm = bmc.profile.tpm
    if not bmc.bios_job:
        return
    if tpm is not None and bmc.bios_next.get(tpm.attribute) == tpm.clear:
        bmc.tpm_cleared += 1
    bmc.bios_next.clear()


def mains(bmc: BmcSimulator) -> None:
    """The mains side was cut: the BMC starts anew as well."""
    bmc.updates.activate("ac_cycle")
    _restart_bmc(bmc, _AFTER_MAINS_S)


def _restart_bmc(bmc: BmcSimulator, dark_s: float) -> None:
    bmc.sessions.open.clear()
    bmc.dark_until = bmc.clock() + dark_s


def _erase(bmc: BmcSimulator, request: Request) -> Reply:
    drive = request.path.removesuffix("/Actions/Drive.SecureErase")
    shown = bmc.resource(drive)
    if shown is None or "Actions" not in shown:
        return error(404, "ResourceMissingAtURI", "no such drive, or none that can be erased so")
    if bmc.faults.strikes("erase-fails", request.path):
        return error(400, "ActionNotSupported", "the drive cannot be erased")
    kind = str(_body(request).get("SanitizationType", "BlockErase"))
    if kind not in ("BlockErase", "CryptographicErase"):
        return error(400, "ActionParameterValueNotInList", f"{kind!r} is not offered")

    def done() -> None:
        if not bmc.faults.strikes("erase-lies", request.path):
            bmc.erased[drive] = kind

    takes_s = 1e9 if bmc.faults.strikes("erase-stuck", request.path) else _ERASE_S
    return bmc.tasks.begin("SecureErase", takes_s, done)


def _update(bmc: BmcSimulator, request: Request) -> Reply:
    service = bmc.resource(_UPDATE) or {}
    simple = [one["target"] for one in service["Actions"].values()]
    pushes = [service.get("HttpPushUri"), service.get("MultipartHttpPushUri")]
    if request.path not in (*simple, *pushes):
        return error(404, "ResourceMissingAtURI", f"{request.path} takes no update")
    text = request.body.decode("latin-1")
    found = _VERSION.search(text)
    if found is None:
        return error(400, "PropertyMissing", "the package names no version")
    named = _TARGETS.search(text)
    meant = bmc.updates.meant(re.findall(r'"([^"]+)"', named[1]) if named else [])
    if meant is None:
        return error(400, "PropertyValueNotInList", "a target that is not known")
    return bmc.tasks.begin("Update", _UPDATE_S, lambda: bmc.updates.stage(meant, found[1]))
