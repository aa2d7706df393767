"""Operation by hand: agents drain, the daemon only watches, and a person takes every node that is out.

Some time after a node went out somebody looks at it, reboots it, sees whether the fault is gone, and gives it
back. Where it is not gone: a fault of software is reinstalled once, everything else is sent in.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from slurm_lifecycle.core.fault_catalog import FaultClass, Level, fault_for
from slurm_lifecycle.core.formats import is_our_reason, reason_code
from slurm_lifecycle.core.model import NodeView
from slurm_lifecycle.core.ownership import slurm_reason_code
from slurm_lifecycle.simulation.machines.faults import DAY_S, HOUR_S, MINUTE_S
from slurm_lifecycle.simulation.people.technician import Technician
from slurm_lifecycle.simulation.people.toolbox import Toolbox
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused

ACTOR = "operator"
_REASON = "operator: "
_OUT = frozenset({"DRAIN", "DOWN", "FAIL"})


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How fast a person is.

    Attributes:
        response_s: from the moment a node is out until somebody looks, on average; drawn between half and one
            and a half of it.
        work_s: hands-on time for one node; one person works on one node at a time.
        people: how many persons.
        boot_limit_s: a node that is not back after so long will not come.
        reinstall_s: for a reimage by hand, boot not counted.
        drain_s: until somebody drains a node that kills jobs and that nobody has drained.
        remember_s: what comes back within this after a repair "mended" it is not repaired the same way again.
    """

    response_s: float = 2 * HOUR_S
    work_s: float = 15 * MINUTE_S
    people: int = 1
    boot_limit_s: float = HOUR_S
    reinstall_s: float = 40 * MINUTE_S
    drain_s: float = 10 * MINUTE_S
    remember_s: float = 7 * DAY_S


@dataclass(slots=True)
class _Case:
    """One node in hand.

    Attributes:
        phase: what is going on: `waiting`, `draining`, `reboot`, `reimage`, `verify`, `rma`, `person`.
        did: the last repair.
    """

    node: str
    number: int
    began: float
    phase: str = "waiting"
    did: str = ""
    code: str = ""
    reinstalled: bool = False


