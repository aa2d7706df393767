"""Which fault each finding code is, who may drain for it, and how it gets well again.

The one table that compute nodes and the daemon share, so it is written for Python 3.9 and imports nothing
but the standard library. Codes are stable identifiers: they appear in Slurm reasons, metrics and tickets.

Sources: NVIDIA Xid catalogue (immediate resolution, 2025-10) for the classes of XIDs; NVIDIA GPU memory error
management for row remapping and the SRAM threshold; `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION` (field 230).
Where public tables disagree (64, 74, 109, 121) the safer choice is taken and marked.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Dict, Optional, Tuple


class Level(Enum):
    """What a finding asks of Slurm: nothing, attention, or a drain."""

    OK = "ok"
    WARN = "warn"
    DRAIN = "drain"

    @property
    def rank(self) -> int:
        """Order of severity, 0 (ok) to 2 (drain)."""
        return ("ok", "warn", "drain").index(self.value)


class FaultClass(Enum):
    """What a finding means for action: the entry into the repair ladder."""

    APP = "app"
    TRANSIENT = "transient"
    GPU_RESET = "gpu_reset"
    PENDING_REMAP = "pending_remap"
    REBOOT = "reboot"
    SOFTWARE = "software"
    HARDWARE = "hardware"
    LINK = "link"
    UNKNOWN = "unknown"


class DrainedBy(Enum):
    """Who drains the node: its own agent at once, the daemon under budget, or nobody."""

    NODE = "node"
    DAEMON = "daemon"
    NOBODY = "nobody"


class ClearRule(Enum):
    """How a finding gets well again.

    CONDITION: the probe that raised it reads well. BOOT: a new boot in which it does not come back.
    QUIET: it did not come back for the quiet time (application faults and notices).
    """

    CONDITION = "condition"
    BOOT = "boot"
    QUIET = "quiet"


@dataclass(frozen=True)
class Fault:
    """One row of the catalogue.

    Attributes:
        code: stable identifier, `[A-Z0-9_]+`.
        fault_class: entry into the ladder.
        text: words for people, fit for a Slurm reason.
        clears: how it gets well again.
        by: who drains for it, where it is not as its class says.
    """

    code: str
    fault_class: FaultClass
    text: str
    clears: ClearRule
    by: Optional[DrainedBy] = None

    @property
    def level(self) -> Level:
        """Drain for every class that somebody drains for, else warn."""
        return Level.WARN if self.drained_by is DrainedBy.NOBODY else Level.DRAIN

    @property
    def drained_by(self) -> DrainedBy:
        """The class decides: hardware-certain ones at the node, those with a common cause by the daemon."""
        return self.by or _DRAINED_BY[self.fault_class]


_DRAINED_BY: Dict[FaultClass, DrainedBy] = {
    FaultClass.APP: DrainedBy.NOBODY,
    FaultClass.TRANSIENT: DrainedBy.DAEMON,
    FaultClass.GPU_RESET: DrainedBy.NODE,
    FaultClass.PENDING_REMAP: DrainedBy.NOBODY,
    FaultClass.REBOOT: DrainedBy.NODE,
    FaultClass.SOFTWARE: DrainedBy.DAEMON,
    FaultClass.HARDWARE: DrainedBy.NODE,
    FaultClass.LINK: DrainedBy.NODE,
    FaultClass.UNKNOWN: DrainedBy.NOBODY,
}

_XID_ROWS: Tuple[Tuple[int, FaultClass, str], ...] = (
    (13, FaultClass.APP, "graphics engine exception"),
    (31, FaultClass.APP, "MMU page fault"),
    (43, FaultClass.APP, "channel reset after an application fault"),
    (45, FaultClass.APP, "channel torn down, side effect of another fault"),
    (46, FaultClass.GPU_RESET, "GPU stopped processing"),
    (48, FaultClass.GPU_RESET, "double-bit ECC error"),
    (62, FaultClass.GPU_RESET, "internal micro-controller halt"),
    # 64: NVIDIA says reset, some operators isolate at once. The remap-failure flag decides for RMA.
    (64, FaultClass.GPU_RESET, "row remapper error"),
    (69, FaultClass.APP, "graphics class error"),
    # 74: reset against support; as a link fault it is checked after it was stable for a while.
    (74, FaultClass.LINK, "NVLink error"),
    (79, FaultClass.REBOOT, "fell off the bus"),
    (94, FaultClass.APP, "contained memory error"),
    (95, FaultClass.GPU_RESET, "uncontained memory error"),
    # 109: NVIDIA says reset, other tables say nothing.
    (109, FaultClass.GPU_RESET, "context switch timeout"),
    (110, FaultClass.GPU_RESET, "security fault"),
    (119, FaultClass.GPU_RESET, "GSP RPC timeout"),
    (120, FaultClass.GPU_RESET, "GSP error"),
    (136, FaultClass.GPU_RESET, "link training failed"),
    (140, FaultClass.GPU_RESET, "unrecovered ECC error"),
    (143, FaultClass.GPU_RESET, "GPU initialisation failed"),
    (155, FaultClass.GPU_RESET, "NVLink software error"),
    (156, FaultClass.GPU_RESET, "resource retirement event"),
    (158, FaultClass.GPU_RESET, "GPU fatal timeout"),
)


def _oob(code: str, fault_class: FaultClass, text: str) -> Fault:
    """What a BMC tells: attention at first; a site's policy says which of them drain, under its budget."""
    return Fault(code, fault_class, text, ClearRule.CONDITION, DrainedBy.NOBODY)


