"""What slurmctld keeps of each node and job."""

from slurm_lifecycle.core.model import JobView, NodeView
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, NodeSpec
from slurm_lifecycle.simulation.timeline import Event

DOWN = 1
DRAIN = 2
FAIL = 4
NOT_RESPONDING = 8
REBOOT_REQUESTED = 16
REBOOT_ISSUED = 32
INVALID_REG = 64
MAINTENANCE = 128
RESERVED = 256
ALLOCATED = 512
COMPLETING = 1024
UNKNOWN = 2048

REBOOTING = REBOOT_REQUESTED | REBOOT_ISSUED
# No job starts on such a node, now or when what runs there is over.
UNUSABLE = DOWN | DRAIN | FAIL | NOT_RESPONDING | REBOOT_ISSUED | INVALID_REG | UNKNOWN
BUSY = ALLOCATED | COMPLETING

_WORDS = {
    DOWN: "DOWN",
    DRAIN: "DRAIN",
    FAIL: "FAIL",
    NOT_RESPONDING: "NOT_RESPONDING",
    REBOOT_REQUESTED: "REBOOT_REQUESTED",
    REBOOT_ISSUED: "REBOOT_ISSUED",
    INVALID_REG: "INVALID_REG",
    MAINTENANCE: "MAINTENANCE",
    RESERVED: "RESERVED",
    ALLOCATED: "ALLOCATED",
    COMPLETING: "COMPLETING",
    UNKNOWN: "UNKNOWN",
}
_tokens: dict[int, frozenset[str]] = {}


def tokens(flags: int) -> frozenset[str]:
    """The tokens of `State=`; one object for each combination."""
    found = _tokens.get(flags)
    if found is None:
        base = set() if flags & (DOWN | ALLOCATED | UNKNOWN) else {"IDLE"}
        # DOWN and UNKNOWN are base states: nothing is allocated there.
        shown = flags & ~ALLOCATED if flags & (DOWN | UNKNOWN) else flags
        shown = shown & ~UNKNOWN if shown & DOWN else shown
        found = frozenset(base | {word for bit, word in _WORDS.items() if shown & bit})
        _tokens[flags] = found
    return found


class Node:
    """One node's record.

    Attributes:
        bit: its place in the masks of the scheduler.
        known: it has registered before, so that a later boot time is a boot.
        job: what holds it, suspended and completing ones included.
        next_state: what `nextstate=` or ASAP promised for after the boot: "", `RESUME`, `DOWN`.
        boot_req_at: a boot after this is the one that was asked for.
        undrains: ASAP set the DRAIN, which goes after the boot.
        asked_at: when slurmctld last asked it to register; answers from before do not count.
        silent_since: since when slurmd does not answer, known to slurmctld or not.
        view: as clients see it now, None where that is still to be made.
        seen: views by flags, of the time in which the `rest` of the record is what it is.
    """

    __slots__ = (
        "asked_at",
        "bit",
        "boot_req_at",
        "boot_time_s",
        "comment",
        "extra",
        "flags",
        "job",
        "known",
        "name",
        "next_state",
        "reason",
        "reason_at_s",
        "rest",
        "seen",
        "silent_since",
        "slurmd_start_s",
        "spec",
        "timers",
        "undrains",
        "view",
    )

    def __init__(self, spec: NodeSpec, bit: int, now: float) -> None:
        """In service since a while."""
        self.spec = spec
        self.name = spec.name
        self.bit = bit
        self.flags = 0
        self.reason = ""
        self.reason_at_s: float | None = None
        self.comment = ""
        self.extra = ""
        self.boot_time_s = now - 1000.0
        self.slurmd_start_s = now - 990.0
        self.job: Job | None = None
        self.known = False
        self.next_state = ""
        self.undrains = False
        self.boot_req_at = 0.0
        self.asked_at = 0.0
        self.silent_since: float | None = None
        self.timers: dict[str, Event] = {}
        self.view: NodeView | None = None
        self.seen: dict[int, NodeView] = {}
        self.rest: tuple[str, float | None, str, str, float] | None = None

    def stop(self, *timers: str) -> None:
        """Take planned events back."""
        for name in timers:
            event = self.timers.pop(name, None)
            if event is not None:
                event.cancel()


class Job:
    """One job's record.

    Attributes:
        state: `PENDING`, `RUNNING`, `SUSPENDED`, `COMPLETING`, `RESV_DEL_HOLD`.
        nodes: the nodes of its present run; kept while it completes.
        again: it goes back to the queue when it has completed.
        how: how the last run ended.
        begin_at: it does not start before.
        mask: the bits of its nodes.
        next_reason: why it is held once it is back in the queue.
        left: nodes that are not rid of it yet, while it completes.
        limit_left_s: of its time limit, while it is suspended.
    """

    __slots__ = (
        "again",
        "begin_at",
        "held",
        "how",
        "id",
        "killed_at",
        "left",
        "limit",
        "limit_left_s",
        "mask",
        "next_reason",
        "nodes",
        "reason",
        "restarts",
        "spec",
        "started_at",
        "state",
        "view",
    )

    def __init__(self, job_id: str, spec: JobSpec, now: float) -> None:
        """In the queue."""
        self.id = job_id
        self.spec = spec
        self.state = "PENDING"
        self.nodes: tuple[str, ...] = ()
        self.restarts = 0
        self.started_at: float | None = None
        self.begin_at = now
        self.reason = "JobHeldUser" if spec.held else ""
        self.next_reason = ""
        self.held = spec.held
        self.again = False
        self.how = ""
        self.killed_at = 0.0
        self.left: dict[str, Node] = {}
        self.limit: Event | None = None
        self.limit_left_s = 0.0
        self.mask = 0
        self.view: JobView | None = None
