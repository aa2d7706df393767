"""The resources of an emulated BMC that do not change by themselves, by path; one tree serves many BMCs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from slurm_lifecycle.sandbox.bmc.profiles import PROFILES, SimProfile

ROOT = "/redfish/v1"
PSUS, FANS, DIMMS, DRIVES = 4, 8, 8, 4
_OK = {"State": "Enabled", "Health": "OK"}
Resource = dict[str, Any]
Tree = dict[str, Resource]


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
    _system(tree, profile, gpus)
    _storage(tree, profile)
    _chassis(tree, profile, gpus)
    _manager(tree, profile)
    _services(tree, profile)
    for path, resource in tree.items():
        resource.setdefault("@odata.id", path)
        resource.setdefault("@odata.type", "#Resource.v1_0_0.Resource")
        resource.setdefault("Id", path.rsplit("/", 1)[-1])
        resource.setdefault("Name", resource["Id"])
    return tree


def collection(members: Iterable[str], kind: str = "") -> Resource:
    """A collection of resources."""
    links = [{"@odata.id": path} for path in members]
    return {
        "@odata.type": f"#{kind or 'Resource'}Collection.{kind or 'Resource'}Collection",
        "Name": f"{kind} Collection".strip(),
        "Members": links,
        "Members@odata.count": len(links),
    }


def _link(path: str) -> Resource:
    return {"@odata.id": path}


def system_path(profile: SimProfile) -> str:
    """The system that stands for the machine."""
    return f"{ROOT}/Systems/{profile.system}"


def chassis_path(profile: SimProfile) -> str:
    """The chassis that stands for the machine."""
    return f"{ROOT}/Chassis/{profile.chassis}"


def manager_path(profile: SimProfile) -> str:
    """The BMC itself."""
    return f"{ROOT}/Managers/{profile.manager}"


def _root(tree: Tree, profile: SimProfile) -> None:
    tree[ROOT] = {
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "Vendor": profile.manufacturer,
        "RedfishVersion": profile.redfish,
        "UUID": "92384634-2938-2342-8820-489239905423",
        **{
            name: _link(f"{ROOT}/{name}")
            for name in ("Systems", "Chassis", "Managers", "SessionService", "AccountService",
                         "UpdateService", "Registries")
        },
        "Tasks": _link(f"{ROOT}/TaskService"),
        "Links": {"Sessions": _link(f"{ROOT}/SessionService/Sessions")},
    }  # fmt: skip
    tree[f"{ROOT}/Registries"] = collection(())


def _system(tree: Tree, profile: SimProfile, gpus: int) -> None:
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
    system: Resource = {
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": profile.system,
        "Name": "System",
        "SystemType": "Physical",
        "Manufacturer": profile.manufacturer,
        "Model": profile.model,
        "SKU": "S1",
        "BiosVersion": "2.4.1",
        "Status": {**_OK, "HealthRollup": "OK"},
        "Boot": boot(profile),
        "Processors": _link(f"{path}/Processors"),
        "Memory": _link(f"{path}/Memory"),
        "Storage": _link(f"{path}/Storage"),
        "EthernetInterfaces": _link(f"{path}/EthernetInterfaces"),
        "LogServices": _link(f"{path}/LogServices"),
        "Bios": _link(f"{path}/Bios"),
        "Links": {
            "Chassis": [_link(chassis_path(profile))],
            "ManagedBy": [_link(manager_path(profile))],
        },
        "Actions": actions,
        "MemorySummary": {"TotalSystemMemoryGiB": 2048, "Status": dict(_OK)},
        "ProcessorSummary": {"Count": 2, "Status": dict(_OK)},
    }
    if profile.settings:
        system["@Redfish.Settings"] = {
            "@odata.type": "#Settings.v1_3_0.Settings",
            "SettingsObject": _link(profile.settings),
        }
        tree[profile.settings] = {"Boot": boot(profile)}
    tree[path] = system
    _parts_of_system(tree, profile, path, gpus)


def boot(profile: SimProfile) -> Resource:
    """The Boot property where nothing is overridden."""
    return {
        "BootSourceOverrideEnabled": "Disabled",
        "BootSourceOverrideTarget": "None",
        "BootSourceOverrideMode": "UEFI",
        "BootSourceOverrideTarget@Redfish.AllowableValues": list(profile.targets),
        "BootSourceOverrideMode@Redfish.AllowableValues": list(profile.modes),
        "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Once", "Continuous", "Disabled"],
    }


def _parts_of_system(tree: Tree, profile: SimProfile, path: str, gpus: int) -> None:
    cpus = [f"{path}/Processors/CPU_{n}" for n in range(2)]
    for one in cpus:
        tree[one] = {"ProcessorType": "CPU", "Model": "CPU", "Status": dict(_OK)}
    holder = f"{ROOT}/Systems/{profile.baseboard}" if profile.baseboard else path
    cards = []
    for number in range(1, gpus + 1):
        card = f"{holder}/Processors/{gpu_id(profile, number)}"
        cards.append(card)
        tree[card] = {
            "ProcessorType": "GPU",
            "Manufacturer": "NVIDIA",
            "Model": "H100 80GB HBM3",
            "SerialNumber": f"165{number:010d}",
            "PartNumber": "2330-885-A1",
            "Status": dict(_OK),
        }
    if profile.baseboard:
        # It has no actions, no serial number and no Boot, as captured.
        tree[holder] = {
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "SystemType": "Composed",
            "Status": dict(_OK),
            "Processors": _link(f"{holder}/Processors"),
            "LastResetTime": "1970-01-01T00:00:00+00:00",
        }
        tree[f"{holder}/Processors"] = collection(cards, "Processor")
        tree[f"{path}/Processors"] = collection(cpus, "Processor")
    else:
        tree[f"{path}/Processors"] = collection([*cpus, *cards], "Processor")
    dimms = [f"{path}/Memory/DIMM_{n}" for n in range(DIMMS)]
    tree[f"{path}/Memory"] = collection(dimms, "Memory")
    for number, one in enumerate(dimms):
        tree[one] = {
            "CapacityMiB": 131072,
            "Manufacturer": "Samsung",
            "PartNumber": "M321RAGA0B20-CWKZJ",
            "SerialNumber": f"D{number:07d}",
            "Status": dict(_OK),
        }
    nics = [f"{path}/EthernetInterfaces/eth{n}" for n in range(2)]
    tree[f"{path}/EthernetInterfaces"] = collection(nics, "EthernetInterface")
    for number, one in enumerate(nics):
        tree[one] = {"MACAddress": f"02:00:00:00:00:{number:02x}", "Status": dict(_OK)}
    tree[f"{path}/LogServices"] = collection([f"{path}/LogServices/SEL"], "LogService")
    tree[f"{path}/LogServices/SEL"] = {
        "LogEntryType": "SEL",
        "ServiceEnabled": True,
        "Entries": _link(f"{path}/LogServices/SEL/Entries"),
    }
    tree[f"{path}/LogServices/SEL/Entries"] = collection((), "LogEntry")
    tree[f"{path}/Bios"] = {
        "Attributes": {profile.tpm[0]: "NoAction", "BootMode": "Uefi"},
        "@Redfish.Settings": {"SettingsObject": _link(f"{path}/Bios/Settings")},
        "Actions": {"#Bios.ResetBios": {"target": f"{path}/Bios/Actions/Bios.ResetBios"}},
    }
    tree[f"{path}/Bios/Settings"] = {"Attributes": {}}


def gpu_id(profile: SimProfile, number: int) -> str:
    """Id of a GPU; they are counted from 1, on GB200 and others from 0."""
    return profile.gpu.format(number - 1 if profile.name in ("gb200", "generic") else number)


def _storage(tree: Tree, profile: SimProfile) -> None:
    path = f"{system_path(profile)}/Storage"
    tree[path] = collection([f"{path}/NVMe"], "Storage")
    drives = [f"{path}/NVMe/Drives/{n}" for n in range(DRIVES)]
    tree[f"{path}/NVMe"] = {"Status": dict(_OK), "Drives": [_link(one) for one in drives]}
    for number, one in enumerate(drives):
        tree[one] = {
            "Manufacturer": "Samsung",
            "Model": "MZWLO3T8HCLS-00A07",
            "SerialNumber": f"S6{number:09d}",
            "Protocol": "NVMe",
            "MediaType": "SSD",
            "CapacityBytes": 3840755982336,
            "EncryptionAbility": "SelfEncryptingDrive" if number else "None",
            "Status": dict(_OK),
            "Actions": {
                "#Drive.SecureErase": {
                    "target": f"{one}/Actions/Drive.SecureErase",
                    "SanitizationType@Redfish.AllowableValues": ["BlockErase", "CryptographicErase"],
                }
            },
        }


def _chassis(tree: Tree, profile: SimProfile, gpus: int) -> None:
    path = chassis_path(profile)
    trays = [f"{ROOT}/Chassis/{gpu_id(profile, n)}" for n in range(1, gpus + 1)]
    others = [f"{ROOT}/Chassis/BMC_0"] if profile.name == "gb200" else []
    shown = trays if profile.baseboard else []
    tree[f"{ROOT}/Chassis"] = collection([path, *others, *shown], "Chassis")
    tree[path] = {
        "ChassisType": "RackMount",
        "Manufacturer": profile.manufacturer,
        "Model": profile.model,
        "Status": {**_OK, "HealthRollup": "OK"},
    }
    for one in others:
        tree[one] = {"ChassisType": "Module", "Status": dict(_OK)}
    if profile.ac_cycle is not None and "/Chassis/" in profile.ac_cycle.path:
        owner, _, name = profile.ac_cycle.path.partition("/Actions/Oem/")
        tree[owner]["Actions"] = {"Oem": {f"#{name}": {"target": profile.ac_cycle.path}}}
    for number, one in enumerate(shown, 1):
        tree[one] = {"ChassisType": "Module", "SerialNumber": f"165{number:010d}", "Status": dict(_OK)}
    fans = [{"Name": f"Fan {n}", "MemberId": str(n), "Reading": 9000, "ReadingUnits": "RPM",
             "Status": dict(_OK)} for n in range(FANS)]  # fmt: skip
    supplies = [{"Name": f"PSU {n}", "MemberId": str(n), "Model": "PS-2312", "SerialNumber": f"P{n:06d}",
                 "Status": dict(_OK)} for n in range(PSUS)]  # fmt: skip
    inlet = {"Name": "Inlet", "MemberId": "0", "ReadingCelsius": 24, "UpperThresholdCritical": 45,
             "UpperThresholdFatal": 50, "Status": dict(_OK)}  # fmt: skip
    if profile.old_health:
        tree[path] |= {"Thermal": _link(f"{path}/Thermal"), "Power": _link(f"{path}/Power")}
        tree[f"{path}/Thermal"] = {"Temperatures": [inlet], "Fans": fans}
        tree[f"{path}/Power"] = {"PowerSupplies": supplies}
        return
    thermal, power = f"{path}/ThermalSubsystem", f"{path}/PowerSubsystem"
    tree[path] |= {
        "ThermalSubsystem": _link(thermal),
        "PowerSubsystem": _link(power),
        "Sensors": _link(f"{path}/Sensors"),
    }
    tree[thermal] = {"Status": dict(_OK), "Fans": _link(f"{thermal}/Fans")}
    tree[f"{thermal}/Fans"] = collection([f"{thermal}/Fans/{n}" for n in range(FANS)], "Fan")
    for number, fan in enumerate(fans):
        tree[f"{thermal}/Fans/{number}"] = {"Name": fan["Name"], "Status": fan["Status"]}
    tree[power] = {"Status": dict(_OK), "PowerSupplies": _link(f"{power}/PowerSupplies")}
    tree[f"{power}/PowerSupplies"] = collection([f"{power}/PowerSupplies/{n}" for n in range(PSUS)])
    for number, supply in enumerate(supplies):
        kept = {key: supply[key] for key in ("Name", "Model", "SerialNumber", "Status")}
        tree[f"{power}/PowerSupplies/{number}"] = kept
    tree[f"{path}/Sensors"] = collection([f"{path}/Sensors/Inlet"], "Sensor")
    tree[f"{path}/Sensors/Inlet"] = {
        "Reading": 24,
        "ReadingType": "Temperature",
        "ReadingUnits": "Cel",
        "Thresholds": {"UpperCritical": {"Reading": 45}, "UpperFatal": {"Reading": 50}},
        "Status": dict(_OK),
    }


def _manager(tree: Tree, profile: SimProfile) -> None:
    path = manager_path(profile)
    tree[f"{ROOT}/Managers"] = collection([path], "Manager")
    tree[path] = {
        "@odata.type": "#Manager.v1_14_0.Manager",
        "ManagerType": "BMC",
        "FirmwareVersion": next(iter(profile.firmware.values()), "1.0"),
        "Status": dict(_OK),
        "Actions": {
            "#Manager.Reset": {
                "target": f"{path}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": ["GracefulRestart"],
            },
            "#Manager.ResetToDefaults": {
                "target": f"{path}/Actions/Manager.ResetToDefaults",
                "ResetType@Redfish.AllowableValues": ["ResetAll", "PreserveNetwork"],
            },
        },
    }


def _services(tree: Tree, profile: SimProfile) -> None:
    tree[f"{ROOT}/SessionService"] = {
        "ServiceEnabled": True,
        "SessionTimeout": profile.session_timeout_s,
        "Sessions": _link(f"{ROOT}/SessionService/Sessions"),
    }
    tree[f"{ROOT}/AccountService"] = {"Accounts": _link(f"{ROOT}/AccountService/Accounts")}
    update = f"{ROOT}/UpdateService"
    service: Resource = {
        "ServiceEnabled": True,
        "FirmwareInventory": _link(f"{update}/FirmwareInventory"),
        "Actions": {},
    }
    if profile.update == "simple":
        service["Actions"] = {
            "#UpdateService.SimpleUpdate": {"target": f"{update}/Actions/UpdateService.SimpleUpdate"}
        }
    elif profile.update == "multipart":
        service |= {"MultipartHttpPushUri": f"{update}/upload", "MaxImageSizeBytes": 419627008}
        service["Actions"] = {"#UpdateService.SimpleUpdate": {"target": f"{update}/Actions/SimpleUpdate"}}
    else:
        service |= {"HttpPushUri": f"{update}/update", "MultipartHttpPushUri": f"{update}/update-multipart"}
    tree[update] = service
    names = [f"{update}/FirmwareInventory/{name}" for name in profile.firmware]
    tree[f"{update}/FirmwareInventory"] = collection(names, "SoftwareInventory")
    for name, version in profile.firmware.items():
        tree[f"{update}/FirmwareInventory/{name}"] = {
            "Version": version,
            "Updateable": True,
            "Status": dict(_OK),
        }
    if profile.name == "gb200":
        # Captured so: absent, critical, not updateable, and no fault of anything.
        tree[f"{update}/FirmwareInventory/HGX_FW_GPU_0"] = {
            "Version": "",
            "Updateable": False,
            "Status": {"State": "Absent", "Health": "Critical"},
        }
    tree[f"{ROOT}/TaskService"] = {"ServiceEnabled": True, "Tasks": _link(f"{ROOT}/TaskService/Tasks")}
