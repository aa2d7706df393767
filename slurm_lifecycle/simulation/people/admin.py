"""The administrator with ideas of their own: planned maintenance, and deeds that nobody expects.

Each deed comes to each node by a stream of its own, so that one node more moves no deed on another.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm_lifecycle.core.formats import is_our_reason
from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.ownership import slurm_reason_code
from slurm_lifecycle.simulation.machines.faults import DAY_S, HOUR_S, KINDS, draw_fault
from slurm_lifecycle.simulation.people.technician import Technician
from slurm_lifecycle.simulation.people.toolbox import Toolbox
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused
from slurm_lifecycle.simulation.streams import stream

ACTOR = "admin"
MAINTENANCE_REASON = "maintenance: planned work"
FANS, BURNT, MINE, KERNEL = "fan noise", "smells burnt", "mine now", "kernel update"
_MY_REASONS = (MAINTENANCE_REASON, FANS, BURNT, MINE, KERNEL)
_OUT = frozenset({"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "REBOOT_REQUESTED", "REBOOT_ISSUED"})


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """What the administrator does.

    Attributes:
        maintenance_s: least and most time of planned work on a node, powered off.
        per_1000_node_days: rates of deeds by name: `drain` (and undrain later), `undrain` (one of ours),
            `down` (and resume later), `take_over` (their own reason in place of ours), `reserve` (a
            maintenance reservation of their own), `hold` (and release later), `remediate`, `return`,
            `reboot` (ASAP, back in service), `comment`.
        lasts_s: least and most time until a deed is undone.
    """

    maintenance_s: tuple[float, float] = (2 * HOUR_S, 8 * HOUR_S)
    per_1000_node_days: Mapping[str, float] = field(default_factory=dict)
    lasts_s: tuple[float, float] = (600.0, DAY_S)


class Admin:
    """Does planned maintenance when it comes due, and other deeds at the rates that are set.

    Once a day, a look at what is out under a reason of theirs, for no deed of theirs any more: newer releases
    keep the text of an old drain, and a node that dies later goes DOWN under it (measured).

    Args:
        technician: gets what does not run; without one it stays out.

    Attributes:
        done: deeds by name.
        in_hands: nodes under maintenance.
    """

    def __init__(self, tools: Toolbox, settings: AdminSettings, technician: Technician | None = None) -> None:
        """Maintenance from now on; deeds from `start`."""
        self.done: dict[str, int] = {}
        self.in_hands: set[str] = set()
        self._tools = tools
        self._settings = settings
        self._stopped = False
        self._technician = technician
        self._mine: dict[str, int] = {}
        self._deeds: Mapping[str, Callable[[str, float], None]] = {
            "drain": self._drain,
            "undrain": self._undrain,
            "down": self._down,
            "take_over": self._take_over,
            "reserve": self._reserve,
            "hold": self._hold,
            "remediate": self._asks(Verb.REMEDIATE),
            "return": self._asks(Verb.RETURN),
            "reboot": self._reboot,
            "comment": self._comment,
        }
        tools.machines.on_maintenance.append(self._maintain_soon)
        tools.timeline.after(DAY_S, self._round)

    def start(self) -> None:
        """From now on there are deeds."""
        for name in self._tools.machines.names():
            self.follow(name)

    def follow(self, node: str) -> None:
        """Deeds come to this node too."""
        for deed, rate in sorted(self._settings.per_1000_node_days.items()):
            if rate > 0:
                self._next(node, deed, rate / (1000.0 * DAY_S), 0)

    def stop(self) -> None:
        """No more deeds and no new maintenance; what was begun is undone in its time."""
        self._stopped = True

    def _next(self, node: str, deed: str, rate: float, number: int) -> None:
        rng = stream(self._tools.machines.seed, node, f"{deed}/{number}")
        gap_s, lasts_s = -math.log(1.0 - rng.random()) / rate, rng.uniform(*self._settings.lasts_s)

        def comes() -> None:
            if self._stopped or node not in self._tools.machines:
                return
            self._deeds[deed](node, lasts_s)
            self._next(node, deed, rate, number + 1)

        self._tools.timeline.after(gap_s, comes)

    def _count(self, deed: str) -> None:
        self.done[deed] = self.done.get(deed, 0) + 1

    def _state(self, node: str) -> tuple[frozenset[str], str]:
        view = self._tools.view(node)
        return (frozenset(), "") if view is None else (view.state, view.reason)

    # ---------------------------------------------------------------- planned maintenance

    def _maintain_soon(self, node: str) -> None:
        self._tools.timeline.after(0.0, lambda: self._maintain(node))

    def _maintain(self, node: str) -> None:
        state, _ = self._state(node)
        if self._stopped or not state or state & _OUT or node in self.in_hands:
            # It is out already: whoever has it may do the work as well.
            return
        if not self._tools.set_state(node, "DRAIN", MAINTENANCE_REASON, ACTOR):
            return
        self.in_hands.add(node)
        self._count("maintenance")
        machines, began = self._tools.machines, self._tools.timeline.now
        fault = draw_fault(
            KINDS["host_maintenance"],
            node,
            machines.machine(node).gpus,
            stream(machines.seed, node, f"maintenance/{began}"),
            at=began,
        )
        self._tools.take_jobs_off(node, fault)
        self._tools.when_idle(node, lambda: self._work_on(node, began))

    def _work_on(self, node: str, began: float) -> None:
        machines = self._tools.machines
        if node not in machines:
            self.in_hands.discard(node)
            return
        machines.power_off(node)
        low, high = self._settings.maintenance_s

        def over() -> None:
            if node in machines:
                machines.power_on(node)
                self._tools.when_up(node, 2 * HOUR_S, lambda _up: self._end_work(node))

        self._tools.timeline.after(self._tools.draw(node, f"work/{began}", low, high), over)

    def _end_work(self, node: str) -> None:
        self.in_hands.discard(node)
        self._mine[node] = self._mine.get(node, 0) + 1
        # slurmd registers within a moment of the boot.
        self._tools.timeline.after(60.0, lambda: self._undo(node, MAINTENANCE_REASON))

    def _undo(self, node: str, reason: str) -> None:
        """Give the node back where it is out by this reason, or by what Slurm made of it meanwhile."""
        state, now = self._state(node)
        self._mine[node] = max(0, self._mine.get(node, 0) - 1)
        if state & {"DRAIN", "DOWN"} and (now.startswith(reason) or slurm_reason_code(now)):
            self._tools.give_back(node)

    # ---------------------------------------------------------------- once a day

    def _round(self) -> None:
        self._tools.timeline.after(DAY_S, self._round)
        for node, view in sorted(self._tools.ctld.views().items()):
            forgotten = view.state & {"DRAIN", "DOWN"} and view.reason.startswith(_MY_REASONS)
            if forgotten and node not in self.in_hands and not self._mine.get(node):
                self._put_right(node)

    def _put_right(self, node: str) -> None:
        machines = self._tools.machines
        if node in machines and machines.usable(node):
            self._tools.give_back(node)
        elif node in machines and self._technician is not None:
            self._technician.take(
                node, f"found{self._tools.timeline.now:.0f}", then=lambda: self._tools.give_back(node)
            )

    # ---------------------------------------------------------------- deeds

    def _did(self, deed: str, node: str, lasts_s: float, reason: str) -> None:
        """Remember to undo it."""
        self._count(deed)
        self._mine[node] = self._mine.get(node, 0) + 1
        self._tools.timeline.after(lasts_s, lambda: self._undo(node, reason))

    def _ask(self, verb: Verb, node: str) -> None:
        self._count(verb.value)
        self._tools.ask(verb, node, ACTOR, "because")

    def _asks(self, verb: Verb) -> Callable[[str, float], None]:
        def asks(node: str, lasts_s: float) -> None:
            del lasts_s
            self._ask(verb, node)

        return asks

    def _drain(self, node: str, lasts_s: float) -> None:
        state, _ = self._state(node)
        if state & {"DRAIN", "DOWN"} or not self._tools.set_state(node, "DRAIN", FANS, ACTOR):
            return
        self._did("drain", node, lasts_s, FANS)

    def _undrain(self, node: str, lasts_s: float) -> None:
        del lasts_s
        state, reason = self._state(node)
        if "DRAIN" in state and is_our_reason(reason):
            self._count("undrain")
            self._tools.give_back(node)

    def _down(self, node: str, lasts_s: float) -> None:
        if self._tools.set_state(node, "DOWN", BURNT, ACTOR):
            self._did("down", node, lasts_s, BURNT)

    def _take_over(self, node: str, lasts_s: float) -> None:
        state, reason = self._state(node)
        if "DRAIN" in state and is_our_reason(reason):
            self._tools.ctld.set_reason(node, MINE)
            self._did("take_over", node, lasts_s, MINE)

    def _reserve(self, node: str, lasts_s: float) -> None:
        now = self._tools.timeline.now
        name = f"maint_{node}_{int(now)}"
        try:
            self._tools.ctld.create_reservation(
                name, (node,), now, now + lasts_s, frozenset({"MAINT", "IGNORE_JOBS"}), ("root",)
            )
            self._count("reserve")
        except SlurmRefused:
            return

    def _hold(self, node: str, lasts_s: float) -> None:
        self._ask(Verb.HOLD, node)
        self._tools.timeline.after(lasts_s, lambda: self._ask(Verb.RELEASE, node))

    def _reboot(self, node: str, lasts_s: float) -> None:
        del lasts_s
        try:
            self._tools.ctld.reboot(node, asap=True, nextstate="RESUME", reason=KERNEL)
            self._count("reboot")
        except SlurmRefused:
            return

    def _comment(self, node: str, lasts_s: float) -> None:
        del lasts_s
        view = self._tools.view(node)
        if view is not None and "rack=12" not in view.comment:
            self._count("comment")
            self._tools.ctld.set_comment(node, f"rack=12 {view.comment}".rstrip())
