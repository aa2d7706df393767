"""Where the BMCs of each kind put the parts of their machine, and what the parts are called.

Names and places are those of trees captured from a DGX H100, a GB200 compute tray, a Supermicro
SYS-821GE-TNHR and a Dell PowerEdge (libredfish, NVIDIA, 2023 to 2025); `generic` follows the standard.
`{n}` in a name stands for the part's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ROOT = "/redfish/v1"


@dataclass(frozen=True, slots=True)
class Layout:
    """Parts of one kind of machine.

    Attributes:
        gpu: path of a GPU below the root. gpu_first: number of the first one in names.
        tray: path of the chassis that stands for a GPU, "" where there is none.
        dimm: id of a memory module. dimm_first: number of the first one.
        storage: path of the Storage that lists the drives.
        drive: path of a drive. erase: how a drive offers SecureErase: `values` (in the action), `info`
            (as an ActionInfo), or "" (not at all).
        psu: id of a power supply. psus: how many; none where a rack's power shelves feed it.
        fan: id of a fan. fans: how many.
        fan_sensors: fans show as sensors alone.
        old, new: forms of health: Thermal and Power; ThermalSubsystem, PowerSubsystem and Sensors.
        psus_in_power: Power lists the power supplies. psus_tell: a healthy power supply tells its Status.
        psu_first, fan_first: number of the first one.
        inlet: name of the temperature that `temp` means.
        log: path of the system event log's service.
        managers: ids of managers beside the BMC. chassis: ids of chassis beside the machine's own.
        expand_levels: how deep `$expand` goes; 0 where there is none.
    """

    gpu: str = "Systems/1/Processors/GPU{n}"
    gpu_first: int = 0
    tray: str = ""
    dimm: str = "DIMM_{n}"
    dimm_first: int = 0
    dimms: int = 8
    storage: str = "Systems/1/Storage/NVMe"
    drive: str = "Systems/1/Storage/NVMe/Drives/{n}"
    drives: int = 4
    erase: str = "values"
    psu: str = "PSU {n}"
    psu_first: int = 0
    psus: int = 4
    fan: str = "Fan {n}"
    fan_first: int = 0
    fans: int = 8
    fan_sensors: bool = False
    old: bool = True
    new: bool = False
    psus_in_power: bool = True
    psus_tell: bool = True
    inlet: str = "Inlet"
    log: str = "Systems/1/LogServices/SEL"
    managers: tuple[str, ...] = ()
    chassis: tuple[str, ...] = ()
    expand_levels: int = 0


_DGX_BOARDS = (
    "CPUBaseboard", "EROT_BIOS_0", "EROT_BMC_0", "HGX", "HGX_BMC_0", "HGX_Chassis_0", "HGX_ERoT_BMC_0",
    "HGX_ERoT_FPGA_0", *(f"HGX_ERoT_GPU_SXM_{n}" for n in range(1, 9)),
    *(f"HGX_ERoT_NVSwitch_{n}" for n in range(4)), "HGX_ERoT_PCIeSwitch_0", "HGX_FPGA_0",
    *(f"HGX_NVSwitch_{n}" for n in range(4)), *(f"HGX_PCIeRetimer_{n}" for n in range(8)),
    "HGX_PCIeSwitch_0", "Interposer", "Midplane", "PDB",
)  # fmt: skip
_GB200_BOARDS = (
    "BMC_0", *(f"CBC_{n}" for n in range(4)), *(f"CPLD_{n}" for n in range(4)), "ERoT_BMC_0", "HGX_BMC_0",
    "HGX_CPLD_0", "HGX_CPU_0", "HGX_CPU_1", "HGX_Chassis_0", "HGX_ERoT_BMC_0", "HGX_ERoT_CPU_0",
    "HGX_ERoT_CPU_1", "HGX_ERoT_FPGA_0", "HGX_ERoT_FPGA_1", "HGX_FPGA_0", "HGX_FPGA_1",
    *(f"HGX_IRoT_GPU_{n}" for n in range(4)), "HGX_ProcessorModule_0", "HGX_ProcessorModule_1", "PDB_0",
    "StorageBackplane_0",
)  # fmt: skip

LAYOUTS: Mapping[str, Layout] = {
    "generic": Layout(),
    # Two BMCs: the baseboard's own one shows the GPUs. Power lists voltages alone, its power supplies are in
    # PowerSubsystem and tell no Status. The drives' own resources are not in the captured tree: no erase.
    "dgx_h100": Layout(
        gpu="Systems/HGX_Baseboard_0/Processors/GPU_SXM_{n}",
        gpu_first=1,
        tray="Chassis/HGX_GPU_SXM_{n}",
        dimm="DevType2_DIMM{n}",
        dimms=32,
        storage="Systems/DGX/Storage/StorageUnit_0",
        drive="Systems/DGX/Storage/StorageUnit_0/Drives/NVMe_Device{n}_NSID1",
        drives=10,
        erase="",
        psu="PSU{n}",
        psus=6,
        fan="SPD_FAN_SYS{n}_F",
        fan_first=1,
        fans=12,
        new=True,
        psus_in_power=False,
        psus_tell=False,
        inlet="TEMP_AMBIENT",
        log="Managers/BMC/LogServices/SEL",
        managers=("HGX_BMC_0", "HGX_FabricManager_0"),
        chassis=_DGX_BOARDS,
        expand_levels=5,
    ),
    # A compute tray: power and cooling are the rack's; its fans show as sensors alone.
    "gb200": Layout(
        gpu="Systems/HGX_Baseboard_0/Processors/GPU_{n}",
        tray="Chassis/HGX_GPU_{n}",
        dimm="Memory_{n}",
        dimms=2,
        storage="Systems/System_0/Storage/1",
        drive="Chassis/StorageBackplane_0/Drives/20{n}",
        drives=8,
        erase="info",
        psus=0,
        fan="Chassis_0_FAN_{n}_FRONT",
        fan_first=1,
        fans=6,
        fan_sensors=True,
        old=False,
        new=True,
        inlet="Chassis_0_Inlet_Temp_0",
        log="Systems/System_0/LogServices/SEL",
        managers=("HGX_BMC_0",),
        chassis=_GB200_BOARDS,
        expand_levels=6,
    ),
    # No second system: GPUs are PCIe devices of the chassis. A drive offers no SecureErase.
    "supermicro_hgx": Layout(
        gpu="Chassis/1/PCIeDevices/GPU{n}",
        gpu_first=1,
        dimm="{n}",
        dimm_first=1,
        dimms=32,
        storage="Systems/1/Storage/NVMeSSD",
        drive="Chassis/NVMeSSD.0.Group.0.StorageBackplane/Drives/Disk.Bay.{n}",
        drives=8,
        erase="",
        psu="Power Supply Bay {n}",
        psu_first=1,
        psus=8,
        fan="FAN{n}",
        fan_first=1,
        fans=10,
        inlet="Inlet Temp",
        log="Systems/1/LogServices/Log1",
        chassis=("UBB_1", "NVMeSSD.0.Group.0.StorageBackplane"),
        expand_levels=2,
    ),
    # Both forms of health; the event log belongs to the manager.
    "dell": Layout(
        gpu="Systems/System.Embedded.1/Processors/Video.Slot.{n}-1",
        gpu_first=1,
        dimm="DIMM.Socket.A{n}",
        dimm_first=1,
        dimms=16,
        storage="Systems/System.Embedded.1/Storage/PCIeSSD.Slot.1-1",
        drive="Systems/System.Embedded.1/Storage/PCIeSSD.Slot.1-1/Drives/Disk.Bay.{n}",
        drives=8,
        psu="PSU.Slot.{n}",
        psu_first=1,
        psus=6,
        fan="Fan.Embedded.{n}A",
        fan_first=1,
        fans=6,
        new=True,
        inlet="SystemBoardInletTemp",
        log="Managers/iDRAC.Embedded.1/LogServices/Sel",
        chassis=("Enclosure.Internal.0-1",),
        expand_levels=1,
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part shows: a resource, or one row of a list in a resource."""

    path: str
    rows: str = ""
    row: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """Where each part of one machine shows, by a name that is the same for every kind of machine.

    Names are `gpu0`, `dimm0`, `drive0`, `psu0`, `fan0` and so on, and `temp`.
    """

    places: Mapping[str, tuple[Place, ...]]

    def of(self, name: str) -> tuple[Place, ...]:
        """Places of a part.

        Raises:
            ValueError: this machine has no such part.
        """
        if name not in self.places:
            raise ValueError(f"no part {name!r} here: choose one of {' '.join(self.places)}")
        return self.places[name]


