"""The values that the planner reads and writes: what was observed, what is on record, what a plan holds.

All times are seconds since the epoch, UTC, as floats; `None` means not known or not set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from slurm_lifecycle.core.fault_catalog import FaultClass, Level
from slurm_lifecycle.core.machine import AttemptStep, HealthReport, MachineReading, PhoneHome


class Owner(Enum):
    """Whose drain it is (DESIGN: contracts, owners)."""

    OURS = "ours"
    PERSON = "person"
    SLURM = "slurm"
    TOOL = "tool"
    NOBODY = "nobody"


class Phase(Enum):
    """What a node is doing, derived every tick, never stored as intent."""

    IN_SERVICE = "in_service"
    OUT = "out"
    PARKED = "parked"
    FOREIGN = "foreign"
    GONE = "gone"
    LEAVING = "leaving"
    WORKING = "working"
    VERIFYING = "verifying"
    RETURNING = "returning"
    UNKNOWN = "unknown"


class Step(Enum):
    """Where an incident stands. Only `core.transitions` says which moves are legal."""

    DRAINING = "draining"
    REPAIRING = "repairing"
    VERIFYING = "verifying"
    RETURNING = "returning"
    AWAITING_PERSON = "awaiting_person"
    HELD = "held"
    CLOSED = "closed"


class Rung(Enum):
    """A step of the repair ladder, least invasive first."""

    VERIFY = "verify"
    GPU_RESET = "gpu_reset"
    REBOOT = "reboot"
    POWER = "power"
    REIMAGE = "reimage"
    DIAGNOSE = "diagnose"
    RESEAT = "reseat"
    RMA = "rma"
    PERSON = "person"


class AttemptOutcome(Enum):
    """How one try of a one-shot effect ended. Cancelled (never sent) and ambiguous are not success."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    AMBIGUOUS = "ambiguous"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


class ProvisionState(Enum):
    """What a provisioner says of an operation."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


# ---------------------------------------------------------------- observed


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a node says of itself, read from its Extra field.

    Attributes:
        image_op, image: of the marker that its last reimage left on its disk; "" where there is none.
    """

    boot_id: str
    seq: int
    level: Level
    code: str
    component: str
    image_op: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as Slurm reports it.

    Attributes:
        state: the tokens of `State=`, e.g. `{"IDLE", "DRAIN"}`; a trailing `*` becomes `NOT_RESPONDING`.
        reason: the text without the trailing ` [user@time]`.
        gpus: GPUs configured in Gres, 0 where none.
    """

    name: str
    state: frozenset[str]
    reason: str = ""
    reason_at_s: float | None = None
    comment: str = ""
    extra: str = ""
    boot_time_s: float | None = None
    slurmd_start_s: float | None = None
    partitions: tuple[str, ...] = ()
    gpus: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """One job in a non-terminal state; holds no field that a user writes.

    Attributes:
        state: Slurm's long state, e.g. `RUNNING`, `SUSPENDED`, `COMPLETING`, `PENDING`.
        reason: Slurm's own pending reason, e.g. `launch failed requeued held`.
    """

    job_id: str
    state: str
    nodes: tuple[str, ...]
    uid: int
    restarts: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReservationView:
    """One reservation."""

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    flags: frozenset[str]
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProvisionStatus:
    """A provisioner's answer about one operation."""

    state: ProvisionState
    text: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything read from outside in one tick.

    Attributes:
        provision: by operation, for reimages under way.
        machines: by node, read in this tick, for nodes with a repair under way that goes through their BMC.
        health: the latest out-of-band report by node; older than the tick.
    """

    at: float
    nodes: Mapping[str, NodeView]
    jobs: tuple[JobView, ...] = ()
    reservations: Mapping[str, ReservationView] = field(default_factory=dict)
    provision: Mapping[str, ProvisionStatus] = field(default_factory=dict)
    machines: Mapping[str, MachineReading] = field(default_factory=dict)
    health: Mapping[str, HealthReport] = field(default_factory=dict)


# ---------------------------------------------------------------- on record


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault that a node (or Slurm about a node) reported; one open row a (node, code, component).

    Attributes:
        acknowledged: a person decided that it needs nothing until it clears.
    """

    node: str
    code: str
    component: str
    level: Level
    text: str
    boot_id: str
    raised_at: float
    cleared_at: float | None = None
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Incident:
    """An open case for a node. At most one is open a node, which the database enforces.

    Attributes:
        id: `<node>.<opened_at as integer seconds, or later>`, unique and fit for a reservation name.
        path_index: place in the ladder path of `fault_class`; -1 before the first rung.
        rung: the rung in hand, None while draining.
        drain_confirmed: our drain was seen in Slurm at least once.
        boot_before: boot id that a checked boot must differ from ("" = any boot counts).
        step_since, deadline: when the step began, and when it must have ended.
        verify_since: since when the verdict of this boot has been good without a break.
        verify_boot: that boot's id.
        verify_runs: verifications that could not run in this rung.
        service_ticks: ticks in a row in which the returned node was seen in service.
        hold: why it is held, a stable word ("foreign", "verify", ...), "" otherwise.
        lifted: a person let it go without checks (`breaker lift`).
        revision: counts every change; the mark on the node carries it.
        outcome: how it was closed ("returned", "cancelled", "cleared", "lifted"), "" while open.
        cured_by: the rung after which it was returned, for relapses.
    """

    id: str
    node: str
    fault_class: FaultClass
    code: str
    component: str
    step: Step
    opened_at: float
    step_since: float
    deadline: float | None = None
    path_index: int = -1
    rung: Rung | None = None
    drain_confirmed: bool = False
    boot_before: str = ""
    verify_since: float | None = None
    verify_runs: int = 0
    service_ticks: int = 0
    hold: str = ""
    note: str = ""
    lifted: bool = False
    revision: int = 0
    outcome: str = ""
    cured_by: str = ""
    closed_at: float | None = None
    verify_boot: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one one-shot effect, written down before it is sent.

    Attributes:
        op_id: `<incident>.<rung>.<n>`: the same try never gets two.
        boot_before: the node's boot id when it was reserved, "" when unknown.
        boot_time_before_s: Slurm's BootTime then.
        sent: the executor handed it over and no error said otherwise.
    """

    op_id: str
    incident_id: str
    node: str
    rung: Rung
    n: int
    created_at: float
    deadline: float
    boot_before: str = ""
    boot_time_before_s: float | None = None
    sent: bool = False
    outcome: AttemptOutcome | None = None
    ended_at: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """A reservation of ours that keeps every job off a node while we work on it."""

    name: str
    node: str
    incident_id: str
    created_at: float
    closed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Trip:
    """The breaker, tripped for a scope: `fleet`, or `domain:<name>`."""

    scope: str
    tripped_at: float
    reason: str
    reset_at: float | None = None


@dataclass(frozen=True, slots=True)
class BreakerHit:
    """One node that newly needed a disruptive repair."""

    node: str
    at: float
    code: str
    incident_id: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A person's word that nothing is to be done on a node."""

    node: str
    at: float
    actor: str
    text: str
    released_at: float | None = None


