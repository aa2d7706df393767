"""The agent of every node: what it finds, what it says in Extra, and when it drains its own node.

It writes what the real agent writes, when the real agent would: the worst finding with the boot and a number
that counts up, a drain for the classes that a node drains itself, once per occurrence, at most three times a
boot, never over anybody else's drain and never where the node's Comment forbids it. It sees only faults that
show, some time after they do, and only while it lives and its node's network carries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from slurm_lifecycle.core.fault_catalog import ClearRule
from slurm_lifecycle.core.formats import make_reason, parse_verdict
from slurm_lifecycle.core.model import NodeView
from slurm_lifecycle.simulation.machines.agent_rules import (
    MAX_DRAINS_PER_BOOT,
    PROLOG_ERROR_WITHIN_S,
    Act,
    Found,
    decide,
    held,
    joined,
    published,
    wanted,
)
from slurm_lifecycle.simulation.machines.faults import Fault
from slurm_lifecycle.simulation.machines.hardware import Machine
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Event

_QUIET_S = 600.0
_LOOK_AGAIN_S = 30.0
_VERIFY_S = 900.0
_RELEASE_FROM_S, _RELEASE_AGAIN_S, _RELEASE_UNTIL_S = 3.0, 5.0, 600.0
_HELD_FOR_OUR_REFUSAL = ("launch failed requeued held", "launch_failed_requeued_held")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How agents are.

    Attributes:
        drains: they drain their nodes; else they only say what they see.
        says_before: share of boots in which the first verdict stands before slurmd has registered.
        says_after_s: else, how long it takes at most after that.
        clears_s: how long it takes at most until a condition that is over reads well.
        dead_at_boot: chance that the agent does not start with a boot.
    """

    drains: bool = True
    says_before: float = 0.5
    says_after_s: float = 20.0
    clears_s: float = 60.0
    dead_at_boot: float = 0.0


@dataclass(slots=True)
class _Mind:
    """What one agent knows of one boot.

    Attributes:
        done: occurrences for which the node was drained.
        written: Extra as the agent left it, None while something is still to be said.
        waits: a drain is wanted and was not possible.
        looks: the next look at the node.
    """

    name: str
    boot_id: str
    ready: bool = False
    seq: int = 0
    said: tuple[str, str, str] | None = None
    written: str | None = None
    findings: dict[str, Found] = field(default_factory=dict)
    occurrences: int = 0
    done: frozenset[int] = frozenset()
    drains: int = 0
    waits: bool = False
    refused_at: float | None = None
    looks: Event | None = None


