"""What all parts of the simulated slurmctld share: its tables, the masks of the scheduler, who is told."""

import random
from collections.abc import Callable, Mapping, Sequence

from slurm_lifecycle.core.model import JobView, NodeView, ReservationView
from slurm_lifecycle.simulation.slurmctld.records import (
    ALLOCATED,
    COMPLETING,
    DOWN,
    DRAIN,
    FAIL,
    INVALID_REG,
    NOT_RESPONDING,
    UNKNOWN,
    UNUSABLE,
    Job,
    Node,
    tokens,
)
from slurm_lifecycle.simulation.slurmctld.release import RELEASES
from slurm_lifecycle.simulation.slurmctld.settings import (
    NodeSide,
    NodeSpec,
    QuietSide,
    SlurmConf,
    SlurmRefused,
)
from slurm_lifecycle.simulation.timeline import Timeline

# Without a boot time of its own, which comes with the registration.
_UNREGISTERED = NOT_RESPONDING | UNKNOWN


class State:
    """The tables. Whoever changes a record says so by `node_changed` or `job_changed`.

    Attributes:
        free: bits of the nodes where a job could start now, reservations aside.
        usable: the same, and those that a job holds now.
        partitions: bits of each partition's nodes.
        by_bit: nodes by the place of their bit.
        kick: asks for a pass of the scheduler soon.
        reservations: their views by name; kept by the reservations' part.
    """

    def __init__(
        self, timeline: Timeline, specs: Sequence[NodeSpec], conf: SlurmConf, rng: random.Random
    ) -> None:
        self.timeline = timeline
        self.conf = conf
        self.release = RELEASES[conf.release]
        self.rng = rng
        self.side: NodeSide = QuietSide()
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.free = 0
        self.usable = 0
        self.partitions: dict[str, int] = {}
        self.by_bit: list[Node] = []
        self.reservations: dict[str, ReservationView] = {}
        self.on_job_start: list[Callable[[Job], None]] = []
        self.on_job_end: list[Callable[[Job, str], None]] = []
        self.on_node_change: list[Callable[[str], None]] = []
        self.on_reservation_change: list[Callable[[str], None]] = []
        self.kick: Callable[[], None] = lambda: None
        self.next_job = 1000
        self._node_views: dict[str, NodeView] = {}
        self._snapshot: dict[str, NodeView] | None = None
        self._stale: dict[str, None] = {}
        self._job_views: tuple[JobView, ...] | None = ()
        for spec in specs:
            self.add_node(spec)

    # ------------------------------------------------------------ nodes

    @property
    def ping_s(self) -> float:
        """Seconds between two rounds of pings."""
        return self.conf.slurmd_timeout_s / 3 if self.conf.ping_s is None else self.conf.ping_s

    def add_node(self, spec: NodeSpec) -> Node:
        """A node more, in service."""
        if spec.name in self.nodes:
            raise SlurmRefused(f"Duplicate NodeName {spec.name}")
        node = Node(spec, 1 << len(self.by_bit), self.timeline.now)
        self.by_bit.append(node)
        self.nodes[spec.name] = node
        for partition in spec.partitions:
            self.partitions[partition] = self.partitions.get(partition, 0) | node.bit
        self.node_changed(node)
        return node

    def drop_node(self, node: Node) -> None:
        """A node less; its place stays empty."""
        node.stop(*node.timers)
        for partition in node.spec.partitions:
            self.partitions[partition] &= ~node.bit
        self.free &= ~node.bit
        self.usable &= ~node.bit
        del self.nodes[node.name]
        self._stale[node.name] = None
        for told in self.on_node_change:
            told(node.name)

    def node(self, name: str) -> Node:
        """A node that somebody named."""
        found = self.nodes.get(name)
        if found is None:
            raise SlurmRefused(f"Invalid node name specified: {name}")
        return found

    def mask_of(self, names: Sequence[str] | frozenset[str]) -> int:
        """The bits of nodes; names that are no nodes count for nothing."""
        mask = 0
        for name in names:
            node = self.nodes.get(name)
            if node is not None:
                mask |= node.bit
        return mask

    def names_in(self, mask: int) -> list[Node]:
        """The nodes of a mask, in their order."""
        found = []
        while mask:
            low = mask & -mask
            found.append(self.by_bit[low.bit_length() - 1])
            mask ^= low
        return found

    def node_changed(self, node: Node) -> None:
        """Something that others can see of a node is another; once a change."""
        node.view = None
        self._stale[node.name] = None
        bit = node.bit
        if node.flags & UNUSABLE:
            self.usable &= ~bit
            self.free &= ~bit
        else:
            self.usable |= bit
            if node.job is None:
                if not self.free & bit:
                    self.free |= bit
                    self.kick()
            else:
                self.free &= ~bit
        for told in self.on_node_change:
            told(node.name)

    def view(self, node: Node) -> NodeView:
        """A node as clients see it; the same object until it changes."""
        if node.view is None:
            rest = (node.reason, node.reason_at_s, node.comment, node.extra, node.slurmd_start_s)
            if rest != node.rest:
                node.rest = rest
                node.seen.clear()
            # A node goes round between idle, allocated and completing with all else as it was.
            node.view = node.seen.get(node.flags)
            if node.view is None:
                node.view = node.seen[node.flags] = self._view(node)
        return node.view

    def _view(self, node: Node) -> NodeView:
        registered = not node.flags & _UNREGISTERED
        return NodeView(
            name=node.name,
            state=tokens(node.flags),
            reason=node.reason,
            reason_at_s=node.reason_at_s,
            comment=node.comment,
            extra=node.extra,
            boot_time_s=node.boot_time_s if registered else None,
            slurmd_start_s=node.slurmd_start_s if registered else None,
            partitions=node.spec.partitions,
            gpus=node.spec.gpus,
            version=self.release.version,
        )

    def views(self) -> Mapping[str, NodeView]:
        """All nodes, as they are now and will be: the mapping follows what happens."""
        if self._stale:
            for name in self._stale:
                node = self.nodes.get(name)
                if node is None:
                    self._node_views.pop(name, None)
                else:
                    self._node_views[name] = self.view(node)
            self._stale = {}
            self._snapshot = None
        return self._node_views

    def snapshot(self) -> Mapping[str, NodeView]:
        """All nodes, as they are now; the same mapping until one changes."""
        views = self.views()
        if self._snapshot is None:
            self._snapshot = dict(views)
        return self._snapshot

    # ------------------------------------------------------------ reasons

    def set_reason(self, node: Node, reason: str) -> None:
        """Write a Reason, as of now."""
        node.reason = reason
        node.reason_at_s = self.timeline.now if reason else None

    def append_reason(self, node: Node, text: str) -> None:
        """Slurm adds to a text that is there, once."""
        said = node.reason
        if not said or (self.release.replaces_repeated and text in said):
            said = text
        elif f" : {text}" not in said:
            said = f"{said} : {text}"
        self.set_reason(node, said)

    def forget_reason(self, node: Node) -> None:
        """A node that is neither down nor drained bears no Reason, on most releases (measured)."""
        if not node.flags & (DOWN | DRAIN | FAIL) and not self.release.keeps_stale_reason:
            node.reason, node.reason_at_s = "", None

    def drain_by_slurm(self, node: Node, reason: str) -> None:
        """Slurm's own drain: nothing to a node that is drained already, and no text over one that is there.

        So a stale Reason becomes that of the new drain. The caller tells of the change.
        """
        if node.flags & DRAIN:
            return
        node.flags |= DRAIN
        if not node.reason or node.reason.startswith("Not responding"):
            self.set_reason(node, reason)

    # ------------------------------------------------------------ jobs

    def job(self, job_id: str) -> Job:
        """A job that somebody named."""
        found = self.jobs.get(job_id)
        if found is None:
            raise SlurmRefused("Invalid job id specified")
        return found

    def job_changed(self, job: Job) -> None:
        """Something that others can see of a job is another."""
        job.view = None
        self._job_views = None

    def queue_changed(self) -> None:
        """A job came or left."""
        self._job_views = None

    def job_view(self, job: Job) -> JobView:
        """A job as clients see it: while it completes, only the nodes that are not rid of it."""
        if job.view is None:
            nodes = tuple(job.left) if job.state == "COMPLETING" else job.nodes
            job.view = JobView(job.id, job.state, nodes, job.spec.uid, job.restarts, job.reason)
        return job.view

    def job_views(self) -> tuple[JobView, ...]:
        """All jobs; the same tuple until one changes."""
        if self._job_views is None:
            self._job_views = tuple(self.job_view(job) for job in self.jobs.values())
        return self._job_views

    def take_node(self, node: Node, job: Job) -> None:
        """A job starts on a node; that deletes any Reason (measured)."""
        node.job = job
        node.flags |= ALLOCATED
        node.reason, node.reason_at_s = "", None
        self.node_changed(node)

    def end_on_node(self, node: Node) -> None:
        """The job is over on a node, and not gone from it."""
        node.flags = node.flags & ~ALLOCATED | COMPLETING
        self.node_changed(node)

    def lose_job(self, node: Node) -> None:
        """No job holds the node any more. The caller tells of the change."""
        node.job = None
        node.flags &= ~(ALLOCATED | COMPLETING)

    def in_service(self, node: Node) -> bool:
        """Whether Slurm would start a job there once it is free."""
        return not node.flags & (UNUSABLE | INVALID_REG)
