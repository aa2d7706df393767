"""A world of the safety suite: a small random fleet, the real daemon on it, and all that goes wrong."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from slurm_lifecycle.core.model import Incident, Verb
from slurm_lifecycle.core.plan import Plan
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.errors import InvariantViolation, LifecycleError
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.daemon import HOST, INSTANCE, Outside, SimDaemon
from slurm_lifecycle.simulation.fleet import Fleet
from slurm_lifecycle.simulation.machines.faults import Fault
from slurm_lifecycle.simulation.machines.hardware import Machine
from slurm_lifecycle.simulation.safety.draws import ORACLES, Draws
from slurm_lifecycle.simulation.safety.facts import Facts
from slurm_lifecycle.simulation.safety.hands import Hands
from slurm_lifecycle.simulation.safety.happenings import SLEW_S, Weights, happen
from slurm_lifecycle.simulation.safety.journal import Journal
from slurm_lifecycle.simulation.safety.oracles import Judges, TickFacts
from slurm_lifecycle.simulation.safety.oracles_limits import PersonsWord
from slurm_lifecycle.simulation.safety.oracles_record import PersonsAreTold
from slurm_lifecycle.simulation.safety.trace import Trace
from slurm_lifecycle.simulation.safety.trouble import Killed, TroubledSlurm, Troubles
from slurm_lifecycle.simulation.safety.trouble_bmc import TroubledBmc
from slurm_lifecycle.simulation.safety.trouble_site import (
    TroubledDesk,
    TroubledProvisioner,
    TroubledStore,
    WallClock,
)
from slurm_lifecycle.simulation.slurmctld import NodeSpec
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.store.opening import open_store


@lru_cache(maxsize=1)
def _empty_store() -> bytes:
    """A store of the present schema in which nothing is; making one takes as long as many ticks."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        open_store(path, host=HOST, acting=True, instance=INSTANCE).close()
        return path.read_bytes()


