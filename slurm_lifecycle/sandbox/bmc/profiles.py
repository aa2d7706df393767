"""How the BMCs of four machines differ, as data; written by hand after captured trees and vendors' documents.

`dgx_h100`, `gb200` and `supermicro_hgx` follow trees captured from such machines (libredfish, NVIDIA, 2023 to
2025); `dell` follows one of a PowerEdge, Dell's own documents and reports of iDRAC 9 and 10. `generic`
follows the standard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_lifecycle.sandbox.bmc.firmware import FIRMWARE
from slurm_lifecycle.sandbox.bmc.layout import LAYOUTS, ROOT, Layout


@dataclass(frozen=True, slots=True)
class AcCycle:
    """The action that cuts the mains side.

    Attributes:
        path: of the action. key, value: its parameter.
        needs_off: refused while the host is on. forced_value: one that is not.
    """

    path: str
    key: str
    value: str
    needs_off: bool = False
    forced_value: str = ""


@dataclass(frozen=True, slots=True)
class Tpm:
    """The BIOS attribute that clears the TPM at the next start.

    Attributes:
        attribute, clear, idle: its name, the value that clears, and the one that does nothing.
        needs_job: nothing happens unless `@Redfish.SettingsApplyTime` is sent as well.
    """

    attribute: str
    clear: str
    idle: str
    needs_job: bool = False


@dataclass(frozen=True, slots=True)
class SimProfile:
    """One kind of BMC.

    Attributes:
        system, manager, chassis: ids of the resources that stand for the machine.
        serial_at: path of the resource that tells the machine's serial number, maker and model where the
            system does not.
        baseboard: id of the second system that NVIDIA's baseboards show; it has no actions and no Boot.
        settings: path of the Settings resource that owns Boot, "" where the system itself does.
        resets: values of ResetType. action_info: they are told by an ActionInfo.
        reset_is_task: a Reset answers 202 with a Task.
        on_while_on: status of `On` to a machine that is on.
        etags: whether all resources carry ETags. settings_etag: that of `settings` has to be sent.
        action_if_match: an action with If-Match answers 412.
        all_boot_fields: an override that does not say whether it is enabled becomes `Once`.
        mode_is_job: sending the boot mode that it has starts a job and answers 400.
        modes: boot modes; none where there is no boot mode at all.
        mode_while_idle: the boot mode that is shown before one was set.
        target_stays: the target stays there when an override has been used up.
        progress: `BootProgress.LastState` of a machine that is on, "" where there is none.
        rollup: the system tells a HealthRollup.
        lockout: after so many wrong logins in a row an account is locked, for so many seconds; 0 for never.
        account_slots: accounts are so many fixed places, which cannot be deleted.
        update: how firmware is sent: `simple`, `multipart` (its SimpleUpdate takes no targets), `push`.
        bios_settings: id of the resource below Bios that takes changes.
    """

    name: str
    manufacturer: str
    model: str
    redfish: str
    system: str
    manager: str
    chassis: str
    serial_at: str = ""
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
    mode_while_idle: str | None = "UEFI"
    target_stays: bool = False
    session_timeout_s: int = 1800
    max_sessions: int = 4
    lockout: tuple[int, float] = (0, 0.0)
    account_slots: int = 0
    ac_cycle: AcCycle | None = None
    progress: str = "OSRunning"
    rollup: bool = True
    manager_resets: tuple[str, ...] = ("GracefulRestart",)
    manager_defaults: tuple[str, ...] = ("ResetAll", "PreserveNetwork")
    update: str = "simple"
    multipart_path: str = ""
    push_path: str = ""
    tpm: Tpm | None = field(default=Tpm("TpmOperation", "TpmClear", "NoAction"))
    bios_settings: str = "Settings"

    @property
    def layout(self) -> Layout:
        """Where its parts are."""
        return LAYOUTS[self.name]

    @property
    def firmware(self) -> Mapping[str, str]:
        """Versions by id, as the machine comes."""
        return FIRMWARE[self.name]


PROFILES: Mapping[str, SimProfile] = {
    one.name: one
    for one in (
        SimProfile("generic", "Contoso", "GPU server", "1.15.0", "1", "1", "1"),
        # Reset through ActionInfo only, no PowerCycle; Boot is written to Systems/DGX/SD, whose ETag counts,
        # UEFI only, null until it is set; sessions of 30 s; a Reset runs as a Task; no AC cycle; no
        # BootProgress; an account is locked for 30 s after five wrong logins.
        SimProfile(
            "dgx_h100",
            "NVIDIA",
            "DGXH100",
            "1.11.0",
            "DGX",
            "BMC",
            "DGX",
            baseboard="HGX_Baseboard_0",
            settings=f"{ROOT}/Systems/DGX/SD",
            action_info=True,
            reset_is_task=True,
            settings_etag=True,
            targets=("None", "Pxe", "Floppy", "Cd", "Usb", "Hdd", "BiosSetup", "Utilities", "Diags",
                     "UefiShell", "UefiTarget", "SDCard", "UefiHttp", "RemoteDrive", "UefiBootNext"),
            modes=("UEFI",),
            mode_while_idle=None,
            session_timeout_s=30,
            lockout=(5, 30.0),
            progress="",
            manager_resets=("ForceRestart",),
            manager_defaults=("ResetAll", "PreserveNetworkAndUsers", "PreserveNetwork"),
            update="multipart",
            multipart_path="upload",
            tpm=Tpm("TpmOperation", "TPM Clear", "None"),
            bios_settings="SD",
        ),
        # OpenBMC on an ARM host: no boot mode, no UefiHttp, no SimpleUpdate. The system tells neither serial
        # number nor model, its tray does. The AC cycle needs the host off unless it is forced.
        SimProfile(
            "gb200",
            "NVIDIA",
            "GB200 NVL",
            "1.17.0",
            "System_0",
            "BMC_0",
            "Chassis_0",
            baseboard="HGX_Baseboard_0",
            settings=f"{ROOT}/Systems/System_0/Settings",
            action_info=True,
            resets=("On", "ForceOff", "ForceOn", "ForceRestart", "GracefulShutdown", "GracefulRestart",
                    "PowerCycle", "Nmi"),
            serial_at=f"{ROOT}/Chassis/Chassis_0",
            targets=("None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb"),
            modes=(),
            mode_while_idle=None,
            rollup=False,
            ac_cycle=AcCycle(
                f"{ROOT}/Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset",
                "ResetType",
                "AuxPowerCycle",
                needs_off=True,
                forced_value="AuxPowerCycleForce",
            ),
            manager_resets=("GracefulRestart", "ForceRestart", "GracefulShutdown"),
            manager_defaults=("ResetAll",),
            update="push",
            multipart_path="update-multipart",
            push_path="update",
            tpm=None,
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
            resets=("On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn",
                    "PowerCycle"),
            action_info=True,
            etags=True,
            action_if_match=True,
            all_boot_fields=True,
            targets=("None", "Pxe", "Floppy", "Cd", "Usb", "Hdd", "BiosSetup", "UsbCd", "UefiBootNext",
                     "UefiHttp"),
            target_stays=True,
            session_timeout_s=300,
            lockout=(3, 30.0),
            rollup=False,
            progress="SystemHardwareInitializationComplete",
            ac_cycle=AcCycle(
                f"{ROOT}/Systems/1/Actions/Oem/OemSystemExtensions.Reset", "ResetType", "ACCycle"
            ),
            manager_defaults=("PreserveNetworkAndUsers", "PreserveNetwork"),
            multipart_path="upload",
            tpm=Tpm("PendingOperation_0069", "TPM Clear", "None"),
            bios_settings="SD",
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
            resets=("On", "ForceOff", "ForceRestart", "GracefulRestart", "GracefulShutdown",
                    "PushPowerButton", "Nmi", "PowerCycle"),
            on_while_on=409,
            mode_is_job=True,
            targets=("None", "Pxe", "Floppy", "Cd", "Hdd", "BiosSetup", "Utilities", "UefiTarget", "SDCard",
                     "UefiHttp"),
            max_sessions=8,
            account_slots=16,
            ac_cycle=AcCycle(
                f"{ROOT}/Chassis/System.Embedded.1/Actions/Oem/DellOemChassis.ExtendedReset",
                "ResetType",
                "PowerCycle",
            ),
            manager_defaults=("ResetAll", "PreserveNetworkAndUsers"),
            multipart_path="MultipartUpload",
            push_path="FirmwareInventory",
            tpm=Tpm("Tpm2Hierarchy", "Clear", "Enabled", needs_job=True),
        ),
    )
}  # fmt: skip