def _xid_fault(number: int, fault_class: FaultClass, text: str) -> Fault:
    quiet = fault_class in (FaultClass.APP, FaultClass.UNKNOWN)
    return Fault(f"XID{number}", fault_class, text, ClearRule.QUIET if quiet else ClearRule.BOOT)


_OTHER: Tuple[Fault, ...] = (
    Fault("GPU_LOST", FaultClass.REBOOT, "GPU is lost", ClearRule.CONDITION),
    Fault("GPU_COUNT", FaultClass.REBOOT, "fewer GPUs than expected", ClearRule.CONDITION),
    Fault("GPU_OFF_BUS", FaultClass.REBOOT, "GPU has fallen off the bus", ClearRule.BOOT),
    Fault("GPU_RESET_REQ", FaultClass.GPU_RESET, "GPU requires a reset", ClearRule.CONDITION),
    Fault("RECOVERY_RESET", FaultClass.GPU_RESET, "driver asks for a GPU reset", ClearRule.CONDITION),
    Fault("RECOVERY_REBOOT", FaultClass.REBOOT, "driver asks for a node reboot", ClearRule.CONDITION),
    Fault("RECOVERY_DRAIN_P2P", FaultClass.GPU_RESET, "driver asks to drain P2P", ClearRule.CONDITION),
    Fault("RECOVERY_UNKNOWN", FaultClass.UNKNOWN, "driver asks for an unknown action", ClearRule.CONDITION),
    Fault("ECC_UNCORRECTED", FaultClass.GPU_RESET, "uncorrected ECC errors", ClearRule.CONDITION),
    Fault("SRAM_THRESHOLD", FaultClass.HARDWARE, "SRAM error threshold exceeded", ClearRule.CONDITION),
    Fault("REMAP_PENDING", FaultClass.PENDING_REMAP, "row remap pending", ClearRule.CONDITION),
    Fault("REMAP_FAILURE", FaultClass.HARDWARE, "row remap failed", ClearRule.CONDITION),
    Fault("DRIVER_MISMATCH", FaultClass.SOFTWARE, "kernel module and library differ", ClearRule.CONDITION),
    Fault("DRIVER_DOWN", FaultClass.SOFTWARE, "driver not loaded or not answering", ClearRule.CONDITION),
    Fault("INFOROM", FaultClass.HARDWARE, "InfoROM corrupted", ClearRule.CONDITION),
    Fault("GPU_IRQ", FaultClass.REBOOT, "GPU interrupt problem", ClearRule.CONDITION),
    Fault("PROBE_DSTATE", FaultClass.REBOOT, "probe stuck in the kernel", ClearRule.BOOT),
    Fault("PROBE_HUNG", FaultClass.UNKNOWN, "probe did not answer in time", ClearRule.CONDITION),
    Fault("CHECK_FAILED", FaultClass.UNKNOWN, "check could not run", ClearRule.CONDITION),
    Fault("FS_READONLY", FaultClass.SOFTWARE, "file system is read-only", ClearRule.CONDITION),
    Fault("FS_FULL", FaultClass.SOFTWARE, "file system is full", ClearRule.CONDITION),
    Fault("XID_UNKNOWN", FaultClass.UNKNOWN, "XID without a known action", ClearRule.QUIET),
    # Out of band: about the BMC itself, which says nothing of the host behind it.
    _oob("BMC_SILENT", FaultClass.UNKNOWN, "BMC does not answer"),
    _oob("BMC_LOGIN", FaultClass.UNKNOWN, "BMC refuses its login or certificate"),
    _oob("BMC_NONSENSE", FaultClass.UNKNOWN, "BMC answers nonsense"),
    _oob("BMC_WRONG", FaultClass.UNKNOWN, "BMC is that of another machine"),
    # Out of band: about the machine.
    _oob("OOB_POWER_OFF", FaultClass.REBOOT, "power is off"),
    _oob("OOB_PSU", FaultClass.HARDWARE, "power supply failed"),
    _oob("OOB_FAN", FaultClass.HARDWARE, "fan failed"),
    _oob("OOB_TEMP", FaultClass.HARDWARE, "temperature above its limit"),
    _oob("OOB_GPU", FaultClass.HARDWARE, "BMC says that a GPU is not well"),
    _oob("OOB_DIMM", FaultClass.HARDWARE, "BMC says that a memory module is not well"),
    _oob("OOB_DRIVE", FaultClass.HARDWARE, "BMC says that a drive is not well"),
    _oob("OOB_LOG", FaultClass.UNKNOWN, "critical entry in the event log"),
    _oob("OOB_HEALTH", FaultClass.UNKNOWN, "BMC rolls its machine's health up as not well"),
    # Slurm's own reasons, adopted by the daemon.
    Fault("NO_RESPONSE", FaultClass.REBOOT, "node does not respond", ClearRule.CONDITION),
    Fault("SELF_REBOOT", FaultClass.TRANSIENT, "node rebooted by itself", ClearRule.CONDITION),
    Fault("KILL_TASK", FaultClass.TRANSIENT, "a task could not be killed", ClearRule.CONDITION),
    Fault("PROLOG", FaultClass.TRANSIENT, "a prolog failed", ClearRule.CONDITION),
    Fault("EPILOG", FaultClass.TRANSIENT, "an epilog failed", ClearRule.CONDITION),
    Fault("LAUNCH", FaultClass.TRANSIENT, "a job could not be launched", ClearRule.CONDITION),
    Fault("LOW_RESOURCE", FaultClass.REBOOT, "fewer resources than configured", ClearRule.CONDITION),
    Fault("BOOT_TIMEOUT", FaultClass.REBOOT, "a reboot timed out", ClearRule.CONDITION),
    Fault("DECOMMISSION", FaultClass.REBOOT, "leaves the cluster for good", ClearRule.BOOT, DrainedBy.DAEMON),
    Fault("LEMON", FaultClass.HARDWARE, "failed too often", ClearRule.BOOT, DrainedBy.DAEMON),
    Fault("MANUAL", FaultClass.REBOOT, "a person asked for a repair", ClearRule.BOOT),
    Fault("FOREIGN_TOOL", FaultClass.TRANSIENT, "drained by another health checker", ClearRule.CONDITION),
)

FAULTS: Dict[str, Fault] = {
    fault.code: fault for fault in (*(_xid_fault(*row) for row in _XID_ROWS), *_OTHER)
}

# Codes that were renamed: old name -> present name, so that an old reason stays ours.
ALIASES: Dict[str, str] = {}


def fault_for(code: str) -> Fault:
    """The catalogue row of a code; a code that nobody knows is of class `unknown` (warn, notify).

    Args:
        code: a finding code as it stands in a reason or a node's Extra.
    """
    known = FAULTS.get(ALIASES.get(code, code))
    if known is not None:
        return known
    return Fault(code, FaultClass.UNKNOWN, "unknown fault", ClearRule.QUIET)


def xid_fault(number: int) -> Fault:
    """The catalogue row of an XID; one without a row keeps its number and is of class `unknown`."""
    known = FAULTS.get(f"XID{number}")
    if known is not None:
        return known
    return Fault(f"XID{number}", FaultClass.UNKNOWN, "XID without a known action", ClearRule.QUIET)
