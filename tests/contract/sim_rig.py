"""The rig over the simulated slurmctld, with two small machines below it. Time passes only where asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurm_lifecycle.simulation.port import SimSlurm
from slurm_lifecycle.simulation.slurmctld import JobSpec, NodeSpec, SlurmConf, Slurmctld, SlurmRefused
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Event, Timeline
from tests.contract.rig import WAIT_S, Timing

GPUS = 2
# From the call of RebootProgram until slurmd is gone, and from its start until it registers.
_STOPS_S = 0.5
_STARTS_S = 0.5
_BOOTS_S = 2.0


@dataclass
class SmallMachine:
    """A node's hardware, as far as the facts move it."""

    boot_time_s: float
    gpus: int = GPUS
    hangs: bool = False
    prolog_fails: bool = False
    drains_as: str = ""
    ahead: Event | None = None


@dataclass
class SmallSide:
    """What slurmctld reaches on the nodes."""

    timeline: Timeline
    ctld: Slurmctld
    machines: dict[str, SmallMachine] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)

    def reboot(self, node: str) -> None:
        self.plan(node, _STOPS_S, lambda: self._goes_down(node))

    def responds(self, node: str) -> bool:
        return node in self.alive

    def prolog(self, node: str, job_id: str) -> bool:
        machine = self.machines[node]
        if machine.prolog_fails and machine.drains_as:
            self.ctld.update_node(node, "DRAIN", machine.drains_as)
        return not machine.prolog_fails

    def epilog(self, node: str, job_id: str) -> bool:
        return True

    def plan(self, node: str, delay_s: float, what: Callable[[], None]) -> None:
        """The one thing that happens next to a machine."""
        machine = self.machines[node]
        if machine.ahead is not None:
            machine.ahead.cancel()
        machine.ahead = self.timeline.after(delay_s, what)

    def stop(self, node: str) -> None:
        self.alive.discard(node)
        self.ctld.fell_silent(node)

    def start(self, node: str, *, boot: bool) -> None:
        self.plan(node, _STARTS_S, lambda: self._registers(node, boot=boot))

    def _goes_down(self, node: str) -> None:
        self.stop(node)
        if not self.machines[node].hangs:
            self.plan(node, _BOOTS_S, lambda: self._registers(node, boot=True))

    def _registers(self, node: str, *, boot: bool) -> None:
        machine = self.machines[node]
        if boot:
            machine.boot_time_s = self.timeline.now
        self.alive.add(node)
        self.ctld.registered(node, machine.boot_time_s, machine.gpus)


def _said(act: Callable[[], None]) -> str:
    try:
        act()
    except SlurmRefused as error:
        return str(error)
    return ""


