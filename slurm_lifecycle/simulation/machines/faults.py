"""What breaks in a fleet: the kinds of faults, how often each comes, who sees it, and what mends it.

Counts are those of the 419 interruptions of a job of 16,384 H100 GPUs (2,048 hosts) in 54 days that Meta
published with Llama 3 ("The Llama 3 Herd of Models", table 5). The paper's percentages do not match its
counts; the counts are used. How a cause divides into finding codes, and every chance of a cure without
another ground, is judgement: a site can override each of them.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from slurm_lifecycle.simulation.timeline import Event

INTERRUPTIONS, INTERRUPTIONS_DAYS, INTERRUPTIONS_NODES = 419, 54.0, 2048
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
# A fault that goes by itself and comes back has done so often enough after this; then it stays away.
MAX_SHOWS = 4
# A fault that boots do not mend hides after so many of them; then it is plain to see after each.
MAX_HIDES = 2

# What may mend a fault, least invasive first. Each does all that those before it do, so that a fault which a
# lesser one mends is mended by a greater one too. `time` stands beside them: it goes by itself.
RUNGS = ("gpu_reset", "reboot", "power", "reimage", "reseat", "rma")


class SeenBy(Enum):
    """Who notices: the node's agent, Slurm (the node dies or reboots), nobody, or a person who plans it."""

    AGENT = "agent"
    SLURM = "slurm"
    NOBODY = "nobody"
    PERSON = "person"


class JobEffect(Enum):
    """What becomes of a job on the node.

    CRASH: it ends at once. HANG: it makes no more progress and ends when its own watchdog or its people
    notice. START: a running job goes on, one that starts there fails. NONE: nothing.
    """

    CRASH = "crash"
    HANG = "hang"
    START = "start"
    NONE = "none"