class Operator:
    """Takes every node that is out for a fault, and only those.

    Attributes:
        on_phase: told of a node whose case is in another phase now, or over.
        on_action: told of `drain`, `reboot`, `reimage`, `rma`, `return`, with the node.
        cases: how many there were.
    """

    def __init__(self, tools: Toolbox, technician: Technician, settings: OperatorSettings) -> None:
        """Watches from now on."""
        self.on_phase: list[Callable[[str], None]] = []
        self.on_action: list[Callable[[str, str], None]] = []
        self.cases = 0
        self._tools = tools
        self._technician = technician
        self._settings = settings
        self._open: dict[str, _Case] = {}
        self._past: dict[tuple[str, str], float] = {}
        self._extra: dict[str, str] = {}
        self._free_at = [0.0] * settings.people
        tools.ctld.on_node_change.append(self._changed)

    def phase(self, node: str) -> str:
        """What is being done about a node, "" where nobody has it in hand."""
        case = self._open.get(node)
        return case.phase if case is not None else ""

    # ---------------------------------------------------------------- what needs a person

    def _changed(self, node: str) -> None:
        if node in self._open:
            return
        view = self._tools.view(node)
        if view is None:
            return
        # Most changes are jobs that come and go: nothing is read twice for them.
        said_nothing_new = self._extra.get(node) == view.extra
        self._extra[node] = view.extra
        if (view.state & _OUT or not said_nothing_new) and self._needs_a_person(view):
            self._open_case(node)

    def _needs_a_person(self, view: NodeView | None) -> bool:
        if view is None:
            return False
        if view.state & _OUT:
            ours = is_our_reason(view.reason) or view.reason.startswith(_REASON)
            return ours or bool(slurm_reason_code(view.reason))
        return self._agent_says_drain(view.name)

    def _agent_says_drain(self, node: str) -> bool:
        verdict = self._tools.verdict(node)
        return verdict is not None and verdict.level is Level.DRAIN

    def _open_case(self, node: str) -> None:
        self.cases += 1
        case = self._open[node] = _Case(node, self.cases, self._tools.timeline.now)
        settings = self._settings
        delay_s = self._tools.draw(
            node, f"case/{case.began}", 0.5 * settings.response_s, 1.5 * settings.response_s
        )
        self._tools.timeline.after(delay_s, lambda: self._hands_on(case, self._look))
        self._tools.timeline.after(
            self._tools.draw(node, f"drain/{case.began}", 0.5 * settings.drain_s, 1.5 * settings.drain_s),
            lambda: self._go_on(case, self._drain_early),
        )
        self._enter(case, "waiting")

    def _hands_on(self, case: _Case, then: Callable[[_Case], object]) -> None:
        """When somebody has time for it."""
        who = self._free_at.index(min(self._free_at))
        begins = max(self._tools.timeline.now, self._free_at[who])
        self._free_at[who] = begins + self._settings.work_s
        self._tools.timeline.at(self._free_at[who], lambda: self._go_on(case, then))

    def _go_on(self, case: _Case, then: Callable[[_Case], object]) -> None:
        if self._open.get(case.node) is case:
            if self._tools.view(case.node) is None or case.node not in self._tools.machines:
                self._close(case)
            else:
                then(case)

    def _enter(self, case: _Case, phase: str) -> None:
        case.phase = phase
        for told in self.on_phase:
            told(case.node)

    def _act(self, case: _Case, action: str) -> None:
        for told in self.on_action:
            told(action, case.node)

    def _close(self, case: _Case) -> None:
        self._open.pop(case.node, None)
        for told in self.on_phase:
            told(case.node)

    # ---------------------------------------------------------------- step by step

    def _look(self, case: _Case) -> None:
        """A person looks at the node for the first time."""
        view = self._tools.view(case.node)
        if view is None or not self._needs_a_person(view):
            # It went by itself, or somebody else has it.
            self._close(case)
            return
        over_at = self._tools.machines.trouble_until
        if over_at > self._tools.timeline.now:
            # A rack, a leaf or a rollout: nothing is done to single nodes before that is over.
            self._tools.timeline.at(over_at + MINUTE_S, lambda: self._hands_on(case, self._look))
            return
        case.code = self._code(view)
        if "DRAIN" not in view.state and not self._drain(case):
            self._hands_on(case, self._look)
            return
        self._enter(case, "draining")
        self._tools.when_idle(case.node, lambda: self._go_on(case, self._reboot))

    def _drain_early(self, case: _Case) -> None:
        """A node that is DOWN takes no jobs and may come back by itself."""
        view = self._tools.view(case.node)
        if view is not None and not view.state & _OUT:
            self._drain(case)

    def _drain(self, case: _Case) -> bool:
        """Keep jobs off a node that is broken; True where it is drained then."""
        view = self._tools.view(case.node)
        if view is None or "DRAIN" in view.state or not self._needs_a_person(view):
            return view is not None and "DRAIN" in view.state
        code = self._code(view)
        if not self._tools.set_state(case.node, "DRAIN", f"{_REASON}{code}", ACTOR):
            return False
        self._act(case, "drain")
        return True

    def _code(self, view: NodeView) -> str:
        verdict = self._tools.verdict(view.name)
        if verdict is not None and verdict.level is Level.DRAIN:
            return verdict.code
        reason = view.reason.removeprefix(_REASON)
        return slurm_reason_code(view.reason) or reason_code(view.reason)[0] or reason

    def _reboot(self, case: _Case) -> None:
        self._enter(case, "reboot")
        case.did = "reboot"
        self._act(case, "reboot")
        node = case.node
        view = self._tools.view(node)
        alive = view is not None and not view.state & {"DOWN", "NOT_RESPONDING"}
        if alive:
            with contextlib.suppress(SlurmRefused):
                self._tools.ctld.reboot(node)
                self._await_boot(case)
                return
        self._tools.power_cycle(node, "power")
        self._await_boot(case)

    def _await_boot(self, case: _Case) -> None:
        self._tools.when_up(case.node, self._settings.boot_limit_s, lambda up: self._came_up(case, up))

    def _came_up(self, case: _Case, up: bool) -> None:
        if self._open.get(case.node) is not case:
            return
        if up:
            self._enter(case, "verify")
            self._hands_on(case, self._judge)
        else:
            self._go_on(case, self._escalate)

    def _judge(self, case: _Case) -> None:
        verdict = self._tools.verdict(case.node)
        view = self._tools.view(case.node)
        silent = view is None or "NOT_RESPONDING" in view.state
        if verdict is None or silent or verdict.level is Level.DRAIN:
            case.code = verdict.code if verdict is not None and verdict.code else case.code
            self._escalate(case)
        elif (
            self._tools.timeline.now - self._past.get((case.node, case.code), 0.0) < self._settings.remember_s
        ):
            # It was mended like this days ago.
            self._escalate(case)
        else:
            self._return(case)

    def _escalate(self, case: _Case) -> None:
        software = fault_for(case.code).fault_class is FaultClass.SOFTWARE
        if software and not case.reinstalled:
            case.reinstalled = True
            case.did = "reimage"
            self._enter(case, "reimage")
            self._act(case, "reimage")
            self._tools.timeline.after(self._settings.reinstall_s, lambda: self._go_on(case, self._boot_new))
            return
        case.did = "rma"
        self._enter(case, "rma")
        self._act(case, "rma")
        self._technician.take(
            case.node, f"case{case.began:.0f}", then=lambda: self._hands_on(case, self._return)
        )

    def _boot_new(self, case: _Case) -> None:
        self._tools.power_cycle(case.node, "reimage")
        self._await_boot(case)

    def _return(self, case: _Case) -> None:
        """Give it back; the case is over, named by what it went back after."""
        self._enter(case, case.did or "person")
        if case.did != "rma":
            self._past[case.node, case.code] = self._tools.timeline.now
        self._act(case, "return")
        self._tools.give_back(case.node)
        # A new case must not open for what is being undone right now.
        self._tools.timeline.after(MINUTE_S, lambda: self._over(case))

    def _over(self, case: _Case) -> None:
        if self._open.get(case.node) is not case:
            return
        self._close(case)
        if self._needs_a_person(self._tools.view(case.node)):
            self._open_case(case.node)