class SimRig:
    """A fresh simulated cluster of two nodes."""

    nodes = ("n1", "n2")
    requeue_delay_s = 120.0
    kill_wait_s = 2.0

    def __init__(self, release: str, seed: int = 0) -> None:
        self.release = release
        self.timeline = Timeline()
        timing = Timing()
        conf = SlurmConf(
            release=release,
            resume_timeout_s=timing.resume_timeout_s,
            slurmd_timeout_s=timing.slurmd_timeout_s,
            return_to_service=timing.return_to_service,
            requeue_delay_s=self.requeue_delay_s,
            kill_wait_s=self.kill_wait_s,
        )
        specs = (NodeSpec("n1", ("main", "second"), GPUS), NodeSpec("n2", ("main",), GPUS))
        self.ctld = Slurmctld(self.timeline, specs, conf, stream(seed, "slurmctld", release))
        self.slurm = SimSlurm(self.ctld)
        self.side = SmallSide(self.timeline, self.ctld)
        for node in self.nodes:
            self.side.machines[node] = SmallMachine(self.timeline.now - 100)
            self.side.alive.add(node)
            self.ctld.registered(node, self.timeline.now - 100, GPUS)
        self.ctld.side = self.side
        self.timeline.run_until(self.timeline.now + 10)

    # ------------------------------------------------------------ the cluster and time

    def configure(self, timing: Timing) -> None:
        self.ctld.reconfigure(
            resume_timeout_s=timing.resume_timeout_s,
            slurmd_timeout_s=timing.slurmd_timeout_s,
            return_to_service=timing.return_to_service,
        )

    def restart_controller(self) -> None:
        self.ctld.restart()

    def now(self) -> float:
        return self.timeline.now

    def wait(self, what: Callable[[], bool], limit_s: float = WAIT_S) -> bool:
        deadline = self.timeline.now + limit_s
        while not what():
            ahead = self.timeline.peek()
            if ahead is None or ahead > deadline:
                self.timeline.run_until(deadline)
                return what()
            self.timeline.run_until(ahead)
        return True

    def pass_time(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    # ------------------------------------------------------------ users

    def submit(
        self,
        node: str = "",
        *,
        reservation: str = "",
        held: bool = False,
        count: int = 1,
        requeue: bool = True,
        limit_s: int = 3600,
        exclude: str = "",
        ignores_term: bool = False,
    ) -> str:
        spec = JobSpec(
            name="job",
            uid=0,
            nodes_min=count,
            nodes_max=count,
            time_limit_s=limit_s,
            partition="main",
            requeue=requeue,
            held=held,
            nodelist=(node,) if node else (),
            exclude=frozenset([exclude] if exclude else []),
            reservation=reservation,
            ignores_term=ignores_term,
        )
        return self.ctld.submit(spec)

    def suspend(self, job_id: str) -> None:
        self.ctld.suspend(job_id)

    def resume_job(self, job_id: str) -> None:
        self.ctld.resume_job(job_id)

    def cancel(self, job_id: str) -> None:
        self.ctld.cancel(job_id)

    def requeue_held(self, job_id: str) -> str:
        return _said(lambda: self.ctld.requeue(job_id, hold=True))

    def update_job(
        self,
        job_id: str,
        *,
        start_now: bool = False,
        requeue: bool | None = None,
        reservation: str | None = None,
        exclude: str | None = None,
        nodelist: str | None = None,
        count: int | None = None,
        keep: str | None = None,
    ) -> str:
        kept = None if count is None else self.ctld.jobs()[job_id].nodes[:count]
        return _said(
            lambda: self.ctld.update_job(
                job_id,
                start_now=start_now,
                requeue=requeue,
                reservation=reservation,
                exclude=None if exclude is None else [exclude] if exclude else [],
                nodelist=None if nodelist is None else [nodelist] if nodelist else [],
                nodes=kept if keep is None else [keep],
            )
        )

    # ------------------------------------------------------------ administrators

    def person_drains(self, node: str, reason: str) -> str:
        return _said(lambda: self.ctld.update_node(node, "DRAIN", reason))

    def person_downs(self, node: str, reason: str) -> str:
        return _said(lambda: self.ctld.update_node(node, "DOWN", reason))

    def person_undrains(self, node: str) -> str:
        return _said(lambda: self.ctld.update_node(node, "UNDRAIN"))

    def person_resumes(self, node: str) -> str:
        return _said(lambda: self.ctld.update_node(node, "RESUME"))

    def person_sets_idle(self, node: str) -> str:
        return _said(lambda: self.ctld.update_node(node, "IDLE"))

    def person_writes_reason(self, node: str, reason: str) -> str:
        return _said(lambda: self.ctld.set_reason(node, reason))

    def person_reboots(self, node: str, *, asap: bool = False, nextstate: str = "", reason: str = "") -> str:
        return _said(lambda: self.ctld.reboot(node, asap=asap, nextstate=nextstate, reason=reason))

    def person_cancels_reboot(self, node: str) -> str:
        return _said(lambda: self.ctld.cancel_reboot(node))

    def person_reserves(
        self,
        name: str,
        nodes: Sequence[str],
        *,
        start_in_s: int = 0,
        duration_s: int = 3600,
        flags: Sequence[str] = (),
        users: Sequence[str] = ("root",),
    ) -> str:
        start_s = self.timeline.now + start_in_s
        return _said(
            lambda: self.ctld.create_reservation(name, nodes, start_s, start_s + duration_s, flags, users)
        )

    def person_moves_reservation(
        self,
        name: str,
        *,
        start_in_s: int | None = None,
        end_in_s: int | None = None,
        duration_s: int | None = None,
        nodes: Sequence[str] = (),
        add: str = "",
        remove: str = "",
    ) -> str:
        return _said(
            lambda: self.ctld.update_reservation(
                name,
                start_s=None if start_in_s is None else self.timeline.now + start_in_s,
                end_s=None if end_in_s is None else self.timeline.now + end_in_s,
                duration_s=duration_s,
                nodes=nodes or None,
                add_nodes=[add] if add else (),
                remove_nodes=[remove] if remove else (),
            )
        )

    def person_deletes_reservation(self, name: str) -> str:
        return _said(lambda: self.ctld.delete_reservation(name))

    # ------------------------------------------------------------ the machines

    def slurmd_stops(self, node: str) -> None:
        self.side.stop(node)

    def slurmd_starts(self, node: str, *, boot: bool) -> None:
        self.side.start(node, boot=boot)

    def boot_hangs(self, node: str) -> None:
        self.side.machines[node].hangs = True

    def gpu_lost(self, node: str) -> None:
        self.side.machines[node].gpus = GPUS - 1

    def gpu_back(self, node: str) -> None:
        self.side.machines[node].gpus = GPUS

    def prolog_fails(self, node: str, *, drains_as: str = "") -> None:
        machine = self.side.machines[node]
        machine.prolog_fails, machine.drains_as = True, drains_as
