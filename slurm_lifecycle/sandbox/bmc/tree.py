"""The resources of an emulated BMC that do not change by themselves, by path; one tree serves many BMCs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from slurm_lifecycle.sandbox.bmc import hardware
from slurm_lifecycle.sandbox.bmc.hardware import (
    OK,
    Resource,
    Tree,
    chassis_path,
    collection,
    link,
    manager_path,
    system_path,
)
from slurm_lifecycle.sandbox.bmc.layout import ROOT
from slurm_lifecycle.sandbox.bmc.profiles import PROFILES, SimProfile


@cache
def build(name: str, gpus: int) -> Mapping[str, Resource]:
    """The tree of a profile.

    Args:
        name: of the profile.
        gpus: how many GPUs the machine has.
    """
    profile = PROFILES[name]
    tree: Tree = {}
    _root(tree, profile)
    _system(tree, profile)
    hardware.processors(tree, profile, gpus)
    hardware.memory(tree, profile)
    hardware.network(tree, profile)
    hardware.storage(tree, profile)
    hardware.boxes(tree, profile, gpus)
    _managers(tree, profile)
    _log(tree, profile)
    _bios(tree, profile)
    _services(tree, profile)
    _update(tree, profile)
    for path, resource in tree.items():
        resource.setdefault("@odata.id", path)
        resource.setdefault("@odata.type", "#Resource.v1_0_0.Resource")
        resource.setdefault("Id", path.rsplit("/", 1)[-1])
        resource.setdefault("Name", resource["Id"])
    return tree


def _root(tree: Tree, profile: SimProfile) -> None:
    levels = profile.layout.expand_levels
    expand = {"ExpandAll": True, "Levels": True, "Links": True, "NoLinks": True, "MaxLevels": levels}
    tree["/redfish"] = {"v1": f"{ROOT}/"}
    tree[ROOT] = {
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "Vendor": profile.manufacturer,
        "RedfishVersion": profile.redfish,
        "UUID": "92384634-2938-2342-8820-4892394{m}",
        "ProtocolFeaturesSupported": {"ExpandQuery": expand if levels else {}},
        **{
            name: link(f"{ROOT}/{name}")
            for name in ("Systems", "Chassis", "Managers", "SessionService", "AccountService",
                         "UpdateService", "Registries")
        },
        "Tasks": link(f"{ROOT}/TaskService"),
        "Links": {"Sessions": link(f"{ROOT}/SessionService/Sessions")},
    }  # fmt: skip
    tree[f"{ROOT}/Registries"] = collection(())


def _system(tree: Tree, profile: SimProfile) -> None:
    path = system_path(profile)
    systems = [path, *([f"{ROOT}/Systems/{profile.baseboard}"] if profile.baseboard else [])]
    tree[f"{ROOT}/Systems"] = collection(systems, "ComputerSystem")
    reset: Resource = {"target": f"{path}/Actions/ComputerSystem.Reset"}
    if profile.action_info:
        reset["@Redfish.ActionInfo"] = f"{path}/ResetActionInfo"
        values = {"Name": "ResetType", "Required": True, "AllowableValues": list(profile.resets)}
        tree[f"{path}/ResetActionInfo"] = {"Parameters": [values]}
    else:
        reset["ResetType@Redfish.AllowableValues"] = list(profile.resets)
    actions: Resource = {"#ComputerSystem.Reset": reset}
    if profile.ac_cycle is not None and "/Systems/" in profile.ac_cycle.path:
        actions["Oem"] = {"#OemSystemExtensions.Reset": {"target": profile.ac_cycle.path}}
    summary = {**OK, "HealthRollup": "OK"} if profile.rollup else dict(OK)
    tree[path] = {
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": profile.system,
        "Name": "System",
        "SystemType": "Physical",
        "BiosVersion": "2.4.1",
        "Status": summary,
        "Boot": boot(profile),
        "Processors": link(f"{path}/Processors"),
        "Memory": link(f"{path}/Memory"),
        "Storage": link(f"{path}/Storage"),
        "Bios": link(f"{path}/Bios"),
        "Links": {"Chassis": [link(chassis_path(profile))], "ManagedBy": [link(manager_path(profile))]},
        "Actions": actions,
        "MemorySummary": {"TotalSystemMemoryGiB": 2048, "Status": dict(OK)},
        "ProcessorSummary": {"Count": 2, "Status": dict(OK)},
    }
    if not profile.serial_at:
        tree[path] |= {"Manufacturer": profile.manufacturer, "Model": profile.model, "SKU": "S1"}
    if profile.settings:
        tree[path]["@Redfish.Settings"] = {
            "@odata.type": "#Settings.v1_3_0.Settings",
            "SettingsObject": link(profile.settings),
        }
        tree[profile.settings] = {"Boot": boot(profile)}


def boot(profile: SimProfile) -> Resource:
    """The Boot property where nothing is overridden."""
    shown: Resource = {
        "BootSourceOverrideEnabled": "Disabled",
        "BootSourceOverrideTarget": "None",
        "BootSourceOverrideTarget@Redfish.AllowableValues": list(profile.targets),
        "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Once", "Continuous", "Disabled"],
    }
    if profile.modes:
        shown |= {
            "BootSourceOverrideMode": profile.mode_while_idle,
            "BootSourceOverrideMode@Redfish.AllowableValues": list(profile.modes),
        }
    return shown


def _managers(tree: Tree, profile: SimProfile) -> None:
    path = manager_path(profile)
    others = [f"{ROOT}/Managers/{name}" for name in profile.layout.managers]
    tree[f"{ROOT}/Managers"] = collection([path, *others], "Manager")
    for one in others:
        tree[one] = {"@odata.type": "#Manager.v1_14_0.Manager", "ManagerType": "BMC", "Status": dict(OK)}
    tree[path] = {
        "@odata.type": "#Manager.v1_14_0.Manager",
        "ManagerType": "BMC",
        "FirmwareVersion": next(iter(profile.firmware.values())),
        "Status": dict(OK),
        "Actions": {
            "#Manager.Reset": {
                "target": f"{path}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": list(profile.manager_resets),
            },
            "#Manager.ResetToDefaults": {
                "target": f"{path}/Actions/Manager.ResetToDefaults",
                "ResetType@Redfish.AllowableValues": list(profile.manager_defaults),
            },
        },
    }


def _log(tree: Tree, profile: SimProfile) -> None:
    path = f"{ROOT}/{profile.layout.log}"
    services = path.rsplit("/", 1)[0]
    tree[services.rsplit("/", 1)[0]]["LogServices"] = link(services)
    tree[services] = collection([path], "LogService")
    tree[path] = {
        "LogEntryType": "SEL",
        "ServiceEnabled": True,
        "Entries": link(f"{path}/Entries"),
        "Actions": {"#LogService.ClearLog": {"target": f"{path}/Actions/LogService.ClearLog"}},
    }
    tree[f"{path}/Entries"] = collection((), "LogEntry")


def _bios(tree: Tree, profile: SimProfile) -> None:
    path = f"{system_path(profile)}/Bios"
    attributes = {"QuietBoot": "Enabled"}
    if profile.tpm is not None:
        attributes[profile.tpm.attribute] = profile.tpm.idle
    tree[path] = {
        "Attributes": attributes,
        "@Redfish.Settings": {
            "@odata.type": "#Settings.v1_3_0.Settings",
            "SettingsObject": link(f"{path}/{profile.bios_settings}"),
        },
        "Actions": {"#Bios.ResetBios": {"target": f"{path}/Actions/Bios.ResetBios"}},
    }
    tree[f"{path}/{profile.bios_settings}"] = {"Attributes": {}}


def _services(tree: Tree, profile: SimProfile) -> None:
    tree[f"{ROOT}/SessionService"] = {
        "ServiceEnabled": True,
        "SessionTimeout": profile.session_timeout_s,
        "Sessions": link(f"{ROOT}/SessionService/Sessions"),
    }
    tree[f"{ROOT}/AccountService"] = {
        "Accounts": link(f"{ROOT}/AccountService/Accounts"),
        "AccountLockoutThreshold": profile.lockout[0],
        "AccountLockoutDuration": int(profile.lockout[1]),
    }
    tree[f"{ROOT}/TaskService"] = {"ServiceEnabled": True, "Tasks": link(f"{ROOT}/TaskService/Tasks")}


def _update(tree: Tree, profile: SimProfile) -> None:
    update = f"{ROOT}/UpdateService"
    service: Resource = {
        "ServiceEnabled": True,
        "FirmwareInventory": link(f"{update}/FirmwareInventory"),
        "HttpPushUriOptions": {"ForceUpdate": False, "HttpPushUriApplyTime": {"ApplyTime": "Immediate"}},
        "Actions": {},
        "Status": dict(OK),
    }
    if profile.multipart_path:
        service["MultipartHttpPushUri"] = f"{update}/{profile.multipart_path}"
    if profile.push_path:
        service |= {"HttpPushUri": f"{update}/{profile.push_path}", "HttpPushUriTargets": []}
    if profile.update == "simple":
        target = f"{update}/Actions/UpdateService.SimpleUpdate"
        service["Actions"] = {"#UpdateService.SimpleUpdate": {"target": target}}
    elif profile.update == "multipart":
        # A DGX H100's target does not follow the standard's form, and takes no Targets.
        service |= {"MaxImageSizeBytes": 419627008}
        service["Actions"] = {"#UpdateService.SimpleUpdate": {"target": f"{update}/Actions/SimpleUpdate"}}
    tree[update] = service
    names = [f"{update}/FirmwareInventory/{name}" for name in profile.firmware]
    tree[f"{update}/FirmwareInventory"] = collection(names, "SoftwareInventory")
    for name, version in profile.firmware.items():
        row: Resource = {"Version": version, "Updateable": True, "Status": dict(OK)}
        if profile.name == "dgx_h100":
            # It tells no Status; parts of the baseboard name it as their parent.
            del row["Status"]
            hgx = {"DeviceClass": "HGX", "Parent": "HGX_0"} if name.startswith("HGX_") else {}
            row["Oem"] = {"Ami": hgx}
        tree[f"{update}/FirmwareInventory/{name}"] = row
    if profile.name == "gb200":
        # Captured so: absent, critical, not updateable, and no fault of anything.
        tree[f"{update}/FirmwareInventory/HGX_FW_GPU_0"] = {
            "Version": "",
            "Updateable": False,
            "Status": {"State": "Absent", "Health": "Critical"},
        }
