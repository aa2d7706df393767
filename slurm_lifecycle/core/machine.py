"""What is known of a machine beside Slurm: its power and its boot override, as its BMC tells them.

A reply to a request is no evidence (a 204 may come from a BMC that does nothing): only a reading that began
after the request was sent is.
"""

from dataclasses import dataclass
from enum import Enum


class PowerState(Enum):
    """Redfish `PowerState`; everything that is none of its words is unknown."""

    ON = "on"
    OFF = "off"
    POWERING_ON = "powering_on"
    POWERING_OFF = "powering_off"
    UNKNOWN = "unknown"


class BmcProblem(Enum):
    """Why a BMC could not be asked. Always about the BMC, never about the host behind it."""

    NONE = ""
    NOT_CONFIGURED = "not_configured"
    CREDENTIALS = "credentials"
    """The file, variable or command that holds them gave none: the BMC was not asked."""
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TLS = "tls"
    AUTH = "auth"
    BUSY = "busy"
    """503, no session left, or our own queue: it may answer later."""
    NONSENSE = "nonsense"
    """It answered with something that is not Redfish, or contradicts itself."""
    WRONG_MACHINE = "wrong_machine"
    """Its serial number is not the one on record: nothing is ever asked of it."""


class MachineCommand(Enum):
    """One request that changes something. Nothing that cycles by itself, so that none can do it twice."""

    STAGE = "stage"
    """Tell the site's provisioner what the node is to boot; the only one that is not asked of the BMC."""
    GRACEFUL_OFF = "graceful_off"
    FORCE_OFF = "force_off"
    ON = "on"
    AC_CYCLE = "ac_cycle"
    BOOT_ONCE = "boot_once"
    """Boot from the network at the next start, once."""
    BOOT_CLEAR = "boot_clear"
    """Take the boot override away."""
    OFF_SEEN = "off_seen"
    """Not a command and never sent: the machine was read as off, from which its time off is counted."""


# What puts a machine back into order: sent whatever else was decided about its node meanwhile.
RESTORING = frozenset({MachineCommand.ON, MachineCommand.BOOT_CLEAR})


class StepOutcome(Enum):
    """What came of sending a command. Accepted is no evidence that it was done."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Surely nothing happened: an answer that says so, or it was never sent. Sending it again is safe."""
    UNSUPPORTED = "unsupported"
    """This machine has no such thing. Surely nothing happened, and asking again will not help."""
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class AttemptStep:
    """One command of an attempt, written down before it is sent.

    Attributes:
        n: number within the attempt, from 1.
        outcome: None while it is not known whether it was sent at all (a daemon that was killed).
    """

    op_id: str
    n: int
    command: MachineCommand
    created_at: float
    outcome: StepOutcome | None = None
    ended_at: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BootOverride:
    """The boot override as it was read back, in Redfish's own words; all "" where it was not there.

    Attributes:
        enabled: `Disabled`, `Once` or `Continuous`.
        target: `None`, `Pxe`, `UefiHttp`, ...
        mode: `UEFI` or `Legacy`.
    """

    enabled: str = ""
    target: str = ""
    mode: str = ""

    @property
    def stands(self) -> bool:
        """Whether the next start would follow it."""
        return self.enabled not in ("", "Disabled") and self.target not in ("", "None")

    @property
    def from_network_once(self) -> bool:
        """Whether it is what we asked for: from the network, once."""
        return self.enabled == "Once" and self.target in ("Pxe", "UefiHttp")


@dataclass(frozen=True, slots=True)
class MachineReading:
    """What a BMC says of its machine.

    Attributes:
        asked_at: when the reading began: evidence only for what was sent before that.
        boot: None where the resource that owns it could not be read.
        problem: why nothing, or not all, could be read; the other fields then say nothing.
        detail: the problem in one line, for a person.
        progress: `BootProgress.LastState` where there is one; a hint.
    """

    node: str
    asked_at: float
    power: PowerState = PowerState.UNKNOWN
    serial: str = ""
    boot: BootOverride | None = None
    progress: str = ""
    problem: BmcProblem = BmcProblem.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HardwareFinding:
    """One thing that a BMC finds wrong; `code` is a row of the fault catalogue."""

    code: str
    component: str
    text: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A BMC's account of its machine's health.

    Attributes:
        at: when it was read.
        complete: False where a part could not be read: then what is not in `findings` is not known to be
            well, and no finding may be cleared by it.
        problem: why the BMC could not be asked; `findings` is then empty and says nothing.
    """

    node: str
    at: float
    power: PowerState = PowerState.UNKNOWN
    findings: tuple[HardwareFinding, ...] = ()
    complete: bool = True
    problem: BmcProblem = BmcProblem.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a machine; "" for what its BMC does not tell.

    Attributes:
        kind: `system`, `gpu`, `dimm`, `drive`, `nic`, `psu`, `cpu`, `fan`, `chassis` or `firmware`.
        slot: where it sits (`gpu3`, `DIMM_A1`), unique within its kind and machine.
    """

    kind: str
    slot: str
    model: str = ""
    manufacturer: str = ""
    serial: str = ""
    part_number: str = ""
    firmware: str = ""
    health: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A machine's parts as its BMC lists them; `problem` says what could not be read."""

    node: str
    at: float
    serial: str = ""
    model: str = ""
    manufacturer: str = ""
    parts: tuple[Part, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BmcLogEntry:
    """One entry of a BMC's event log, as it says it; untrusted text."""

    created: str
    severity: str
    message: str
    entry_id: str = ""


@dataclass(frozen=True, slots=True)
class PhoneHome:
    """A node told over the network, with its one-time token, that its image is on its disk."""

    op_id: str
    node: str
    image: str
    at: float
