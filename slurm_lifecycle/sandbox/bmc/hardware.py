"""The parts of an emulated machine, as its BMC shows them where all is well.

`{m}` in a serial number and `{x}` in an address stand for digits of the one machine: the tree is shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slurm_lifecycle.sandbox.bmc.layout import ROOT, Layout
from slurm_lifecycle.sandbox.bmc.profiles import SimProfile

Resource = dict[str, Any]
Tree = dict[str, Resource]
OK = {"State": "Enabled", "Health": "OK"}


def link(path: str) -> Resource:
    """A reference to a resource."""
    return {"@odata.id": path}


def collection(members: Iterable[str], kind: str = "") -> Resource:
    """A collection of resources."""
    links = [link(path) for path in members]
    return {
        "@odata.type": f"#{kind or 'Resource'}Collection.{kind or 'Resource'}Collection",
        "Name": f"{kind} Collection".strip(),
        "Members": links,
        "Members@odata.count": len(links),
    }


def system_path(profile: SimProfile) -> str:
    """The system that stands for the machine."""
    return f"{ROOT}/Systems/{profile.system}"


def chassis_path(profile: SimProfile) -> str:
    """The chassis that stands for the machine."""
    return f"{ROOT}/Chassis/{profile.chassis}"


def manager_path(profile: SimProfile) -> str:
    """The BMC itself."""
    return f"{ROOT}/Managers/{profile.manager}"


def processors(tree: Tree, profile: SimProfile, gpus: int) -> None:
    """CPUs and GPUs; the GPUs may be those of a second system, or PCIe devices of the chassis."""
    path, layout = system_path(profile), profile.layout
    cpus = [f"{path}/Processors/CPU_{n}" for n in range(2)]
    for one in cpus:
        tree[one] = {"ProcessorType": "CPU", "Model": "CPU", "Status": dict(OK)}
    cards = [f"{ROOT}/{layout.gpu.format(n=n + layout.gpu_first)}" for n in range(gpus)]
    for number, card in enumerate(cards):
        tree[card] = {
            "ProcessorType": "GPU",
            "Manufacturer": "NVIDIA",
            "Model": "H100 80GB HBM3",
            "SerialNumber": f"165{{m}}{number:05d}",
            "PartNumber": "2330-885-A1",
            "Status": dict(OK),
        }
    place = f"{ROOT}/{layout.gpu}".rsplit("/", 1)[0]
    own = place == f"{path}/Processors"
    tree[f"{path}/Processors"] = collection([*cpus, *(cards if own else ())], "Processor")
    if not own:
        tree[place] = collection(cards, place.rsplit("/", 1)[-1].removesuffix("s"))
    if profile.baseboard:
        board = f"{ROOT}/Systems/{profile.baseboard}"
        # It has no actions and no Boot, and a DGX H100's tells no serial number, as captured.
        tree[board] = {
            "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem",
            "SystemType": "Physical",
            "Manufacturer": "NVIDIA",
            "PowerState": "On",
            "Status": {**OK, "HealthRollup": "OK"},
            "Processors": link(place),
            "LastResetTime": "1970-01-01T00:00:00+00:00",
            **({"SerialNumber": "164{m}00000"} if profile.serial_at else {}),
        }


def memory(tree: Tree, profile: SimProfile) -> None:
    """Memory modules."""
    path, layout = system_path(profile), profile.layout
    dimms = [f"{path}/Memory/{layout.dimm.format(n=n + layout.dimm_first)}" for n in range(layout.dimms)]
    tree[f"{path}/Memory"] = collection(dimms, "Memory")
    for number, one in enumerate(dimms):
        tree[one] = {
            "CapacityMiB": 65536,
            "Manufacturer": "Samsung",
            "PartNumber": "M321R8GA0BB0-CQKZJ",
            "SerialNumber": f"80CE{{m}}{number:02X}",
            "Status": dict(OK),
        }


def network(tree: Tree, profile: SimProfile) -> None:
    """Network interfaces; a captured GB200 lists none."""
    path = system_path(profile)
    if profile.name == "gb200":
        return
    nics = [f"{path}/EthernetInterfaces/eth{n}" for n in range(2)]
    tree[path]["EthernetInterfaces"] = link(f"{path}/EthernetInterfaces")
    tree[f"{path}/EthernetInterfaces"] = collection(nics, "EthernetInterface")
    for number, one in enumerate(nics):
        tree[one] = {"MACAddress": f"02:00:{{x}}:{number:02x}", "Status": dict(OK)}


def storage(tree: Tree, profile: SimProfile) -> None:
    """Drives, listed by one Storage, wherever they are."""
    layout, path = profile.layout, f"{ROOT}/{profile.layout.storage}"
    drives = [f"{ROOT}/{layout.drive.format(n=n)}" for n in range(layout.drives)]
    tree[f"{system_path(profile)}/Storage"] = collection([path], "Storage")
    tree[path] = {
        "Status": {**OK, "HealthRollup": "OK"},
        "Drives": [link(one) for one in drives],
        "Drives@odata.count": len(drives),
    }
    for number, one in enumerate(drives):
        tree[one] = {
            "Manufacturer": "Samsung",
            "Model": "MZTL23T8HCLS-00A07",
            "SerialNumber": f"S6{{m}}{number:06d}",
            "Protocol": "NVMe",
            "MediaType": "SSD",
            "CapacityBytes": 3840755982336,
            "EncryptionAbility": "SelfEncryptingDrive" if number else "None",
            "Status": dict(OK),
        }
        _erase(tree, layout, one)


def _erase(tree: Tree, layout: Layout, drive: str) -> None:
    values = ["BlockErase", "CryptographicErase"]
    action: Resource = {"target": f"{drive}/Actions/Drive.SecureErase"}
    if layout.erase == "values":
        action["SanitizationType@Redfish.AllowableValues"] = values
    elif layout.erase == "info":
        action["@Redfish.ActionInfo"] = f"{drive}/SanitizeActionInfo"
        parameter = {"Name": "SanitizationType", "DataType": "String", "AllowableValues": values}
        tree[f"{drive}/SanitizeActionInfo"] = {"Parameters": [parameter]}
    if layout.erase:
        tree[drive]["Actions"] = {"#Drive.SecureErase": action}


def boxes(tree: Tree, profile: SimProfile, gpus: int) -> None:
    """The machine's chassis and those inside of it."""
    path, layout = chassis_path(profile), profile.layout
    trays = [
        f"{ROOT}/{layout.tray.format(n=n + layout.gpu_first)}" for n in range(gpus if layout.tray else 0)
    ]
    others = [f"{ROOT}/Chassis/{name}" for name in layout.chassis]
    tree[f"{ROOT}/Chassis"] = collection([path, *others, *trays], "Chassis")
    tree[path] = {
        "ChassisType": "RackMount",
        "Manufacturer": profile.manufacturer,
        "Model": profile.model,
        "SerialNumber": "C{m}",
        "Status": {**OK, "HealthRollup": "OK"},
        "Links": {
            "ComputerSystems": [link(system_path(profile))],
            "ManagedBy": [link(manager_path(profile))],
        },
    }
    if layout.gpu.startswith("Chassis/"):
        tree[path]["PCIeDevices"] = link(f"{ROOT}/{layout.gpu}".rsplit("/", 1)[0])
    for one in others:
        tree[one] = {"ChassisType": "Component", "Status": {**OK, "HealthRollup": "OK"}}
        if "ERoT" in one:
            tree[one]["Oem"] = {
                "Nvidia": {"AutomaticBackgroundCopyEnabled": True, "BackgroundCopyStatus": "Completed"}
            }
    if profile.ac_cycle is not None and "/Chassis/" in profile.ac_cycle.path:
        owner, _, name = profile.ac_cycle.path.partition("/Actions/Oem/")
        tree[owner]["Actions"] = {"Oem": {f"#{name}": {"target": profile.ac_cycle.path}}}
    for number, one in enumerate(trays):
        tree[one] = {
            "ChassisType": "Module",
            "Model": "H100 80GB HBM3",
            "SerialNumber": f"165{{m}}{number:05d}",
            "Status": {**OK, "HealthRollup": "OK"},
        }
    if layout.old:
        _old_health(tree, path, layout)
    if layout.new:
        _new_health(tree, path, layout)


