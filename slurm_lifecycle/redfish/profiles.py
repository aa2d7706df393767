"""How the BMCs of four machines differ, as data.

Sources: trees captured from a DGX H100, a GB200 and a Supermicro SYS-821GE-TNHR (NVIDIA libredfish, 2025),
Dell's own documents, and the reports named at each field.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AcCycle:
    """The action that cuts the mains side of a machine.

    Attributes:
        needs_off: refused while the host is on (infra-controller#909: HTTP 400 ChassisPowerStateOffRequired).
    """

    path: str
    body: Mapping[str, str]
    needs_off: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """What a client has to know of a kind of BMC.

    Attributes:
        system: path of the system that stands for the machine. Never another one: an NVIDIA baseboard's
            answers 503 while the host is off, and nothing that is needed to switch it on may depend on that
            (infra-controller#6412).
        settings: path of the resource that owns Boot where it is not the system; else what the system's
            `@Redfish.Settings` names counts, where Boot stands there.
        boot_target: how a boot from the network is asked for.
        mode_only_if_different: the boot mode is left out where it is right already (metal-operator#81: iDRAC
            starts a job). Otherwise all three fields are sent in one request (story 2008547: Supermicro
            resets `Enabled` to Once where it is left out). A machine that has no mode is sent none.
        serial_at: path of the resource that tells which machine it is, where it is not the system.
        serial_key: its property that does.
        graceful, force, on: values of ResetType in order of preference.
    """

    name: str
    system: str
    settings: str = ""
    serial_at: str = ""
    serial_key: str = "SerialNumber"
    boot_target: str = "Pxe"
    boot_mode: str = "UEFI"
    mode_only_if_different: bool = False
    graceful: tuple[str, ...] = ("GracefulShutdown",)
    force: tuple[str, ...] = ("ForceOff",)
    on: tuple[str, ...] = ("On", "ForceOn")
    ac_cycle: AcCycle | None = None


_SYSTEMS = "/redfish/v1/Systems"
_CHASSIS = "/redfish/v1/Chassis"

PROFILES: Mapping[str, Profile] = {
    one.name: one
    for one in (
        Profile("generic", f"{_SYSTEMS}/1"),
        # No AC cycle over Redfish: its mains are cut at the PDU, or by hand.
        Profile("dgx_h100", f"{_SYSTEMS}/DGX", settings=f"{_SYSTEMS}/DGX/SD"),
        # Its system tells no serial number, the tray does; it boots from the network by PXE only.
        Profile(
            "gb200",
            f"{_SYSTEMS}/System_0",
            serial_at=f"{_CHASSIS}/Chassis_0",
            settings=f"{_SYSTEMS}/System_0/Settings",
            ac_cycle=AcCycle(
                f"{_CHASSIS}/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset",
                {"ResetType": "AuxPowerCycle"},
                needs_off=True,
            ),
        ),
        Profile(
            "supermicro_hgx",
            f"{_SYSTEMS}/1",
            ac_cycle=AcCycle(
                f"{_SYSTEMS}/1/Actions/Oem/OemSystemExtensions.Reset",
                {"ResetType": "ACCycle"},
                needs_off=False,
            ),
        ),
        Profile(
            "dell",
            f"{_SYSTEMS}/System.Embedded.1",
            mode_only_if_different=True,
            ac_cycle=AcCycle(
                f"{_CHASSIS}/System.Embedded.1/Actions/Oem/DellOemChassis.ExtendedReset",
                {"ResetType": "PowerCycle", "FinalPowerState": "On"},
                needs_off=False,
            ),
        ),
    )
}
