"""What people of every trade need: a look at a node, a try at scontrol, patience until something is so."""

import contextlib
from collections.abc import Callable

from slurm_lifecycle.core.formats import parse_verdict
from slurm_lifecycle.core.model import NodeView, Verb, Verdict
from slurm_lifecycle.core.ownership import BUSY_TOKENS
from slurm_lifecycle.simulation.machines.bmc import Answer, Bmcs, Power
from slurm_lifecycle.simulation.machines.faults import Fault
from slurm_lifecycle.simulation.machines.hardware import Machine
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused
from slurm_lifecycle.simulation.streams import stream

Ask = Callable[[Verb, str, str, str], object]
Then = Callable[[], None]


def nobody_listens(verb: Verb, subject: str, actor: str, text: str) -> None:
    """Where no daemon takes requests."""
    del verb, subject, actor, text


class Toolbox:
    """Shared by all people of a fleet.

    Attributes:
        ask: puts a person's request into the daemon's inbox: verb, subject, actor, text.
    """

    def __init__(self, machines: Machines, ctld: Slurmctld, bmcs: Bmcs, ask: Ask = nobody_listens) -> None:
        """Listens for boots and for nodes that become idle."""
        self.machines = machines
        self.ctld = ctld
        self.bmcs = bmcs
        self.ask = ask
        self.timeline = machines.timeline
        self._up: dict[str, list[Callable[[bool], None]]] = {}
        self._idle: dict[str, list[Then]] = {}
        machines.on_boot.append(self._booted)
        ctld.on_node_change.append(self._changed)

    def draw(self, subject: str, purpose: str, low: float, high: float) -> float:
        """A number between two, from a stream of its own."""
        return stream(self.machines.seed, subject, purpose).uniform(low, high)

    # ---------------------------------------------------------------- a look

    def view(self, name: str) -> NodeView | None:
        """The node in Slurm, None where it is gone."""
        try:
            return self.ctld.view(name)
        except SlurmRefused:
            return None

    def verdict(self, name: str) -> Verdict | None:
        """What the node's agent says of the present boot, None where it says nothing."""
        view = self.view(name)
        if view is None or name not in self.machines:
            return None
        found = parse_verdict(view.extra)
        return found if found is not None and found.boot_id == self.machines.machine(name).boot_id else None

    def busy(self, name: str) -> bool:
        """Whether a job lists the node or it is still completing."""
        view = self.view(name)
        return view is not None and bool(view.state & BUSY_TOKENS or self.ctld.jobs_on(name))

    # ---------------------------------------------------------------- a try

    def set_state(self, name: str, state: str, reason: str = "", user: str = "root") -> bool:
        """`scontrol update state=`; False where it was refused."""
        try:
            self.ctld.update_node(name, state, reason, user)
        except SlurmRefused:
            return False
        return True

    def give_back(self, name: str) -> None:
        """Lift the drain, or DOWN with it, as a person does who looked at the node."""
        view = self.view(name)
        if view is None:
            return
        if "DOWN" in view.state:
            self.set_state(name, "RESUME")
        elif "DRAIN" in view.state:
            self.set_state(name, "UNDRAIN")

    def take_jobs_off(self, name: str, because: Fault | None = None) -> None:
        """Requeue what runs there, cancel what cannot be requeued.

        Args:
            because: what is to blame for it, for the accounts.
        """
        for view in self.ctld.jobs_on(name) if self.view(name) is not None else ():
            job = self.ctld.jobs().get(view.job_id)
            if job is None or job.state not in ("RUNNING", "SUSPENDED"):
                continue
            if because is not None:
                self.machines.strikes.mark(job, because)
            with contextlib.suppress(SlurmRefused):
                if job.spec.requeue:
                    self.ctld.requeue(job.id)
                else:
                    self.ctld.cancel(job.id)

    def power_cycle(self, name: str, rung: str) -> None:
        """Through the management controller; by hand where that does not answer or does nothing."""
        if name not in self.machines:
            return
        before = self.machines.machine(name).tries

        def answered(answer: Answer) -> None:
            del answer
            # The gap between off and on, and a look whether it went.
            self.timeline.after(60.0, look)

        def look() -> None:
            if name in self.machines and self.machines.machine(name).tries == before:
                self.machines.power_cycle(name, rung)

        self.bmcs.ask(name, Power.CYCLE, rung, answered)

    # ---------------------------------------------------------------- patience

    def when_up(self, name: str, within_s: float, then: Callable[[bool], None]) -> None:
        """Call once when the machine has booted next, or say False when it has not within a time."""
        waiting = self._up.setdefault(name, [])

        def booted(came: bool) -> None:
            if booted in waiting:
                waiting.remove(booted)
                then(came)

        waiting.append(booted)
        self.timeline.after(within_s, lambda: booted(False))

    def _booted(self, machine: Machine) -> None:
        for told in list(self._up.get(machine.name, ())):
            self.timeline.after(0.0, lambda told=told: told(True))  # type: ignore[misc]

    def when_idle(self, name: str, then: Then) -> None:
        """Call once when no job lists the node any more; never where it is taken out before."""
        self._idle.setdefault(name, []).append(then)
        self.timeline.after(0.0, lambda: self._look(name))

    def _changed(self, name: str) -> None:
        if name in self._idle:
            self.timeline.after(0.0, lambda: self._look(name))

    def _look(self, name: str) -> None:
        if name in self._idle and self.view(name) is not None and not self.busy(name):
            for then in self._idle.pop(name):
                then()