def _supplies(layout: Layout) -> list[Resource]:
    return [
        {
            "Name": layout.psu.format(n=n + layout.psu_first),
            "MemberId": str(n),
            "Manufacturer": "Delta",
            "Model": "ECD16020137",
            "SerialNumber": f"DTH{{m}}{n:03d}",
            **({"Status": dict(OK)} if layout.psus_tell else {}),
        }
        for n in range(layout.psus)
    ]


def _fans(layout: Layout) -> list[str]:
    return [layout.fan.format(n=n + layout.fan_first) for n in range(layout.fans)]


def _old_health(tree: Tree, path: str, layout: Layout) -> None:
    tree[path] |= {"Thermal": link(f"{path}/Thermal"), "Power": link(f"{path}/Power")}
    inlet = {
        "Name": layout.inlet,
        "MemberId": "0",
        "PhysicalContext": "Intake",
        "ReadingCelsius": 24,
        "UpperThresholdCritical": 45,
        "UpperThresholdFatal": 50,
        "Status": dict(OK),
    }
    # A sensor without a reading, as captured trees have many.
    idle = {"Name": "TEMP_SPARE", "MemberId": "1", "ReadingCelsius": None, "Status": {"State": "Absent"}}
    fans = [
        {"Name": name, "MemberId": str(n), "Reading": 9000, "ReadingUnits": "RPM", "Status": dict(OK)}
        for n, name in enumerate(_fans(layout))
    ]
    tree[f"{path}/Thermal"] = {"Temperatures": [inlet, idle], "Fans": fans}
    power: Resource = {"PowerControl": [{"MemberId": "0", "Name": "Chassis Power Control"}], "Voltages": []}
    if layout.psus_in_power:
        power["PowerSupplies"] = _supplies(layout)
    tree[f"{path}/Power"] = power