class NodeAgents:
    """The agents of a fleet.

    Attributes:
        on_verdict: told of each verdict that was written: node, level, code, component.
        on_drain: told of each drain that an agent makes: node and code.
        away: slurmctld cannot be reached by any node; `back` ends it.
    """

    def __init__(self, machines: Machines, ctld: Slurmctld, settings: AgentSettings) -> None:
        """They begin with `start`."""
        self.on_verdict: list[Callable[[str, str, str, str], None]] = []
        self.on_drain: list[Callable[[str, str], None]] = []
        self.away = False
        self._ctld = ctld
        self._machines = machines
        self._timeline = machines.timeline
        self._settings = settings
        self._minds: dict[str, _Mind] = {}
        self._changed: set[str] = set()
        machines.on_show.append(self._shows)
        machines.on_hide.append(self._hides)
        machines.on_boot.append(self._booted)
        machines.gates.append(self.gate)
        ctld.on_node_change.append(self._node_changed)

    def start(self) -> None:
        """Every agent looks at its node and says what it sees."""
        for name in self._machines.names():
            self.follow(self._machines.machine(name))

    def follow(self, machine: Machine) -> None:
        """An agent begins on a machine that runs."""
        mind = self._minds[machine.name] = _Mind(machine.name, machine.boot_id)
        if machine.agent:
            self._look_at_all(mind)

    # ---------------------------------------------------------------- agents that die, Slurm that is away

    def kill(self, name: str) -> None:
        """The agent dies; its last verdict stays in Slurm."""
        self._machines.machine(name).agent = False

    def revive(self, name: str) -> None:
        """The agent is started again: it knows what it knew, and looks at everything."""
        machine = self._machines.machine(name)
        if machine.up and not machine.agent:
            machine.agent = True
            mind = self._minds[name]
            for key, found in list(mind.findings.items()):
                fault = machine.faults.get(found.fault)
                if found.clears is ClearRule.CONDITION and (fault is None or not fault.shown):
                    del mind.findings[key]
            self._look_at_all(mind)

    def back(self) -> None:
        """Slurmctld answers again."""
        self.away = False
        for name in sorted(self._minds):
            self._look_soon(self._minds[name], _LOOK_AGAIN_S)

    # ---------------------------------------------------------------- what it finds

    def false_alarm(self, name: str, code: str, component: str, lasts_s: float) -> None:
        """The agent sees what is not there, for a while or, by its clear rule, until the next boot."""
        mind = self._alive(name)
        if mind is None or not mind.ready:
            return
        key = f"false.{code}.{component}"
        if key in mind.findings:
            return
        self._raise(mind, key, "", code, component)
        self._announce(mind)

        def over() -> None:
            found = mind.findings.get(key)
            if self._alive(name) is mind and found is not None and found.clears is ClearRule.CONDITION:
                del mind.findings[key]
                self._announce(mind)

        self._timeline.after(lasts_s, over)

    def _alive(self, name: str) -> _Mind | None:
        if name not in self._machines:
            return None
        machine, mind = self._machines.machine(name), self._minds.get(name)
        there = mind is not None and machine.up and machine.agent and mind.boot_id == machine.boot_id
        return mind if there else None

    def _shows(self, fault: Fault) -> None:
        machine = self._machines.machine(fault.node)
        if not fault.code or not machine.up or not machine.agent:
            return
        boot = machine.boot_id

        def see() -> None:
            mind = self._alive(fault.node)
            if mind is None or mind.boot_id != boot or not mind.ready:
                return
            # What the kernel logged is found there, though it is over by now.
            if fault.shown or fault.code.startswith("XID"):
                self._raise(mind, fault.key, fault.key, fault.code, fault.component)
                self._announce(mind)

        self._timeline.after(fault.detect_s, see)

    def _hides(self, fault: Fault) -> None:
        mind = self._alive(fault.node)
        if mind is None:
            return
        if not fault.code:
            # The network may be back.
            self._look_soon(mind, _LOOK_AGAIN_S)
            return
        if fault.key not in mind.findings or mind.findings[fault.key].clears is not ClearRule.CONDITION:
            return
        delay_s = self._settings.clears_s * (1.0 - fault.luck / 2)

        def reads_well() -> None:
            there = self._alive(fault.node) is mind and not fault.shown
            if there and mind.findings.pop(fault.key, None) is not None:
                self._announce(mind)

        self._timeline.after(delay_s, reads_well)

    def _raise(self, mind: _Mind, key: str, fault: str, code: str, component: str) -> None:
        now, known = self._timeline.now, mind.findings.get(key)
        if known is not None and known.code == code:
            known.seen_at = now
        else:
            mind.occurrences += 1
            known = Found(code, component, fault, mind.occurrences, now, now)
            mind.findings[key] = known
        if known.clears is ClearRule.QUIET:
            self._timeline.after(_QUIET_S, lambda: self._quiet(mind, key))

    def _quiet(self, mind: _Mind, key: str) -> None:
        found = mind.findings.get(key)
        if self._alive(mind.name) is not mind or found is None or found.clears is not ClearRule.QUIET:
            return
        if self._timeline.now - found.seen_at >= _QUIET_S:
            del mind.findings[key]
            self._announce(mind)

    def _booted(self, machine: Machine) -> None:
        """Told before slurmd registers: the first verdict may be there before or after it."""
        mind = self._minds[machine.name] = _Mind(machine.name, machine.boot_id)
        rng = stream(self._machines.seed, machine.name, f"agent/{machine.boots}")
        dead, before, after = (rng.random() for _ in range(3))
        if dead < self._settings.dead_at_boot:
            machine.agent = False
        if before < self._settings.says_before:
            self._look_at_all(mind)
        else:
            self._timeline.after(1.0 + after * self._settings.says_after_s, lambda: self._look_at_all(mind))

    def _look_at_all(self, mind: _Mind) -> None:
        if self._alive(mind.name) is not mind:
            return
        mind.ready = True
        for key, fault in sorted(self._machines.machine(mind.name).faults.items()):
            if fault.shown and fault.code:
                self._raise(mind, key, key, fault.code, fault.component)
        self._announce(mind)

    # ---------------------------------------------------------------- what it says and does

    def _announce(self, mind: _Mind) -> None:
        said = published(mind.findings.values())
        if said != mind.said:
            mind.said, mind.written = said, None
            mind.seq += 1
        mind.done &= {one.occurrence for one in mind.findings.values()}
        self._talk(mind)

    def _look_soon(self, mind: _Mind, within_s: float) -> None:
        """Some time from now, so that many nodes do not all ask at once."""
        if mind.looks is None:
            rng = stream(self._machines.seed, mind.name, f"look/{self._timeline.now}")
            mind.looks = self._timeline.after(within_s * rng.uniform(0.1, 1.0), lambda: self._looked(mind))

    def _looked(self, mind: _Mind) -> None:
        mind.looks = None
        if self._alive(mind.name) is mind and mind.ready:
            self._talk(mind)

    def _node_changed(self, name: str) -> None:
        mind = self._minds.get(name)
        if mind is None or mind.looks is not None or not mind.ready:
            return
        if mind.waits:
            self._look_soon(mind, _LOOK_AGAIN_S)
        else:
            # Whether somebody else wrote the field is seen later, for all nodes at once: mostly it was a job.
            if not self._changed:
                self._timeline.after(_VERIFY_S, self._verify)
            self._changed.add(name)

    def _verify(self) -> None:
        names, self._changed = sorted(self._changed), set()
        for name in names:
            mind = self._alive(name)
            if mind is not None and mind.written is not None and self._extra(name) != mind.written:
                mind.written = None
                self._talk(mind)

    def _extra(self, name: str) -> str:
        try:
            return self._ctld.view(name).extra
        except SlurmRefused:
            return ""

    def _talk(self, mind: _Mind) -> None:
        """One conversation with Slurm: look, drain where that is wanted and allowed, say what was found."""
        if self.away or not self._machines.machine(mind.name).reachable:
            return
        try:
            view = self._ctld.view(mind.name)
            self._drain(mind, view)
            self._write(mind, view)
        except SlurmRefused:
            # The node is gone from Slurm, or the update was not taken: seen again at the next change.
            mind.waits = bool(wanted(mind.findings.values(), mind.done))

    def _drain(self, mind: _Mind, view: NodeView) -> None:
        due = wanted(mind.findings.values(), mind.done)
        mind.waits = False
        if not due or not self._settings.drains or mind.drains >= MAX_DRAINS_PER_BOOT:
            return
        act = decide(view, self._timeline.now, refused_here=self._refused_here(mind))
        if act is Act.LATER:
            mind.waits = True
            return
        mind.done |= {one.occurrence for one in due}
        if act is Act.DRAIN:
            mind.drains += 1
            for told in self.on_drain:
                told(mind.name, due[0].code)
            self._ctld.update_node(mind.name, "DRAIN", make_reason(due[0].code, due[0].component))

    def _write(self, mind: _Mind, view: NodeView) -> None:
        if mind.said is None or mind.written is not None:
            return
        present = parse_verdict(view.extra)
        if present is not None and present.boot_id == mind.boot_id and present.seq >= mind.seq:
            mind.seq = present.seq + 1
        level, code, component = mind.said
        op_id, image = self._machines.machine(mind.name).image
        marker = f" img={op_id},{image}" if op_id else ""
        said = f"slc1 {mind.boot_id} {mind.seq} {level} {code} {component}{marker}"
        mind.written = joined(view.extra, said)
        self._ctld.set_extra(mind.name, mind.written)
        for told in self.on_verdict:
            told(mind.name, level, code, component)

    # ---------------------------------------------------------------- the prolog

    def _refused_here(self, mind: _Mind) -> bool:
        return mind.refused_at is not None and self._timeline.now - mind.refused_at <= PROLOG_ERROR_WITHIN_S

    def gate(self, name: str, job_id: str) -> bool:
        """Whether the prolog lets a job start: not on a node that is surely broken and not drained yet."""
        mind = self._alive(name)
        if mind is None or not self._settings.drains or not wanted(mind.findings.values(), mind.done):
            return True
        try:
            if held(self._ctld.view(name).comment):
                return True
        except SlurmRefused:
            return True
        mind.refused_at = self._timeline.now
        mind.waits = True
        began = self._timeline.now
        self._timeline.after(_RELEASE_FROM_S, lambda: self._release(mind, job_id, began))
        return False

    def _release(self, mind: _Mind, job_id: str, began: float) -> None:
        """Slurm requeues a job that was refused and holds it, though nothing is wrong with it."""
        if self._alive(mind.name) is not mind or self._timeline.now - began > _RELEASE_UNTIL_S:
            return
        job = self._ctld.jobs().get(job_id)
        if job is None or job.state == "RUNNING":
            return
        try:
            if (
                job.state == "PENDING"
                and job.reason in _HELD_FOR_OUR_REFUSAL
                and "DRAIN" in self._ctld.view(mind.name).state
            ):
                self._ctld.release(job_id)
                return
        except SlurmRefused:
            return
        self._timeline.after(_RELEASE_AGAIN_S, lambda: self._release(mind, job_id, began))
