"""A cluster with the manners of Slurm 22.05 behind the ports, and what must never be done to it.

It loses requests and replies, shows old reads, drops a drain at ResumeTimeout, kills the daemon around any
call. Rules that are broken raise `Violation` at the call that breaks them, from what is true, not from what
was read.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_lifecycle.core.fault_catalog import fault_for
from slurm_lifecycle.core.model import JobView, NodeView, ProvisionState, ProvisionStatus, ReservationView
from slurm_lifecycle.core.ownership import UNREADABLE
from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.errors import AmbiguousOutcome, PermanentError, TransientError
from slurm_lifecycle.ports import CommandResult, TicketFacts

NEVER = 1e12
_OUT = frozenset({"DRAIN", "DOWN", "NOT_RESPONDING", "REBOOT_ISSUED"})


class Killed(BaseException):
    """The daemon died here."""


class Violation(BaseException):
    """Something that must never happen; no handler of the daemon's may swallow it."""


@dataclass
class Node:
    """What is true of a node.

    Attributes:
        person: a person's drain stands.
        unchecked: the effect after which no good verdict of a new boot has stood long enough.
        good_since: since when its agent says that all is well in this boot.
    """

    name: str
    boot_time: float
    base: str = "IDLE"
    drain: bool = False
    reason: str = ""
    reason_at: float = 0.0
    comment: str = ""
    extra: str = ""
    partitions: tuple[str, ...] = ("batch",)
    boot: int = 1
    silent_since: float | None = None
    asked_to_reboot: bool = False
    gives_up_at: float | None = None
    boots_at: float = NEVER
    agent: bool = True
    fault: tuple[str, str, str] | None = None
    odd_state: str = ""
    person: bool = False
    unchecked: str = ""
    good_since: float | None = None
    readable: bool = True