class World:
    """A fleet, a daemon on it that is killed and started again, people, and the judges.

    Attributes:
        rng: what happens and when.
        resting: faults have stopped.
        happened: how often each kind of happening took place.
        ticks: of the daemon.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        """Draw the world of a seed and start everything in it."""
        self.seed = seed
        self.rng = stream(seed, "world", "steps")
        draws = Draws.of(seed)
        self.draws = draws
        self.weights: Weights = draws.weights
        self.domains, self.partitions = draws.domains, draws.partitions
        self.happened: dict[str, int] = {}
        self.last_kind: dict[str, tuple[str, str]] = {}
        self.resting = False
        self.ticks = 0
        self.trace = Trace()
        self.fleet = Fleet(draws.fleet, seed)
        self.timeline, self.ctld = self.fleet.timeline, self.fleet.ctld
        self.machines, self.agents = self.fleet.machines, self.fleet.agents
        self.told = self.fleet.desk
        self.troubles = Troubles(seed)
        self.clock = WallClock(self.timeline)
        self._start_daemon(folder)
        self._connect()

    def _start_daemon(self, folder: Path) -> None:
        draws = self.draws
        (folder / "store.db").write_bytes(_empty_store())
        self.journal = Journal(folder / "store.db")
        self.facts = Facts(
            timeline=self.timeline,
            ctld=self.ctld,
            machines=self.machines,
            bmcs=self.fleet.bmcs,
            policy=draws.policy,
            journal=self.journal,
            trace=self.trace,
            slack_s=2 * SLEW_S,
        )
        self.judges = Judges(self.facts, ORACLES)
        judges, troubles = self.judges, self.troubles
        self.slurm = TroubledSlurm(self.fleet.slurm, self.timeline, troubles, judges)
        self.slurm.between = lambda: happen(self, between=True)
        self.facts.slurm = self.slurm
        self.desk = TroubledDesk(self.told, self.told, self.told, troubles, judges)
        outside = Outside(
            slurm=self.slurm,
            provisioner=TroubledProvisioner(self.fleet.provisioner, self.timeline, troubles, judges),
            bmc=TroubledBmc(self.fleet.bmc, troubles, judges),
            tickets=self.desk,
            notifier=self.desk,
            node_command=self.desk,
            clock=self.clock.daemon_clock(),
        )
        self.daemon = SimDaemon(
            outside,
            draws.policy,
            folder,
            wrap_store=lambda store: TroubledStore(store, troubles, judges.wrote),
            clock_of=self.clock.daemon_clock,
        )

    def _connect(self) -> None:
        judges = self.judges
        self.hands = Hands(self.ctld, self.facts, self._ask)
        for oracle in judges.oracles:
            if isinstance(oracle, PersonsAreTold):
                oracle.told = self.told.pages
                self._told_oracle = oracle
            if isinstance(oracle, PersonsWord):
                self.hands.before_return.append(oracle.person_lifts)
                self._persons_word = oracle
        self.agents.on_drain.append(self._agent_drains)
        self.ctld.on_node_change.append(self._node_changed)
        self.ctld.on_reservation_change.append(self._reservation_changed)
        self.ctld.on_job_start.append(
            lambda job: self.note("", f"job {job.id} starts on {','.join(job.nodes)}")
        )
        self.ctld.on_job_end.append(lambda job, how: self.note("", f"job {job.id} ends: {how}"))
        self.machines.on_boot.append(self._booted)
        self.machines.on_down.append(self._went_down)
        self.machines.on_fault.append(self._fault_began)
        self.machines.start()
        self.agents.start()

    # ---------------------------------------------------------------- what happens

    def note(self, node: str, text: str) -> None:
        """A line for the trace."""
        self.trace.add(self.timeline.now, node, text)

    def _node_changed(self, node: str) -> None:
        view = self.ctld.views().get(node)
        shown = (
            "is gone" if view is None else f"{'+'.join(sorted(view.state))} {view.reason!r} {view.extra!r}"
        )
        self.note(node, shown)
        self.judges.node_changed(node)

    def _reservation_changed(self, name: str) -> None:
        found = self.ctld.reservations().get(name)
        self.note("", f"reservation {name} {'is gone' if found is None else 'over ' + ','.join(found.nodes)}")
        for node in self.facts.nodes_of_reservation(name):
            self.judges.node_changed(node)

    def _booted(self, machine: Machine) -> None:
        self.note(machine.name, f"boots for {machine.rung}: {machine.boot_id}")
        self.facts.booted(machine.name)
        self.judges.node_changed(machine.name)

    def _went_down(self, machine: Machine) -> None:
        self.note(machine.name, "goes down")
        self.facts.went_down(machine.name)

    def _agent_drains(self, node: str, code: str) -> None:
        self.note(node, f"its agent drains for {code}")
        self._persons_word.forget(node)

    def _fault_began(self, fault: Fault) -> None:
        self.last_kind[fault.node] = (fault.kind.key, fault.component)
        self.note(fault.node, f"fault {fault.key} ({fault.code or 'seen by nobody'}), luck {fault.luck:.2f}")

    def join(self, spec: NodeSpec) -> None:
        """A node joins."""
        self.hands.add_node(spec)
        self.agents.follow(self.machines.add(spec))

    def leave(self, node: str) -> None:
        """A node leaves."""
        self.hands.remove_node(node)
        self.machines.remove(node)

    def _ask(self, verb: Verb, subject: str, actor: str, text: str) -> int:
        self._persons_word.person_asks(verb, subject)
        return self.daemon.ask(verb, subject, actor, text, self.timeline.now)

    # ---------------------------------------------------------------- the daemon

    @property
    def policy(self) -> Policy:
        """The one that the daemon runs with now."""
        return self.daemon.policy

    def restart(self, policy: Policy | None = None) -> None:
        """The daemon starts anew, after its death or with another configuration."""
        self.note("", "the daemon starts")
        self.daemon.restart(policy)
        self.facts.policy = self.daemon.policy
        self.judges.started()

    def step(self, seconds: float) -> TickResult | None:
        """Time passes, then one tick."""
        self.timeline.run_until(self.timeline.now + seconds)
        self.ticks += 1
        if self.desk.nobody_is_told or self.slurm.away:
            self._told_oracle.no_way()
        result, error = None, ""
        try:
            result = self.daemon.tick()
        except Killed as where:
            self.note("", f"the daemon is killed {where}")
            self.restart()
        except InvariantViolation as refused:
            error = f"plan refused: {refused}"
        except LifecycleError as problem:
            self.note("", f"no tick: {problem}")
        except Exception as defect:
            error = f"a tick ended by a defect: {type(defect).__name__}: {defect}"
        self._trace_tick(result)
        fresh = not self.slurm.old_read
        self.judges.ticked(TickFacts(result, error, fresh))
        return result

    def _trace_tick(self, result: TickResult | None) -> None:
        if result is None:
            return
        _trace_plan(self.note, result.plan)
        for done in result.done:
            if done.result != "done":
                node = getattr(done.action, "node", "")
                self.note(node, f"{type(done.action).__name__} {done.result}: {done.detail}")

    def close(self) -> None:
        """Let the store go."""
        self.daemon.close()
        self.journal.close()


def _trace_plan(note: Callable[[str, str], None], plan: Plan) -> None:
    for incident in plan.incidents:
        note(incident.node, _said(incident))
    for attempt in plan.attempts:
        ended = attempt.outcome.value if attempt.outcome is not None else "reserved"
        note(attempt.node, f"attempt {attempt.op_id}: {ended} {attempt.detail}")
    for action in plan.actions:
        note(getattr(action, "node", ""), f"plans {type(action).__name__}")


def _said(incident: Incident) -> str:
    rung = incident.rung.value if incident.rung is not None else "-"
    words = f"{incident.id} {incident.code} {incident.step.value} {rung}"
    return f"{words} {incident.hold}{incident.outcome} {incident.note}".rstrip()