class HostEffect(Enum):
    """What becomes of the host: it dies, reboots by itself, cannot be reached, or nothing."""

    NONE = "none"
    DIES = "dies"
    REBOOTS = "reboots"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        key: stable name, used in results.
        cause: row of the published table, or the name of a correlated event.
        count: of the 419 interruptions; 0 where it only comes by a correlated event.
        code: finding code of the catalogue by which it is seen, "" where no agent sees it.
        again: code by which it is seen after a boot that did not mend it, "" for the same.
        component: `gpu{}` and the like get a number; `-` is the node itself.
        takes_gpu: after a boot the node registers with one GPU less.
        cures: chance that it is mended, by rung and by `time`; a rung that is not named mends what the
            lesser ones do; `rma` mends everything unless it says otherwise.
        lasts_s: mean time after which it goes by itself, None where it stays; 0 is over at once.
        away_s: mean time until it comes back where it went by itself and was not mended.
        hidden: chance that after a boot which did not mend it, it does not show at once.
        hidden_s: mean time until it shows then.
        hang_s: mean time from the fault to the end of a job that hangs.
        detect_s: least and most time until its agent sees it.
        ground: why the chances are what they are.
    """

    key: str
    cause: str
    count: float
    seen_by: SeenBy
    job: JobEffect
    ground: str
    code: str = ""
    again: str = ""
    component: str = "-"
    host: HostEffect = HostEffect.NONE
    takes_gpu: bool = False
    cures: Mapping[str, float] = field(default_factory=dict, hash=False)
    lasts_s: float | None = None
    away_s: float = 6 * HOUR_S
    hidden: float = 0.3
    hidden_s: float = 6 * HOUR_S
    hang_s: float = 5 * MINUTE_S
    detect_s: tuple[float, float] = (0.5, 3.0)

    def chance(self, rung: str) -> float:
        """How likely a rung, or `time`, mends it."""
        if rung == "time":
            return self.cures.get("time", 0.0)
        if rung == "rma":
            return self.cures.get("rma", 1.0)
        lesser = RUNGS[: RUNGS.index(rung) + 1]
        return max((self.cures.get(one, 0.0) for one in lesser), default=0.0)


@dataclass(slots=True)
class Fault:
    """One fault of one node, from the moment it began until it is mended.

    What would mend it is drawn when it begins, so that a repair comes to the same whenever it is made.

    Attributes:
        luck: 0 to 1; a rung mends it where its chance is above this.
        shown: it is there now; one that is not mended may be away for a while.
        shows: how often it came. hides: after how many boots it did not show at once.
    """

    kind: FaultKind
    node: str
    component: str
    began_at: float
    luck: float
    detect_s: float
    hang_s: float
    lasts_s: float | None
    away_s: float
    hidden_s: float
    shown: bool = False
    shows: int = 0
    hides: int = 0
    booted: bool = False
    cleared_at: float | None = None
    cleared_by: str = ""
    event: Event | None = None

    @property
    def key(self) -> str:
        """What it is known by on its node."""
        return f"{self.kind.key}.{self.component}"

    @property
    def code(self) -> str:
        """The finding code under which an agent sees it now."""
        return self.kind.again if self.booted and self.kind.again else self.kind.code

    def cured_by(self, rung: str) -> bool:
        """Whether a rung, or `time`, mends it."""
        return self.luck < self.kind.chance(rung)


def draw_fault(
    kind: FaultKind, node: str, gpus: int, rng: random.Random, *, at: float, component: str = ""
) -> Fault:
    """One fault of a kind with everything about it drawn, always by the same number of draws.

    Args:
        gpus: of the node, for the component.
        component: a given one, else it is drawn.
    """
    place, luck, detect, hang, lasts, away, hides, hidden = (rng.random() for _ in range(8))
    low, high = kind.detect_s
    drawn = kind.component.format(int(place * max(1, gpus)))
    return Fault(
        kind=kind,
        node=node,
        component=component or drawn,
        began_at=at,
        luck=luck,
        detect_s=low + detect * (high - low),
        hang_s=kind.hang_s * (0.5 + hang),
        lasts_s=None if kind.lasts_s is None else kind.lasts_s * (0.25 + 1.5 * lasts),
        away_s=kind.away_s * (0.25 + 1.5 * away),
        hidden_s=kind.hidden_s * (0.25 + 1.5 * hidden) if hides < kind.hidden else 0.0,
    )


_PROBE_S = (5.0, 65.0)  # One round of probes is 60 s, and a second sample follows after 5 s.
_AGENT, _SLURM, _NOBODY = SeenBy.AGENT, SeenBy.SLURM, SeenBy.NOBODY
_CRASH, _HANG = JobEffect.CRASH, JobEffect.HANG
_JUDGED = "judgement"
_APP = "the application ends; nothing of the node is broken"
_DELTA = "92 % of uncorrectable errors on H100 were mitigated without a swap (Delta, NCSA)"
_GSP = "a reset seldom helps, a reboot nearly always (Delta: 99 % end in an error state, reboot needed)"
_MISMATCH = "reboot or reimage mends it: the module that belongs to the library is loaded or installed"

_GPU_KINDS = (
    FaultKind(
        "gpu_off_bus", "faulty GPU", 44, _AGENT, _CRASH, "XID 79: reboot 0.4, else RMA", "XID79", "GPU_COUNT",
        "gpu{}", takes_gpu=True, cures={"reboot": 0.4},
    ),
    FaultKind(
        "gpu_hang", "faulty GPU", 28, _AGENT, _HANG, _JUDGED, "XID109", "", "gpu{}",
        cures={"gpu_reset": 0.5, "reboot": 0.85},
    ),
    FaultKind(
        "gpu_halt", "faulty GPU", 16, _AGENT, _CRASH, _JUDGED, "XID62", "", "gpu{}",
        cures={"gpu_reset": 0.4, "reboot": 0.8},
    ),
    FaultKind(
        "gpu_recovery", "faulty GPU", 14, _AGENT, _CRASH, _JUDGED, "RECOVERY_REBOOT", "", "gpu{}",
        cures={"reboot": 0.85}, detect_s=_PROBE_S,
    ),
    FaultKind(
        "nvlink", "faulty GPU", 30, _AGENT, _CRASH, "reseating helps half of those that stay", "XID74", "",
        "gpu{}", cures={"time": 0.3, "reboot": 0.4, "reseat": 0.7}, lasts_s=20 * MINUTE_S,
    ),
    FaultKind(
        "gpu_dead", "faulty GPU", 16, _AGENT, _CRASH, "the GPU itself is broken", "GPU_LOST", "GPU_COUNT",
        "gpu{}", takes_gpu=True, cures={"reboot": 0.1}, hidden=0.1, detect_s=_PROBE_S,
    ),
    FaultKind(
        "hbm_uncontained", "HBM", 22, _AGENT, _CRASH, _DELTA, "XID95", "", "gpu{}",
        cures={"gpu_reset": 0.9, "reboot": 0.92},
    ),
    FaultKind(
        "hbm_double_bit", "HBM", 20, _AGENT, _CRASH, _DELTA, "XID48", "", "gpu{}",
        cures={"gpu_reset": 0.9, "reboot": 0.92},
    ),
    FaultKind(
        "hbm_contained", "HBM", 22, _AGENT, _CRASH, "the page is retired, 0.9 stay away", "XID94", "",
        "gpu{}", cures={"time": 0.9, "gpu_reset": 0.9, "reboot": 0.92}, lasts_s=0.0, away_s=12 * HOUR_S,
    ),
    FaultKind(
        "hbm_remap_failed", "HBM", 8, _AGENT, _CRASH, "no spare row is left: RMA 1.0", "REMAP_FAILURE", "",
        "gpu{}", hidden=0.0, detect_s=_PROBE_S,
    ),
    FaultKind(
        "sram_uncorrected", "SRAM", 13, _AGENT, _CRASH, _DELTA, "XID140", "", "gpu{}",
        cures={"gpu_reset": 0.6, "reboot": 0.9},
    ),
    FaultKind(
        "sram_threshold", "SRAM", 6, _AGENT, _CRASH, "past NVIDIA's threshold: RMA", "SRAM_THRESHOLD", "",
        "gpu{}", hidden=0.0, detect_s=_PROBE_S,
    ),
    FaultKind(
        "gsp_timeout", "GSP", 12, _AGENT, _HANG, _GSP, "XID119", "", "gpu{}",
        cures={"gpu_reset": 0.3, "reboot": 0.95},
    ),
    FaultKind(
        "gsp_error", "GSP", 5, _AGENT, _HANG, _GSP, "XID120", "", "gpu{}",
        cures={"gpu_reset": 0.3, "reboot": 0.95},
    ),
    FaultKind(
        "gpu_sensor", "thermal/sensor", 3, _AGENT, _CRASH, _JUDGED, "GPU_IRQ", "", "gpu{}",
        cures={"reboot": 0.7}, detect_s=_PROBE_S,
    ),
)  # fmt: skip

_SOFTWARE_KINDS = (
    FaultKind("app_bug", "software", 26, _NOBODY, _CRASH, _APP, cures={"time": 1.0}, lasts_s=0.0),
    FaultKind(
        "app_mmu_fault", "software", 14, _AGENT, _CRASH, _APP, "XID31", "", "gpu{}",
        cures={"time": 1.0}, lasts_s=0.0,
    ),
    FaultKind(
        "driver_down", "software", 6, _AGENT, _CRASH, _JUDGED, "DRIVER_DOWN",
        cures={"reboot": 0.7, "reimage": 1.0}, detect_s=_PROBE_S,
    ),
    FaultKind(
        "root_read_only", "software", 4, _AGENT, _CRASH, _JUDGED, "FS_READONLY", "", "/",
        cures={"reboot": 0.6, "reimage": 0.95}, detect_s=_PROBE_S,
    ),
    FaultKind(
        "disk_full", "software", 2, _AGENT, _CRASH, _JUDGED, "FS_FULL", "", "/tmp",
        cures={"reboot": 0.3, "reimage": 1.0}, hidden=0.0, detect_s=_PROBE_S,
    ),
    FaultKind(
        "kernel_hang", "software", 2, _AGENT, _HANG, "only a boot ends a D state", "PROBE_DSTATE",
        cures={"reboot": 1.0}, detect_s=_PROBE_S,
    ),
    FaultKind(
        "driver_mismatch", "driver rollout", 0, _AGENT, JobEffect.START, _MISMATCH, "DRIVER_MISMATCH",
        cures={"reboot": 0.7, "reimage": 1.0}, hidden=0.0, detect_s=_PROBE_S,
    ),
    FaultKind("nccl_watchdog", "NCCL watchdog", 7, _NOBODY, _HANG, "the default NCCL timeout is 10 min",
              cures={"time": 1.0}, lasts_s=0.0, hang_s=10 * MINUTE_S),
    FaultKind("silent_corruption", "SDC", 6, _NOBODY, _CRASH, "found by people in the loss curve",
              cures={"time": 1.0}, lasts_s=0.0),
    FaultKind("dependency", "dependency", 2, _NOBODY, _HANG, "a service outside", cures={"time": 1.0},
              lasts_s=0.0),
    FaultKind("host_maintenance", "host maintenance", 32, SeenBy.PERSON, JobEffect.NONE, "a person's plan"),
)  # fmt: skip

_HOST_KINDS = (
    FaultKind("switch_fault", "network switch/cable", 20, _NOBODY, _CRASH, "another path is taken next time",
              cures={"time": 1.0}, lasts_s=0.0),
    FaultKind(
        "cable_down", "network switch/cable", 15, _SLURM, _HANG, _JUDGED, host=HostEffect.SILENT,
        cures={"time": 0.6, "reseat": 0.9}, lasts_s=30 * MINUTE_S,
    ),
    FaultKind(
        "nic_dead", "NIC", 7, _SLURM, _HANG, _JUDGED, component="nic{}", host=HostEffect.SILENT,
        cures={"reboot": 0.3},
    ),
    FaultKind(
        "thermal_trip", "thermal/sensor", 3, _SLURM, _HANG, _JUDGED, host=HostEffect.REBOOTS,
        cures={"reboot": 0.6}, hidden=1.0,
    ),
    FaultKind("psu_dead", "PSU", 3, _SLURM, _HANG, "the part is broken", host=HostEffect.DIES,
              cures={"power": 0.2}),
    FaultKind(
        "ssd_dead", "SSD", 3, _AGENT, _CRASH, "the part is broken", "FS_READONLY", "", "/",
        cures={"reboot": 0.05, "reimage": 0.1}, detect_s=_PROBE_S,
    ),
    FaultKind("chassis", "chassis", 2, _SLURM, _HANG, _JUDGED, host=HostEffect.DIES, cures={"power": 0.5}),
    FaultKind("io_board", "IO board", 2, _SLURM, _HANG, "the part is broken", host=HostEffect.DIES,
              cures={"power": 0.2}),
    FaultKind(
        "cpu_machine_check", "CPU", 2, _SLURM, _HANG, _JUDGED, host=HostEffect.REBOOTS,
        cures={"reboot": 0.5}, hidden=1.0, hidden_s=12 * HOUR_S,
    ),
    FaultKind(
        "memory_machine_check", "memory", 2, _SLURM, _HANG, _JUDGED, host=HostEffect.REBOOTS,
        cures={"reboot": 0.4}, hidden=1.0, hidden_s=12 * HOUR_S,
    ),
    FaultKind(
        "leaf_switch", "leaf switch", 0, _SLURM, _HANG, "ends with the cause",
        host=HostEffect.SILENT, cures={"time": 1.0, "rma": 0.0}, hidden=0.0,
    ),
    FaultKind(
        "rack_power", "rack power", 0, _SLURM, _HANG, "ends with the cause", host=HostEffect.DIES,
        cures={"time": 1.0, "rma": 0.0}, hidden=0.0,
    ),
)  # fmt: skip

KINDS: Mapping[str, FaultKind] = {kind.key: kind for kind in (*_GPU_KINDS, *_SOFTWARE_KINDS, *_HOST_KINDS)}


def kinds_of_code(code: str) -> tuple[FaultKind, ...]:
    """The kinds that an agent sees under a finding code, most frequent first."""
    found = [kind for kind in KINDS.values() if code in (kind.code, kind.again) and code]
    return tuple(sorted(found, key=lambda kind: (-kind.count, kind.key)))