class Cluster:
    """Implements `ports.Slurm`. Chances of mishaps are attributes; all zero is a cluster that behaves."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.rng = rng
        self.now = 1_000_000.0
        self.all: dict[str, Node] = {}
        self.queue: dict[str, JobView] = {}
        self.fences: dict[str, ReservationView] = {}
        self.return_to_service = rng.choice((0, 1, 2))
        self.resume_timeout_s = rng.choice((700.0, 2000.0, 4000.0))
        self.boot_s = rng.choice((20.0, 120.0))
        self.kill = self.lost_reply = self.lost_request = self.old_read = self.lost_boot = 0.0
        self.away = False
        self.lifted: set[str] = set()
        self.on_disruption: Callable[[str, str], None] = lambda node, rung: None
        self._before: dict[str, NodeView] = {}
        for number in range(1, count + 1):
            self.add(f"n{number}")

    # ---------------------------------------------------------------- what is true

    def add(self, name: str) -> None:
        """A node joins."""
        self.all[name] = Node(name, self.now - 1000)
        self.say(self.all[name])

    def say(self, node: Node) -> None:
        """The node's agent writes its verdict."""
        if not node.agent or node.silent_since is not None:
            return
        code, component = node.fault[:2] if node.fault else ("-", "-")
        level = "ok" if code == "-" else fault_for(code).level.value
        boot = f"{node.boot:08x}-0000-4000-8000-{sum(map(ord, node.name)):012x}"
        node.extra = f"slc1 {boot} 1 {level} {code} {component}"
        node.good_since = None if level == "drain" else node.good_since or self.now

    def jobs_of(self, name: str) -> list[JobView]:
        """Jobs that list the node."""
        return [job for job in self.queue.values() if name in job.nodes]

    def fenced(self, name: str) -> bool:
        """Whether a fence of ours stands over the node."""
        return any(name in one.nodes for one in self.fences.values())

    def tokens(self, node: Node) -> frozenset[str]:
        """The node's state."""
        jobs = [job.state for job in self.jobs_of(node.name)]
        marks = {
            "DRAIN": node.drain,
            "COMPLETING": "COMPLETING" in jobs,
            "NOT_RESPONDING": node.silent_since is not None and self.now - node.silent_since > 5,
            "REBOOT_REQUESTED": node.asked_to_reboot,
            "REBOOT_ISSUED": node.gives_up_at is not None,
            "MAINTENANCE": self.fenced(node.name),
            node.odd_state: bool(node.odd_state),
        }
        # A suspended job's node shows IDLE.
        base = "ALLOCATED" if node.base == "IDLE" and "RUNNING" in jobs else node.base
        return frozenset({base, *(token for token, there in marks.items() if there)})

    def start_job(self, name: str) -> None:
        """The scheduler puts a job on the node where it may."""
        node = self.all[name]
        if self.tokens(node) & _OUT or self.fenced(name) or self.jobs_of(name) or node.odd_state:
            return
        if node.unchecked:
            raise Violation(f"a job may start on {name}, unchecked after its {node.unchecked}")
        job = JobView(str(self.rng.randrange(10**9)), "RUNNING", (name,), 1000, 0)
        self.queue[job.job_id] = job
        node.reason = ""

    def end_jobs(self, name: str) -> None:
        """They are over."""
        self.queue = {key: job for key, job in self.queue.items() if name not in job.nodes}

    def drain_by(self, name: str, reason: str, *, person: bool) -> None:
        """Somebody else drains."""
        node = self.all[name]
        node.drain, node.reason, node.reason_at, node.person = True, reason, self.now, person

    def undrain_by_person(self, name: str) -> None:
        """A person gives the node back, checked or not."""
        node = self.all[name]
        if node.gives_up_at is None and not node.asked_to_reboot:
            node.drain, node.base, node.reason, node.person, node.unchecked = False, "IDLE", "", False, ""

    def pass_time(self, seconds: float) -> None:
        """Reboots begin, end and time out; silent nodes go down."""
        self.now += seconds
        for node in self.all.values():
            self._pass_time_of(node)

    def _pass_time_of(self, node: Node) -> None:
        if node.asked_to_reboot and node.silent_since is None and not self.jobs_of(node.name):
            node.asked_to_reboot, node.base, node.silent_since = False, "DOWN", self.now
            node.gives_up_at = self.now + self.resume_timeout_s
            node.reason += " : reboot issued"
            late = self.rng.choice((NEVER, self.resume_timeout_s + 100, self.boot_s * 20))
            node.boots_at = self.now + (late if self.rng.random() < self.lost_boot else self.boot_s)
        if self.now >= node.boots_at:
            self._boot(node)
        if node.gives_up_at is not None and self.now >= node.gives_up_at:
            # 22.05 removes DRAIN here, a person's too.
            node.gives_up_at, node.drain, node.base, node.person = None, False, "DOWN", False
            node.reason, node.reason_at = node.reason + " : reboot timed out", self.now
        if node.silent_since is not None and node.base != "DOWN" and self.now - node.silent_since > 60:
            node.base = "DOWN"
            self.end_jobs(node.name)
            if not node.reason:
                node.reason, node.reason_at = "Not responding", self.now

    def _boot(self, node: Node) -> None:
        asked = node.gives_up_at is not None
        node.boots_at, node.gives_up_at, node.silent_since, node.good_since = NEVER, None, None, None
        node.boot, node.boot_time = node.boot + 1, self.now
        self.end_jobs(node.name)
        if asked or self.return_to_service == 2:
            node.base = "IDLE"
            node.reason = node.reason if node.drain else ""
        elif not node.drain and node.reason in ("", "Not responding"):
            node.base, node.reason, node.reason_at = "DOWN", "Node unexpectedly rebooted", self.now
        if node.fault is not None and node.fault[2] == "reboot":
            node.fault = None
        self.say(node)

    def note_checked(self, settle_s: float) -> None:
        """A node whose agent has said for long enough in this boot that all is well is checked."""
        for node in self.all.values():
            if node.good_since is not None and self.now - node.good_since >= settle_s:
                node.unchecked = ""

    # ---------------------------------------------------------------- the port

    def _asked(self, what: str, *, write: bool = False) -> None:
        if self.away:
            raise TransientError(what, "connect failure")
        if self.rng.random() < self.kill:
            raise Killed(f"before {what}")
        if write and self.rng.random() < self.lost_request:
            raise TransientError(what, "connect failure")

    def _answered(self, what: str) -> None:
        if self.rng.random() < self.kill:
            raise Killed(f"after {what}")
        if self.rng.random() < self.lost_reply:
            raise AmbiguousOutcome(what, "the reply was lost")

    def _written(self, what: str, name: str) -> Node:
        self._asked(f"{what} {name}", write=True)
        if name not in self.all:
            raise PermanentError(f"{what} {name}", "Invalid node name")
        return self.all[name]

    def _view(self, node: Node) -> NodeView:
        if not node.readable:
            return NodeView(node.name, frozenset({UNREADABLE}))
        return NodeView(
            node.name,
            self.tokens(node),
            node.reason,
            node.reason_at,
            node.comment,
            node.extra,
            boot_time_s=node.boot_time if node.silent_since is None else None,
            partitions=node.partitions,
            gpus=8,
        )

    def nodes(self) -> Mapping[str, NodeView]:
        self._asked("read nodes")
        if self._before and self.rng.random() < self.old_read:
            return self._before
        self._before = {node.name: self._view(node) for node in self.all.values()}
        return self._before

    def jobs(self) -> tuple[JobView, ...]:
        self._asked("read jobs")
        return tuple(self.queue.values())

    def reservations(self) -> Mapping[str, ReservationView]:
        self._asked("read reservations")
        return dict(self.fences)

    def node(self, name: str) -> NodeView:
        self._asked(f"read node {name}")
        if name not in self.all:
            raise PermanentError(f"read node {name}", "not found")
        return self._view(self.all[name])

    def jobs_on(self, node: str) -> tuple[JobView, ...]:
        return tuple(job for job in self.jobs() if node in job.nodes)

    def drain(self, node: str, reason: str) -> None:
        found = self._written("drain", node)
        if found.person:
            raise Violation(f"drain of {node} over a person's {found.reason!r}")
        found.drain, found.reason, found.reason_at = True, reason, self.now
        self._answered("drain")

    def undrain(self, node: str) -> None:
        self._release("undrain", node)

    def resume(self, node: str) -> None:
        self._release("resume", node)

    def _release(self, what: str, name: str) -> None:
        node = self._written(what, name)
        if node.person:
            raise Violation(f"{what} of {name}, which a person drained")
        if node.unchecked and name not in self.lifted:
            raise Violation(f"{what} of {name}, unchecked after its {node.unchecked}")
        node.drain = False
        node.base = "IDLE" if what == "resume" else node.base
        node.reason = node.reason if node.base == "DOWN" else ""
        self._answered(what)

    def disrupt(self, what: str, name: str) -> Node:
        """Every rule about a reboot or a reimage; that it counts is up to the caller."""
        node = self._written(what, name)
        if self.jobs_of(name) or node.person or not self.fenced(name):
            raise Violation(f"{what} of {name}: jobs {self.jobs_of(name)}, {node}, fences {self.fences}")
        self.on_disruption(name, what)
        return node

    def reboot(self, node: str) -> None:
        found = self.disrupt("reboot", node)
        if found.gives_up_at is None:
            found.asked_to_reboot, found.unchecked, found.good_since = True, "reboot", None
        self._answered("reboot")

    def set_comment(self, node: str, text: str) -> None:
        found = self._written("comment", node)
        if "rack=12" in found.comment and "rack=12" not in text:
            raise Violation(f"somebody's Comment of {node} is lost")
        found.comment = text
        self._answered("comment")

    def set_extra(self, node: str, text: str) -> None:
        raise Violation(f"the daemon writes the Extra of {node}: {text}")

    def create_fence(self, name: str, node: str) -> None:
        self._written("fence", node)
        flags = frozenset({"MAINT", "IGNORE_JOBS"})
        made = ReservationView(name, (node,), self.now, self.now + 365 * 86400, flags)
        self.fences.setdefault(name, made)
        self._answered("fence")

    def renew_fence(self, name: str, end_s: float) -> None:
        self._asked("renew", write=True)
        self.fences[name] = replace(self.fences[name], end_s=end_s)

    def remove_fence(self, name: str) -> None:
        self._asked("unfence", write=True)
        self.fences.pop(name, None)
        self._answered("unfence")

    def requeue(self, job_id: str) -> None:
        raise Violation(f"requeue of {job_id}")

    def release(self, job_id: str) -> None:
        raise Violation(f"release of {job_id}")

    def config(self) -> Mapping[str, str]:
        return {}