def _new_health(tree: Tree, path: str, layout: Layout) -> None:
    thermal, power, sensors = f"{path}/ThermalSubsystem", f"{path}/PowerSubsystem", f"{path}/Sensors"
    tree[path] |= {
        "ThermalSubsystem": link(thermal),
        "PowerSubsystem": link(power),
        "Sensors": link(sensors),
    }
    inlet = f"{sensors}/{layout.inlet}"
    tree[inlet] = {
        "Name": layout.inlet,
        "Reading": 24,
        "ReadingType": "Temperature",
        "ReadingUnits": "Cel",
        "Thresholds": {"UpperCritical": {"Reading": 45}, "UpperFatal": {"Reading": 50}},
        "Status": dict(OK),
    }
    fans = [] if layout.fan_sensors else [f"{thermal}/Fans/{name}" for name in _fans(layout)]
    spinning = [f"{sensors}/{name}" for name in _fans(layout)] if layout.fan_sensors else []
    tree[thermal] = {"Status": dict(OK), "Fans": link(f"{thermal}/Fans")}
    tree[f"{thermal}/Fans"] = collection(fans, "Fan")
    for one in fans:
        tree[one] = {"SpeedPercent": {"Reading": 40, "SpeedRPM": 9000}, "Status": dict(OK)}
    for one in spinning:
        tree[one] = {
            "Reading": 6553,
            "ReadingType": "Rotational",
            "ReadingUnits": "RPM",
            "Thresholds": {"LowerCritical": {"Reading": 2204}},
            "Status": dict(OK),
        }
    tree[sensors] = collection([inlet, *spinning], "Sensor")
    supplies = _supplies(layout)
    tree[power] = {"Status": dict(OK), "PowerSupplies": link(f"{power}/PowerSupplies")}
    names = [f"{power}/PowerSupplies/{one['Name']}" for one in supplies]
    tree[f"{power}/PowerSupplies"] = collection(names, "PowerSupply")
    for name, supply in zip(names, supplies, strict=True):
        tree[name] = {key: value for key, value in supply.items() if key != "MemberId"}
