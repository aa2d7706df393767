"""The books of a run: who was out of service, why, for how long, and what was being done about it.

Event-driven: a node to which nothing happens costs nothing. Causes are taken from the truth of the machines,
not from what agent or daemon believed.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from slurm_lifecycle.core.formats import is_our_reason
from slurm_lifecycle.core.model import Incident, NodeView, Rung, Step
from slurm_lifecycle.core.plan import Drain, StartAttempt, Undrain
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.lab.results import Repair, RunResult, Sample
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.timeline import Timeline

HOUR_S = 3600.0
FALSE_ALARM, MAINTENANCE, UNKNOWN = "false alarm", "host maintenance", "unknown"
# A fault that is over may still be why a node is out: its agent drained, or Slurm took a while to see it.
STILL_TO_BLAME_S = 2 * HOUR_S

_OUT_TOKENS = "DRAIN DOWN FAIL NOT_RESPONDING REBOOT_REQUESTED REBOOT_ISSUED INVALID_REG MAINTENANCE UNKNOWN"
# With one of these no job starts on a node; a job that runs there may go on.
OUT = frozenset(_OUT_TOKENS.split())
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_REBOOTING = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED"})
_WORK = frozenset({"reboot", "reimage", "verify", "gpu_reset", "power"})
# Where people work on a node; what they did is what it goes back after.
_HANDS = frozenset({"rma", "person"})
_TICKETS = frozenset({Rung.RMA, Rung.RESEAT})


def _nobodys(node: str) -> str:
    del node
    return ""


class Outage:
    """A node out of service, from then on until it is back.

    Attributes:
        began_at: when its fault began; the node itself may have gone out later.
        since, rung: what has been going on since when.
        hands: `rma` or `person` where one has had it in hand, "" otherwise.
    """

    __slots__ = ("began_at", "cause", "hands", "rung", "since")

    def __init__(self, cause: str, began_at: float, rung: str, now: float) -> None:
        """It goes out now."""
        self.cause = cause
        self.began_at = began_at
        self.rung = rung
        self.since = now
        self.hands = rung if rung in _HANDS else ""

    def enter(self, rung: str) -> None:
        """Something else goes on from now on."""
        self.rung = rung
        if rung in _HANDS and self.hands != "rma":
            self.hands = rung


class Accounts:
    """Keeps the books from the beginning of a run; `result` closes them.

    Args:
        acting: the daemon acts; else its incidents say what it would do, not what is done.
        in_persons_hands: what a person does about a node, "" for nothing: `rma` while a part is on its way.
    """

    def __init__(
        self,
        timeline: Timeline,
        ctld: Slurmctld,
        machines: Machines,
        *,
        acting: bool,
        in_persons_hands: Callable[[str], str] = _nobodys,
    ) -> None:
        """Listens from now on."""
        self.actions: dict[str, int] = {}
        self.pages = 0
        self.false_drains = 0
        self.peak_out = 0
        self.peak_working = 0
        self.repairs: list[Repair] = []
        self.samples: list[Sample] = []
        self._timeline = timeline
        self._began = timeline.now
        self._ctld = ctld
        self._nodes = len(ctld.views())
        self._machines = machines
        self._acting = acting
        self._in_hands = in_persons_hands
        self._out: dict[str, Outage] = {}
        self._incidents: dict[str, Incident] = {}
        self._by_rung: dict[str, int] = {}
        self._cause_s: dict[str, float] = {}
        self._rung_s: dict[str, float] = {}
        ctld.on_node_change.append(self._changed)
        timeline.after(HOUR_S, self._sample)
        self._samples_now()

    # ------------------------------------------------------------ what is told

    def ticked(self, result: TickResult) -> None:
        """The daemon ticked: what it did, and how its incidents stand."""
        for done in result.done:
            if done.result in ("done", "ambiguous"):
                self._count(done.action)
        for incident in result.plan.incidents:
            if incident.step is Step.CLOSED:
                self._incidents.pop(incident.node, None)
            else:
                self._incidents[incident.node] = incident
            if incident.node in self._out:
                self._move(incident.node)

    def acted(self, what: str) -> None:
        """A person did something that a daemon would have done."""
        self.actions[what] = self.actions.get(what, 0) + 1

    def paged(self) -> None:
        """A person was called."""
        self.pages += 1

    def look(self, node: str) -> None:
        """A person took a node in hand or let it go."""
        if node in self._out:
            self._move(node)

    def cause_among(self, nodes: Iterable[str]) -> str:
        """Why one of some nodes is out, "" where none is."""
        return next((self._out[name].cause for name in nodes if name in self._out), "")

    # ------------------------------------------------------------ nodes

    def _changed(self, name: str) -> None:
        out = name in self._out
        view = self._ctld.view(name)
        if view.state.isdisjoint(OUT):
            if out:
                self._back(name)
        elif out:
            self._move(name)
        else:
            self._goes(name, view)

    def _goes(self, name: str, view: NodeView) -> None:
        now = self._timeline.now
        cause, began_at = self._why(name, view)
        if cause == FALSE_ALARM:
            self.false_drains += 1
        rung = self._rung(name, view)
        self._out[name] = Outage(cause, began_at, rung, now)
        self._shift(rung, 1)
        self.peak_out = max(self.peak_out, len(self._out))

    def _move(self, name: str) -> None:
        outage, view = self._out[name], self._ctld.view(name)
        if outage.cause == UNKNOWN:
            # Slurm may have taken the node out before anybody said why.
            outage.cause, began_at = self._why(name, view)
            outage.began_at = min(outage.began_at, began_at)
        rung = self._rung(name, view)
        if rung != outage.rung:
            self._flush(outage)
            self._shift(outage.rung, -1)
            self._shift(rung, 1)
            outage.enter(rung)

    def _back(self, name: str) -> None:
        outage = self._out.pop(name)
        self._flush(outage)
        self._shift(outage.rung, -1)
        self.repairs.append(
            self._repair(name, outage, self._timeline.now - self._began, self._cure(name, outage))
        )

    def _repair(self, name: str, outage: Outage, ended_s: float | None, cured_by: str) -> Repair:
        return Repair(name, outage.cause, max(0.0, outage.began_at - self._began), ended_s, cured_by)

    def _cure(self, name: str, outage: Outage) -> str:
        """What the node goes back after."""
        incident = self._incidents.get(name) if self._acting else None
        if incident is not None and not outage.hands and incident.cured_by:
            return incident.cured_by
        return self._in_hands(name) or outage.hands or "itself"

    def _flush(self, outage: Outage) -> None:
        now = self._timeline.now
        spent = now - outage.since
        outage.since = now
        if spent > 0.0:
            self._cause_s[outage.cause] = self._cause_s.get(outage.cause, 0.0) + spent
            self._rung_s[outage.rung] = self._rung_s.get(outage.rung, 0.0) + spent

    def _shift(self, rung: str, by: int) -> None:
        self._by_rung[rung] = self._by_rung.get(rung, 0) + by
        if by > 0 and rung in _WORK:
            self.peak_working = max(self.peak_working, sum(self._by_rung.get(one, 0) for one in _WORK))

    # ------------------------------------------------------------ why, and what is done

    def _why(self, name: str, view: NodeView) -> tuple[str, float]:
        """The cause that took a node out, and since when it is there."""
        now, machine = self._timeline.now, self._machines.machine(name)
        faults = [one for _, one in sorted(machine.faults.items())]
        if faults:
            first = min(faults, key=lambda one: (not one.shown, one.began_at))
            # Of a fault that was thought mended the way begins when it is back.
            since = machine.last_fault_at if first.shows > 1 else first.began_at
            return first.kind.cause, now if since is None else since
        last = machine.last_fault_at
        if last is not None and now - last <= STILL_TO_BLAME_S:
            return machine.last_cause, last
        if is_our_reason(view.reason):
            return FALSE_ALARM, now
        if "DRAIN" in view.state and view.reason:
            return MAINTENANCE, now
        return UNKNOWN, now

    def _rung(self, name: str, view: NodeView) -> str:
        """What is going on with a node that is out."""
        if view.state & _BUSY:
            return "draining"
        hands = self._in_hands(name)
        if hands:
            return hands
        incident = self._incidents.get(name)
        if incident is not None and self._acting and incident.hold != "foreign":
            return _rung_of(incident)
        if view.state & _REBOOTING:
            return "reboot"
        drained = "DRAIN" in view.state
        return "person" if drained and not (self._acting and is_our_reason(view.reason)) else "waiting"

    def _count(self, action: object) -> None:
        if isinstance(action, StartAttempt):
            self.acted(action.attempt.rung.value)
        elif isinstance(action, Drain):
            self.acted("drain")
        elif isinstance(action, Undrain):
            self.acted("return")

    # ------------------------------------------------------------ figures

    def _sample(self) -> None:
        self._samples_now()
        self._timeline.after(HOUR_S, self._sample)

    def _samples_now(self) -> None:
        counts = {rung: count for rung, count in sorted(self._by_rung.items()) if count}
        nodes = {"in_service": self._nodes - len(self._out), **counts}
        self.samples.append(Sample(self._timeline.now - self._began, nodes))

    def result(self, frame: RunResult) -> RunResult:
        """The frame of a run with these books in it; those still out stay open."""
        for outage in self._out.values():
            self._flush(outage)
        still = [self._repair(name, outage, None, "") for name, outage in sorted(self._out.items())]
        return replace(
            frame,
            out_hours_by_cause={key: value / HOUR_S for key, value in sorted(self._cause_s.items())},
            out_hours_by_rung={key: value / HOUR_S for key, value in sorted(self._rung_s.items())},
            repairs=(*self.repairs, *still),
            false_drains=self.false_drains,
            actions=dict(sorted(self.actions.items())),
            peak_working=self.peak_working,
            peak_out=self.peak_out,
            pages=self.pages,
            samples=tuple(self.samples),
        )


def _rung_of(incident: Incident) -> str:
    if incident.step is Step.DRAINING:
        return "waiting"
    if incident.step is Step.REPAIRING:
        if incident.rung in _TICKETS:
            return "rma"
        return incident.rung.value if incident.rung is not None else "waiting"
    if incident.step in (Step.VERIFYING, Step.RETURNING):
        return "verify"
    if incident.step is Step.AWAITING_PERSON and incident.rung in _TICKETS:
        return "rma"
    return "person"