_REIMAGE_SAYS = {
    "well": ProvisionState.DONE,
    "done without a boot": ProvisionState.DONE,
    "fails": ProvisionState.FAILED,
    "never ends": ProvisionState.RUNNING,
}


class Site:
    """A site's own ways: reimages of every kind, tickets and notices that fail, nodes that cannot be read."""

    KINDS = ("well", "well", "fails", "never ends", "done without a boot", "unknown", "refuses", "not now")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.reimages: dict[str, str] = {}
        self.tickets_fail = 0.0
        self.nobody_is_told = False
        self.paged: set[str] = set()

    def start(self, node: str, image: str, op_id: str) -> None:
        del image
        cluster = self.cluster
        if op_id in self.reimages:
            return
        found = cluster.disrupt("reimage", node)
        kind = cluster.rng.choice(self.KINDS)
        if kind == "refuses":
            raise PermanentError("reimage", "refused")
        if kind == "not now":
            raise TransientError("reimage", "not now")
        self.reimages[op_id] = kind
        found.unchecked, found.good_since = "reimage", None
        if kind in ("well", "never ends", "unknown"):
            found.silent_since, found.boots_at = cluster.now, cluster.now + 2 * cluster.boot_s
        cluster._answered("reimage")

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        del node
        kind = self.reimages.get(op_id, "")
        return ProvisionStatus(_REIMAGE_SAYS.get(kind, ProvisionState.UNKNOWN), kind)

    def run(self, node: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        del argv, timeout_s
        raise TransientError(f"run on {node}", "no way")

    def write(self, facts: TicketFacts) -> str:
        if self.cluster.rng.random() < self.tickets_fail:
            raise TransientError("ticket", "the command failed")
        return f"{facts.op_id}.md"

    def notify(self, notice: Notice) -> None:
        if self.cluster.rng.random() < self.cluster.kill:
            raise Killed("before a notice")
        if not self.nobody_is_told and notice.urgency == "page":
            self.paged.add(notice.key)
