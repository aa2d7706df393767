"""The truth about hardware: which machines run, what is broken in them, and what a boot mends.

Implements what slurmctld can reach on a node (`NodeSide`). Everything happens by events on the timeline; a
machine to which nothing happens costs nothing.
"""

from collections.abc import Callable, Iterable

from slurm_lifecycle.simulation.machines.faults import (
    DAY_S,
    MAX_HIDES,
    MAX_SHOWS,
    Fault,
    FaultKind,
    HostEffect,
    draw_fault,
)
from slurm_lifecycle.simulation.machines.hardware import (
    Controller,
    FaultHook,
    Machine,
    MachineSettings,
    boot_id,
)
from slurm_lifecycle.simulation.machines.strikes import Strikes
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.slurmctld.settings import NodeSpec
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline

__all__ = ["Machine", "MachineSettings", "Machines"]

# Between the start of the kernel, which Slurm calls the boot time, and slurmd: a tenth of a boot; the rest is
# firmware.
_KERNEL_SHARE = 0.1
_POWER_GAP_S = 10.0


class Machines:
    """All machines of a fleet; implements `NodeSide`.

    The caller makes it slurmctld's `side`, puts `job_started` among its `on_job_start`, and calls `start`.

    Attributes:
        on_fault: a fault began. on_show: it shows (again). on_hide: it went away for now or for good.
        on_cleared: it is mended; `cleared_by` says by which rung, or `time`.
        on_boot: a machine came up, told before slurmd registers. on_down: it went down.
        strikes: what faults do to jobs.
        on_maintenance: a person's plan for a node has come due.
        gates: asked by the prolog; one that says False refuses the job.
        trouble_until: until when a common cause (rack, leaf, rollout) lasts, as far as begun.
    """

    def __init__(
        self,
        timeline: Timeline,
        ctld: Controller,
        specs: Iterable[NodeSpec],
        settings: MachineSettings,
        seed: int | str,
    ) -> None:
        """Machines that have run for a while."""
        self.timeline = timeline
        self.settings = settings
        self.seed = seed
        self.on_fault: list[FaultHook] = []
        self.on_show: list[FaultHook] = []
        self.on_hide: list[FaultHook] = []
        self.on_cleared: list[FaultHook] = []
        self.on_boot: list[Callable[[Machine], None]] = []
        self.on_down: list[Callable[[Machine], None]] = []
        self.on_maintenance: list[Callable[[str], None]] = []
        self.gates: list[Callable[[str, str], bool]] = []
        self.trouble_until = 0.0
        self._ctld = ctld
        self._all: dict[str, Machine] = {}
        self.strikes = Strikes(timeline, ctld, settings.first_step_s)
        for spec in specs:
            self._make(spec)

    def _make(self, spec: NodeSpec) -> Machine:
        rng = stream(self.seed, spec.name, "machine")
        spread = self.settings.boot_spread
        pace = 1.0 + rng.uniform(-spread, spread)
        booted = self.timeline.now - rng.uniform(0.1 * DAY_S, 20 * DAY_S)
        self._all[spec.name] = Machine(spec.name, spec.gpus, spec.domain, pace, boot_id(rng), booted)
        return self._all[spec.name]

    # ---------------------------------------------------------------- reading

    def machine(self, name: str) -> Machine:
        """One machine."""
        return self._all[name]

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._all)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a machine."""
        return name in self._all

    def faulty(self, name: str) -> bool:
        """Whether anything is wrong with it, be it away for the moment."""
        machine = self._all[name]
        return bool(machine.faults) or machine.stuck

    def usable(self, name: str) -> bool:
        """Whether a job would run on it now: up, reached, and nothing that shows would end the job."""
        machine = self._all[name]
        return machine.up and machine.slurmd and machine.reachable and machine.striking is None

    def job_started(self, job: Job) -> None:
        """A job started; where one of its nodes is broken it will not get far."""
        self.strikes.job_started(job)

    # ---------------------------------------------------------------- what slurmctld reaches

    def reboot(self, node: str) -> None:
        """Slurmd runs RebootProgram."""
        machine = self._all[node]
        if machine.up and machine.slurmd and machine.booting is None:
            before = machine.boots
            self.timeline.after(self.settings.shutdown_s, lambda: self._restart(machine, before, "reboot"))

    def responds(self, node: str) -> bool:
        """Whether its slurmd answers."""
        machine = self._all.get(node)
        return machine is not None and machine.up and machine.slurmd and machine.reachable

    def prolog(self, node: str, job_id: str) -> bool:
        """Whether the prolog lets a job start."""
        if not all(gate(node, job_id) for gate in self.gates):
            return False
        return not self._chance(self.settings.prolog_fails, node, f"prolog/{job_id}")

    def epilog(self, node: str, job_id: str) -> bool:
        """Whether the epilog ends well."""
        return not self._chance(self.settings.epilog_fails, node, f"epilog/{job_id}")

    def _chance(self, chance: float, node: str, purpose: str) -> bool:
        return chance > 0.0 and stream(self.seed, node, purpose).random() < chance

    # ---------------------------------------------------------------- power and boots

    def start(self) -> None:
        """Every slurmd that runs registers, in order of names."""
        for name in self.names():
            self._register(self._all[name])

    def add(self, spec: NodeSpec) -> Machine:
        """A machine joins and registers.

        Raises:
            ValueError: there is one of that name.
        """
        if spec.name in self._all:
            raise ValueError(f"there is a machine {spec.name} already")
        machine = self._make(spec)
        self._register(machine)
        return machine

    def remove(self, name: str) -> None:
        """A machine is taken out of the fleet."""
        machine = self._all.pop(name)
        self.strikes.forget(name)
        machine.up = machine.slurmd = machine.agent = False
        for event in (machine.booting, *(one.event for one in machine.faults.values())):
            if event is not None:
                event.cancel()
        machine.faults.clear()

    def crash(self, name: str) -> None:
        """The host dies and stays down until its power is cycled."""
        machine = self._all[name]
        self._down(machine)
        machine.stuck = machine.powered

    def power_off(self, name: str) -> None:
        """No power."""
        machine = self._all[name]
        self._down(machine)
        machine.powered = machine.stuck = False

    def power_on(self, name: str, rung: str = "power") -> None:
        """Power is back, and it boots; nothing happens to one that has power.

        Args:
            rung: what this boot is part of: `power`, `reimage`, `rma`.
        """
        machine = self._all[name]
        if not machine.powered:
            machine.powered = True
            self._begin_boot(machine, rung)

    def power_cycle(self, name: str, rung: str = "power") -> None:
        """Off, and on after some seconds."""
        self.power_off(name)
        self.timeline.after(_POWER_GAP_S, lambda: self._power_on_again(name, rung))

    def _power_on_again(self, name: str, rung: str) -> None:
        if name in self._all:
            self.power_on(name, rung)

    def self_reboot(self, name: str) -> None:
        """The host reboots by itself."""
        machine = self._all[name]
        self._restart(machine, machine.boots, "reboot")

    def replace_parts(self, name: str) -> None:
        """A technician has replaced what was broken; it boots."""
        machine = self._all[name]
        machine.lemon = False
        self.power_cycle(name, "rma")

    def run_installer(self, name: str) -> None:
        """Its power is cycled and it runs something else than its own system, until `boot`."""
        machine = self._all[name]
        self._down(machine)
        machine.powered, machine.stuck, machine.installing = True, False, True

    def boot(self, name: str, rung: str) -> None:
        """One that has power and runs nothing boots its own system."""
        machine = self._all[name]
        if machine.powered and not machine.up and machine.booting is None:
            self._begin_boot(machine, rung)

    def stop_slurmd(self, name: str) -> None:
        """Slurmd dies, the host lives."""
        machine = self._all[name]
        if machine.slurmd:
            machine.slurmd = False
            self._ctld.fell_silent(name)

    def start_slurmd(self, name: str) -> None:
        """Slurmd is started again in the same boot."""
        machine = self._all[name]
        if machine.up and not machine.slurmd:
            machine.slurmd = True
            self._register(machine)

    def _restart(self, machine: Machine, boots: int, rung: str) -> None:
        if machine.boots == boots and machine.up and machine.name in self._all:
            self._down(machine)
            self._begin_boot(machine, rung)

    def _down(self, machine: Machine) -> None:
        if machine.booting is not None:
            machine.booting.cancel()
            machine.booting = None
        was = machine.up
        machine.up = machine.slurmd = machine.agent = False
        machine.installing = False
        if was:
            self._ctld.fell_silent(machine.name)
            for told in self.on_down:
                told(machine)

    def _begin_boot(self, machine: Machine, rung: str) -> None:
        rng = stream(self.seed, machine.name, f"boot/{machine.tries}")
        machine.tries += 1
        machine.rung, machine.installing = rung, False
        settings = self.settings
        took = settings.boot_s * machine.pace * (1.0 + rng.uniform(-1, 1) * settings.boot_spread)
        kind, new_id = rng.random(), boot_id(rng)
        lost = kind < settings.boot_lost
        if not lost and kind < settings.boot_lost + settings.boot_late:
            took *= settings.late_factor
        dead = any(
            one.kind.host is HostEffect.DIES and not one.cured_by(rung) for one in machine.faults.values()
        )
        machine.stuck = dead or (lost and rung != "rma")
        if not machine.stuck:
            machine.booting = self.timeline.after(took, lambda: self._booted(machine, new_id, took))

    def _booted(self, machine: Machine, new_id: str, took: float) -> None:
        machine.booting, machine.stuck = None, False
        machine.up = True
        machine.agent = machine.agent_starts
        machine.boots += 1
        machine.boot_id = new_id
        machine.boot_time_s = self.timeline.now - _KERNEL_SHARE * took
        for key in sorted(machine.faults):
            fault = machine.faults[key]
            if fault.cured_by(machine.rung):
                self.clear(machine.name, key, machine.rung)
            else:
                self._after_boot(machine, fault)
        machine.slurmd = True
        for told in self.on_boot:
            told(machine)
        self._register(machine)

    def _register(self, machine: Machine) -> None:
        if machine.up and machine.slurmd and machine.reachable:
            self._ctld.registered(machine.name, machine.boot_time_s, machine.gpus_seen)

    # ---------------------------------------------------------------- faults

    def fault(self, name: str, kind: FaultKind, component: str = "") -> Fault:
        """A fault begins now; what would mend it is drawn from the node's own stream."""
        machine = self._all[name]
        rng = stream(self.seed, name, f"injected/{machine.injected}")
        machine.injected += 1
        return self.begin(
            draw_fault(kind, name, machine.gpus, rng, at=self.timeline.now, component=component)
        )

    def begin(self, fault: Fault) -> Fault:
        """A drawn fault begins; where the same one stands already, that one strikes once more."""
        machine = self._all[fault.node]
        known = machine.faults.get(fault.key)
        if known is None:
            machine.faults[fault.key] = known = fault
            for told in self.on_fault:
                told(fault)
        if known.event is not None:
            known.event.cancel()
        self._show(machine, known)
        return known

    def clear(self, name: str, key: str, by: str = "time") -> None:
        """A fault is mended; one that is not there is no matter."""
        machine = self._all[name]
        fault = machine.faults.get(key)
        if fault is None:
            return
        self._take_away(machine, fault)
        del machine.faults[key]
        fault.cleared_at, fault.cleared_by = self.timeline.now, by
        for told in self.on_cleared:
            told(fault)

    def _show(self, machine: Machine, fault: Fault) -> None:
        fault.event = None
        if machine.faults.get(fault.key) is not fault:
            return
        fault.shown = True
        fault.shows += 1
        machine.last_fault_at, machine.last_cause = self.timeline.now, fault.kind.cause
        self.strikes.look(machine)
        self._affect_host(machine, fault)
        for told in self.on_show:
            told(fault)
        self.strikes.strike_on(machine, fault)
        if fault.lasts_s is not None and fault.shown:
            if fault.lasts_s <= 0:
                self._hide(machine, fault)
            else:
                fault.event = self.timeline.after(fault.lasts_s, lambda: self._hide(machine, fault))

    def _affect_host(self, machine: Machine, fault: Fault) -> None:
        if fault.kind.host is HostEffect.DIES:
            # Also one that was booting.
            self.crash(machine.name)
        elif not machine.up:
            return
        elif fault.kind.host is HostEffect.REBOOTS:
            self.self_reboot(machine.name)
        elif fault.kind.host is HostEffect.SILENT and machine.slurmd:
            self._ctld.fell_silent(machine.name)

    def _hide(self, machine: Machine, fault: Fault) -> None:
        fault.event = None
        if machine.faults.get(fault.key) is not fault:
            return
        if fault.cured_by("time") or fault.shows >= MAX_SHOWS:
            self.clear(machine.name, fault.key, "time")
            return
        self._take_away(machine, fault)
        fault.event = self.timeline.after(fault.away_s, lambda: self._show(machine, fault))

    def _take_away(self, machine: Machine, fault: Fault) -> None:
        if fault.event is not None:
            fault.event.cancel()
            fault.event = None
        if not fault.shown:
            return
        silent = not machine.reachable
        fault.shown = False
        machine.last_fault_at = self.timeline.now
        self.strikes.look(machine)
        for told in self.on_hide:
            told(fault)
        if silent and machine.reachable:
            self._register(machine)

    def _after_boot(self, machine: Machine, fault: Fault) -> None:
        """A boot did not mend it: it is there at once, or some time later."""
        fault.booted = True
        if fault.kind.lasts_s is not None:
            return
        plain = fault.hides >= MAX_HIDES and fault.kind.host is not HostEffect.REBOOTS
        if fault.hidden_s <= 0 or plain:
            if not fault.shown:
                self._show(machine, fault)
            return
        fault.hides += 1
        self._take_away(machine, fault)
        fault.event = self.timeline.after(fault.hidden_s, lambda: self._show(machine, fault))