def parts_of(layout: Layout, system: str, chassis: str, gpus: int) -> Parts:
    """Where the parts show.

    Args:
        layout: of the kind of machine.
        system: path of its system.
        chassis: path of its chassis.
        gpus: how many GPUs it has.
    """
    places: dict[str, tuple[Place, ...]] = {}
    for n in range(gpus):
        templates = (layout.gpu, *([layout.tray] if layout.tray else []))
        number = n + layout.gpu_first
        places[f"gpu{n}"] = tuple(Place(f"{ROOT}/{one.format(n=number)}") for one in templates)
    for n in range(layout.dimms):
        places[f"dimm{n}"] = (Place(f"{system}/Memory/{layout.dimm.format(n=n + layout.dimm_first)}"),)
    for n in range(layout.drives):
        places[f"drive{n}"] = (Place(f"{ROOT}/{layout.drive.format(n=n)}"),)
    for n in range(layout.psus):
        name = layout.psu.format(n=n + layout.psu_first)
        new = [Place(f"{chassis}/PowerSubsystem/PowerSupplies/{name}")] if layout.new else []
        old = [Place(f"{chassis}/Power", "PowerSupplies", n)] if layout.old and layout.psus_in_power else []
        places[f"psu{n}"] = (*old, *new)
    for n in range(layout.fans):
        name = layout.fan.format(n=n + layout.fan_first)
        kind = "Sensors" if layout.fan_sensors else "ThermalSubsystem/Fans"
        new = [Place(f"{chassis}/{kind}/{name}")] if layout.new else []
        old = [Place(f"{chassis}/Thermal", "Fans", n)] if layout.old else []
        places[f"fan{n}"] = (*old, *new)
    old = [Place(f"{chassis}/Thermal", "Temperatures", 0)] if layout.old else []
    new = [Place(f"{chassis}/Sensors/{layout.inlet}")] if layout.new else []
    places["temp"] = (*old, *new)
    return Parts(places)
