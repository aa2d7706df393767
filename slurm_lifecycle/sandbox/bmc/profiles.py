"""How the BMCs of four machines differ, as data; written by hand after captured trees and vendors' documents.

`dgx_h100`, `gb200` and `supermicro_hgx` follow trees captured from such machines (libredfish, NVIDIA, 2025);
`dell` follows Dell's own documents and reports of iDRAC 9 and 10. `generic` follows the standard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AcCycle:
    """The action that cuts the mains side.

    Attributes:
        path: below the service root. bodies: accepted bodies, by what each needs (`off` or nothing).
    """

    path: str
    key: str
    value: str
    needs_off: bool = False
    forced_value: str = ""


@dataclass(frozen=True, slots=True)
class SimProfile:
    """One kind of BMC.

    Attributes:
        system, manager, chassis: ids of the resources that stand for the machine.
        baseboard: id of the second system that NVIDIA's baseboards show; it has no actions and no serial.
        settings: path of the Settings resource that owns Boot, "" where the system itself does.
        resets: values of ResetType. reset_is_task: a Reset answers 202 with a Task.
        on_while_on: status of `On` to a machine that is on.
        etags: whether resources carry ETags. action_if_match: an action with If-Match answers 412.
        all_boot_fields: an override whose three fields are not all sent becomes `Once` all the same.
        mode_is_job: sending the boot mode that it has starts a job and answers 400.
        old_health: Thermal and Power in place of ThermalSubsystem and PowerSubsystem.
        progress: BootProgress is there.
    """

    name: str
    manufacturer: str
    model: str
    redfish: str
    system: str
    manager: str
    chassis: str
    baseboard: str = ""
    settings: str = ""
    resets: tuple[str, ...] = ("On", "ForceOff", "ForceRestart", "GracefulShutdown")
    action_info: bool = False
    reset_is_task: bool = False
    on_while_on: int = 204
    etags: bool = False
    settings_etag: bool = False
    action_if_match: bool = False
    all_boot_fields: bool = False
    mode_is_job: bool = False
    targets: tuple[str, ...] = ("None", "Pxe", "Hdd", "UefiHttp", "BiosSetup")
    modes: tuple[str, ...] = ("UEFI", "Legacy")
    session_timeout_s: int = 1800
    max_sessions: int = 4
    ac_cycle: AcCycle | None = None
    old_health: bool = True
    progress: bool = True
    gpu: str = ""
    firmware: Mapping[str, str] = field(default_factory=dict)
    update: str = "simple"
    tpm: tuple[str, str] = ("TpmOperation", "TpmClear")


_HGX = {
    "HGX_FW_BMC_0": "HGX-22.10-1-rc57",
    "HGX_FW_FPGA_0": "2.53",
    **{f"HGX_FW_GPU_SXM_{n}": "96.00.89.00.01" for n in range(1, 9)},
    **{f"HGX_FW_NVSwitch_{n}": "96.10.55.00.01" for n in range(4)},
    "HGX_FW_PCIeSwitch_0": "1.7.5F",
    **{f"HGX_FW_PCIeRetimer_{n}": "2.7.20" for n in range(8)},
    "HGX_FW_ERoT_BMC_0": "00.02.0182.0000_n02",
    **{f"HGX_InfoROM_GPU_SXM_{n}": "G520.0200.00.05" for n in range(1, 9)},
}

PROFILES: Mapping[str, SimProfile] = {
    one.name: one
    for one in (
        SimProfile(
            "generic",
            "Contoso",
            "GPU server",
            "1.15.0",
            "1",
            "1",
            "1",
            gpu="GPU{}",
            firmware={"BMC": "1.10.0", "BIOS": "2.4.1", "CPLD": "1.0"},
        ),
        # Reset through ActionInfo only, no PowerCycle; Boot is written to Systems/DGX/SD, whose ETag counts,
        # UEFI only; sessions of 30 s; a Reset runs as a Task; no AC cycle; no BootProgress.
        SimProfile(
            "dgx_h100",
            "NVIDIA",
            "DGXH100",
            "1.11.0",
            "DGX",
            "BMC",
            "DGX",
            baseboard="HGX_Baseboard_0",
            settings="/redfish/v1/Systems/DGX/SD",
            action_info=True,
            reset_is_task=True,
            settings_etag=True,
            modes=("UEFI",),
            session_timeout_s=30,
            progress=False,
            gpu="HGX_GPU_SXM_{}",
            firmware={
                "HostBMC_0": "23.11.21",
                "HostBIOS_0": "1.1.3",
                "EROT_BMC_0": "00.02.0150.0000_n00",
                "EROT_BIOS_0": "00.02.0150.0000_n00",
                "CPLDMB_0": "0.2.1.6",
                "CPLDMID_0": "0.2.1.1",
                **{f"PSU_{n}": "0202.0201.0203" for n in range(6)},
                "PCIeSwitch_0": "0.0.1",
                "PCIeSwitch_1": "1.0.1",
                **_HGX,
            },
            update="multipart",
        ),
        # OpenBMC: no SimpleUpdate; the AC cycle needs the host off unless it is forced.
        SimProfile(
            "gb200",
            "NVIDIA",
            "GB200 NVL",
            "1.17.0",
            "System_0",
            "BMC_0",
            "Chassis_0",
            baseboard="HGX_Baseboard_0",
            settings="/redfish/v1/Systems/System_0/Settings",
            resets=("On", "ForceOff", "ForceOn", "ForceRestart", "GracefulShutdown", "GracefulRestart"),
            targets=("None", "Pxe", "Hdd", "UefiHttp"),
            modes=("UEFI",),
            ac_cycle=AcCycle(
                "/redfish/v1/Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset",
                "ResetType",
                "AuxPowerCycle",
                needs_off=True,
                forced_value="AuxPowerCycleForce",
            ),
            old_health=False,
            gpu="HGX_GPU_{}",
            firmware={"FW_BMC_0": "GB200Nvl-24.08-8", "FW_CPLD_0": "0x0a", "UEFI": "02.03.17", **_HGX},
            update="push",
        ),
        # ETags everywhere, If-Match on an action answers 412; an override becomes Once unless all is sent.
        SimProfile(
            "supermicro_hgx",
            "Supermicro",
            "SYS-821GE-TNHR",
            "1.11.0",
            "1",
            "1",
            "1",
            baseboard="HGX_Baseboard_0",
            resets=("On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi"),
            etags=True,
            action_if_match=True,
            all_boot_fields=True,
            session_timeout_s=300,
            ac_cycle=AcCycle(
                "/redfish/v1/Systems/1/Actions/Oem/OemSystemExtensions.Reset", "ResetType", "ACCycle"
            ),
            gpu="HGX_GPU_SXM_{}",
            firmware={
                "BMC": "01.02.03",
                "BIOS": "2.1.V1",
                "Staging_BMC": "",
                "Backup_BMC": "01.02.02",
                "Golden_BMC": "01.00.00",
                "CPLD_Motherboard_1": "F2.32.B1",
                **_HGX,
            },
        ),
        # `On` to a machine that is on answers 409; the boot mode that it has must not be written again.
        SimProfile(
            "dell",
            "Dell Inc.",
            "PowerEdge XE9680",
            "1.18.0",
            "System.Embedded.1",
            "iDRAC.Embedded.1",
            "System.Embedded.1",
            resets=("On", "ForceOff", "ForceRestart", "GracefulRestart", "GracefulShutdown", "Nmi"),
            on_while_on=409,
            mode_is_job=True,
            max_sessions=8,
            ac_cycle=AcCycle(
                "/redfish/v1/Chassis/System.Embedded.1/Actions/Oem/DellOemChassis.ExtendedReset",
                "ResetType",
                "PowerCycle",
            ),
            gpu="Video.Slot.{}-1",
            firmware={
                "Installed-25227-7.10.30.00__iDRAC.Embedded.1-1": "7.10.30.00",
                "Current-159-2.1.5__BIOS.Setup.1-1": "2.1.5",
                "Previous-159-1.9.1__BIOS.Setup.1-1": "1.9.1",
            },
        ),
    )
}
