"""Reservations: who may start jobs where and until when, and what happens at their end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_lifecycle.core.model import ReservationView
from slurm_lifecycle.simulation.slurmctld.jobs import Jobs
from slurm_lifecycle.simulation.slurmctld.records import MAINTENANCE, RESERVED, Job, Node
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused, user_name
from slurm_lifecycle.simulation.slurmctld.state import State
from slurm_lifecycle.simulation.timeline import Event

# `UNLIMITED` is stored as this (measured).
UNLIMITED_S = 365 * 86_400.0
# The token MAINTENANCE shows so long after the reservation began; it works at once (measured).
_SHOWN_AFTER_S = (1.0, 5.0)
# One whose end has come goes so much later, with the jobs inside (measured).
_GONE_AFTER_S = (8.0, 18.0)
# With an empty one that is quicker: a waiting job started 61 s after the begin of a minute's reservation.
_PASS_AFTER_END_S = 0.1


@dataclass(slots=True)
class Reservation:
    """One reservation's record."""

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    flags: frozenset[str]
    users: tuple[str, ...]
    mask: int = 0
    comment: str = ""
    events: list[Event] = field(default_factory=list)

    @property
    def maintenance(self) -> bool:
        """Whether it bears MAINT."""
        return "MAINT" in self.flags

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Whether it lasts in some part of that time."""
        return self.start_s < end_s and start_s < self.end_s


class Reservations:
    """The reservation part."""

    def __init__(self, state: State, jobs: Jobs) -> None:
        self._state = state
        self._jobs = jobs
        self._all: dict[str, Reservation] = {}

    # ------------------------------------------------------------ what the scheduler asks

    def open_to(self, job: Job) -> int:
        """A mask of the nodes that no reservation keeps from a job, were it to start now."""
        now = self._state.timeline.now
        end_s = now + job.spec.time_limit_s
        own = self._all.get(job.spec.reservation) if job.spec.reservation else None
        if job.spec.reservation:
            allowed = own is not None and own.start_s <= now < own.end_s
            if own is None or not allowed or user_name(job.spec.uid) not in own.users:
                return 0
            if own.maintenance:
                # Nothing laid over it keeps its jobs off; others give way to whatever crosses them.
                return own.mask
            mask = own.mask
        else:
            mask = -1
        for other in self._all.values():
            if other is own or not other.overlaps(now, end_s):
                continue
            mask &= ~other.mask
        return mask

    def maintain(self, node: Node) -> bool:
        """Whether a MAINT reservation stands over a node now."""
        now = self._state.timeline.now
        return any(
            one.maintenance and one.mask & node.bit and one.start_s <= now < one.end_s
            for one in self._all.values()
        )

    # ------------------------------------------------------------ hands

    def create(
        self,
        name: str,
        nodes: Sequence[str],
        start_s: float,
        end_s: float,
        *,
        flags: Sequence[str] | frozenset[str],
        users: Sequence[str],
    ) -> None:
        """`scontrol create reservation`."""
        state = self._state
        if name in self._all:
            raise SlurmRefused("Duplicate reservation name")
        known = tuple(state.node(one).name for one in nodes)
        if not known:
            raise SlurmRefused("Invalid node name specified")
        if not users or (state.release.refuses_nobody and "nobody" in users):
            raise SlurmRefused("Invalid user id")
        made = Reservation(name, known, start_s, end_s, frozenset(flags), tuple(users))
        if math.isinf(end_s):
            made.end_s = start_s + UNLIMITED_S
        made.mask = state.mask_of(known)
        self._check_room(made)
        self._all[name] = made
        self._changed(made)

    def _check_room(self, made: Reservation) -> None:
        """Others' reservations and jobs whose limit crosses the start (measured: refused as busy)."""
        if not made.maintenance and "OVERLAP" not in made.flags:
            for other in self._all.values():
                crossing = other.mask & made.mask and other.overlaps(made.start_s, made.end_s)
                if other is not made and crossing and not other.maintenance:
                    raise SlurmRefused("Requested nodes are busy")
        if "IGNORE_JOBS" in made.flags:
            return
        for job in self._state.jobs.values():
            if job.state not in ("RUNNING", "SUSPENDED") or not job.mask & made.mask:
                continue
            if job.limit is None or job.limit.at > made.start_s:
                raise SlurmRefused("Requested nodes are busy")

    def update(
        self,
        name: str,
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        duration_s: float | None = None,
        nodes: Sequence[str] | None = None,
        add_nodes: Sequence[str] = (),
        remove_nodes: Sequence[str] = (),
        comment: str | None = None,
    ) -> None:
        """`scontrol update ReservationName=`."""
        found = self._find(name)
        state = self._state
        if (add_nodes or remove_nodes or comment is not None) and not state.release.edits_reservations:
            raise SlurmRefused("Unknown keyword")
        names = found.nodes if nodes is None else tuple(nodes)
        names = tuple(one for one in (*names, *add_nodes) if one not in remove_nodes)
        known = tuple(dict.fromkeys(state.node(one).name for one in names))
        now = state.timeline.now
        if start_s is not None and found.start_s <= now:
            raise SlurmRefused("Requested reservation is in use")
        self._show(found, on=False)
        if start_s is not None:
            found.end_s += start_s - found.start_s
            found.start_s = start_s
        if duration_s is not None:
            found.end_s = found.start_s + (UNLIMITED_S if math.isinf(duration_s) else duration_s)
        if end_s is not None:
            found.end_s = max(end_s, now)
        found.comment = found.comment if comment is None else comment
        found.nodes, found.mask = known, state.mask_of(known)
        self._changed(found)

    def delete(self, name: str) -> None:
        """`scontrol delete ReservationName=`; refused with a job, running or pending, in it (measured)."""
        found = self._find(name)
        if self._jobs.of_reservation(name):
            raise SlurmRefused("Requested reservation is in use")
        self._remove(found)

    def _find(self, name: str) -> Reservation:
        found = self._all.get(name)
        if found is None:
            raise SlurmRefused("Requested reservation is invalid")
        return found

    def forget_node(self, node: Node) -> None:
        """A node leaves the cluster."""
        for one in list(self._all.values()):
            if one.mask & node.bit:
                one.nodes = tuple(name for name in one.nodes if name != node.name)
                one.mask &= ~node.bit
                if one.nodes:
                    self._publish(one)
                else:
                    self._remove(one)

    # ------------------------------------------------------------ time

    def _changed(self, one: Reservation) -> None:
        """Plan anew what will happen to it."""
        state = self._state
        for event in one.events:
            event.cancel()
        now, at = state.timeline.now, state.timeline.at
        shown_at = max(one.start_s, now) + state.rng.uniform(*_SHOWN_AFTER_S)
        one.events = [
            at(one.end_s + _PASS_AFTER_END_S, state.kick),
            at(one.end_s + state.rng.uniform(*_GONE_AFTER_S), lambda: self._ends(one)),
        ]
        if shown_at < one.end_s:
            one.events.append(at(shown_at, lambda: self._show(one, on=True)))
        self._publish(one)
        state.kick()

    def _publish(self, one: Reservation) -> None:
        state = self._state
        view = ReservationView(one.name, one.nodes, one.start_s, one.end_s, one.flags, one.users)
        # A mapping that was given out never changes.
        state.reservations = {**state.reservations, one.name: view}
        for told in state.on_reservation_change:
            told(one.name)

    def _ends(self, one: Reservation) -> None:
        self._jobs.lose_reservation(one.name, live_on="FLEX" in one.flags)
        self._remove(one)

    def _remove(self, one: Reservation) -> None:
        state = self._state
        for event in one.events:
            event.cancel()
        del self._all[one.name]
        state.reservations = {name: view for name, view in state.reservations.items() if name != one.name}
        self._show(one, on=False)
        for told in state.on_reservation_change:
            told(one.name)
        state.kick()

    def _show(self, one: Reservation, *, on: bool) -> None:
        """Set or clear the tokens of the nodes, as far as no other reservation bears them."""
        mine = (MAINTENANCE if one.maintenance else 0) | RESERVED
        for node in self._state.names_in(one.mask):
            if node.name not in self._state.nodes:
                continue
            flags = node.flags | mine if on else node.flags & ~mine | self._others(node, one)
            if flags != node.flags:
                node.flags = flags
                self._state.node_changed(node)

    def _others(self, node: Node, one: Reservation) -> int:
        now = self._state.timeline.now
        flags = 0
        for other in self._all.values():
            if other is not one and other.mask & node.bit and other.start_s <= now < other.end_s:
                flags |= RESERVED | (MAINTENANCE if other.maintenance else 0)
        return flags & node.flags