class Verb(Enum):
    """What a person can ask of the daemon."""

    HOLD = "hold"
    RELEASE = "release"
    RETURN = "return"
    REMEDIATE = "remediate"
    RMA_CLOSE = "rma_close"
    BREAKER_RESET = "breaker_reset"
    BREAKER_LIFT = "breaker_lift"


@dataclass(frozen=True, slots=True)
class Request:
    """A person's request, put into the store by the CLI and answered within a tick.

    Attributes:
        subject: node name, breaker scope or finding code, by verb.
    """

    id: int
    at: float
    actor: str
    verb: Verb
    subject: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Records:
    """What the store holds that decisions need.

    Attributes:
        incidents: open incidents by node.
        closed_incidents: those closed in the last 28 days.
        attempts: unresolved ones, those of open incidents, and all of the last 7 days.
        steps: those of unresolved attempts and of open incidents, in order.
        homes: nodes that phoned home, by the operation of an unresolved attempt.
        findings: open findings.
        fences: open fences by name.
        trips: open trips, and those that a person reset within the last day.
        hits: breaker hits within the breaker's window.
        holds: holds in force by node.
    """

    incidents: Mapping[str, Incident] = field(default_factory=dict)
    closed_incidents: tuple[Incident, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    steps: tuple[AttemptStep, ...] = ()
    homes: Mapping[str, PhoneHome] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    fences: Mapping[str, Fence] = field(default_factory=dict)
    trips: tuple[Trip, ...] = ()
    hits: tuple[BreakerHit, ...] = ()
    holds: Mapping[str, Hold] = field(default_factory=dict)
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """Which daemon acts: the store's instance id, this host, and how often the store was opened to act.

    Attributes:
        took_over: instance whose claim on the cluster a person told this one to take over, or "".
    """

    instance: str
    host: str
    generation: int
    took_over: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All that a plan is made from."""

    observation: Observation
    records: Records
    identity: Identity
