"""The policy that decisions follow, as values. Defaults suit a production site; each has its ground.

`service.config` fills it from TOML; `etc/policy.toml` shows every number with its ground.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Rung

MINUTE_S = 60.0
DAY_S = 86400.0
# How far back `Records` reaches: a policy that counts over a longer time would count too little.
CLOSED_KEPT_S = 28 * DAY_S
ATTEMPTS_KEPT_S = 7 * DAY_S
HITS_KEPT_S = DAY_S


class Mode(Enum):
    """`observe`: plans are shown, nothing is done. `act`: within the allow-lists."""

    OBSERVE = "observe"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class RungRule:
    """One place in a ladder path."""

    rung: Rung
    attempts: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Cap:
    """At most `count` attempts of a rung on one node within `window_s`."""

    count: int
    window_s: float


@dataclass(frozen=True, slots=True)
class Budget:
    """Absolute limits; None means no limit of this kind."""

    max_out: int | None = None
    max_working: int | None = None


def _default_paths() -> Mapping[FaultClass, tuple[RungRule, ...]]:
    reboot = RungRule(Rung.REBOOT, 1, 30 * MINUTE_S)
    power = RungRule(Rung.POWER, 1, 60 * MINUTE_S)
    rma = RungRule(Rung.RMA, 1, 10 * MINUTE_S)
    return {
        FaultClass.TRANSIENT: (RungRule(Rung.VERIFY, 2, 10 * MINUTE_S), reboot, rma),
        FaultClass.GPU_RESET: (RungRule(Rung.GPU_RESET, 1, 2 * MINUTE_S), reboot, power, rma),
        FaultClass.REBOOT: (reboot, power, rma),
        FaultClass.SOFTWARE: (
            reboot,
            RungRule(Rung.REIMAGE, 2, 90 * MINUTE_S),
            RungRule(Rung.PERSON, 1, 10 * MINUTE_S),
        ),
        FaultClass.HARDWARE: (RungRule(Rung.DIAGNOSE, 1, 30 * MINUTE_S), rma),
        FaultClass.LINK: (
            RungRule(Rung.VERIFY, 1, 20 * MINUTE_S),
            reboot,
            power,
            RungRule(Rung.RESEAT, 1, 10 * MINUTE_S),
        ),
    }


def _default_caps() -> Mapping[Rung, tuple[Cap, ...]]:
    return {
        Rung.GPU_RESET: (Cap(2, DAY_S),),
        Rung.REBOOT: (Cap(2, DAY_S), Cap(4, 7 * DAY_S)),
        Rung.POWER: (Cap(1, DAY_S), Cap(2, 7 * DAY_S)),
        Rung.REIMAGE: (Cap(1, DAY_S), Cap(2, 7 * DAY_S)),
    }


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Distinct nodes in `window_s` at or above clamp(`percent` of GPU nodes, `least`, `most`) trip it."""

    window_s: float = 10 * MINUTE_S
    percent: float = 2.0
    least: int = 5
    most: int = 32

    def threshold(self, gpu_nodes: int) -> int:
        """How many distinct nodes trip it."""
        wanted = -int(-(gpu_nodes * self.percent) // 100)
        return max(self.least, min(self.most, wanted))


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Times of a power cycle, each bounded by the attempt's deadline as well.

    Attributes:
        graceful_off_s: how long an operating system may take to shut down before its power is cut. systemd
            gives a service 90 s to stop, and several may follow each other.
        force_off_s: until a machine whose power was cut must read as off (DGX and iDRAC take up to a minute).
        off_dwell_s: how long it stays off: power supplies hold their charge, and iDRAC10 refuses `On` right
            after off (LP#2162995).
        on_s: until a machine must read as on.
        retry_s: between two tries of a command that was refused.
        refused_tries: how often a command may be refused before the attempt fails; `On` is tried for ever.
        silent_s: how long a BMC may be silent before the first command of an attempt.
        dark_s: how long it may be silent after an AC cycle (NVIDIA: Redfish may need 5 min after one).
        marker_s: after a new boot, until its image marker must be there.
    """

    graceful_off_s: float = 180.0
    force_off_s: float = 120.0
    off_dwell_s: float = 15.0
    on_s: float = 180.0
    retry_s: float = 15.0
    refused_tries: int = 8
    silent_s: float = 600.0
    dark_s: float = 600.0
    marker_s: float = 180.0


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that a decision may depend on beside what was observed and recorded.

    Attributes:
        partitions: where the suite may act; `("*",)` is everywhere.
        rungs: what it may do: `drain`, `return`, and rung names.
        effects: rungs that have an effect in this installation; others are skipped.
        fleet, partition_budgets, domain_budgets: limits (a node counts in each it belongs to).
        fleet_out_percent, fleet_working_percent: the fleet's limits where `fleet` sets none: of all nodes,
            at least 2; working at most 32.
        domains: node name to failure domain.
        adopt_after_s: how long Slurm's own reason must have lasted.
        adopt_tools: reason prefixes of other tools that may be adopted.
        bmc: nodes whose BMC is known together with its machine's serial number: only those are power-cycled.
        machine: times of a power cycle.
        power_at_once, reimage_at_once: nodes of the fleet in that rung; power is one a failure domain too.
        ac_cycle_codes: faults whose power cycle cuts the mains side as well, where the machine can.
        reimage_by_pxe: the reimage rung boots from the network through the BMC, not by the site's command.
        image_marker: a reimage is proven by the marker of its own operation only.
        oob_drain: codes of out-of-band findings that drain; all others only warn.
    """

    mode: Mode = Mode.OBSERVE
    partitions: tuple[str, ...] = ()
    rungs: frozenset[str] = frozenset()
    effects: frozenset[Rung] = frozenset(
        {Rung.VERIFY, Rung.REBOOT, Rung.REIMAGE, Rung.RMA, Rung.RESEAT, Rung.PERSON}
    )
    paths: Mapping[FaultClass, tuple[RungRule, ...]] = field(default_factory=_default_paths)
    caps: Mapping[Rung, tuple[Cap, ...]] = field(default_factory=_default_caps)
    fleet: Budget = field(default_factory=Budget)
    fleet_out_percent: float = 10.0
    fleet_working_percent: float = 1.0
    partition_budgets: Mapping[str, Budget] = field(default_factory=dict)
    domain_budgets: Mapping[str, Budget] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    adopt_slurm: bool = True
    adopt_after_s: float = 10 * MINUTE_S
    adopt_tools: tuple[str, ...] = ()
    drain_deadline_s: float = 7 * DAY_S
    verify_deadline_s: float = 20 * MINUTE_S
    verify_settle_s: float = 90.0
    return_deadline_s: float = 10 * MINUTE_S
    retry_after_s: float = 30.0
    fence_days: int = 365
    relapse_window_s: float = 7 * DAY_S
    lemon_7d: int = 3
    lemon_28d: int = 5
    page_busy_after_s: float = 30 * MINUTE_S
    image: str = "default"
    bmc: frozenset[str] = frozenset()
    machine: MachineLimits = field(default_factory=MachineLimits)
    power_at_once: int = 8
    reimage_at_once: int = 4
    ac_cycle_codes: frozenset[str] = frozenset()
    reimage_by_pxe: bool = False
    image_marker: bool = True
    oob_drain: frozenset[str] = frozenset()
