"""One tick: observe, plan, check, store, execute. Nothing acts before it is stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_lifecycle.core.evidence import through_bmc
from slurm_lifecycle.core.invariants import check_plan
from slurm_lifecycle.core.machine import MachineReading
from slurm_lifecycle.core.model import Fleet, Incident, Observation, ProvisionStatus, Records, Rung, Step
from slurm_lifecycle.core.plan import Plan
from slurm_lifecycle.core.planner import plan as make_plan
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.errors import InvariantViolation, TransientError
from slurm_lifecycle.ports import Bmc, Clock, MachineHealth, Provisioner, Slurm, Store
from slurm_lifecycle.service.executor import Done, Executor

# Of each tick, so much may go to asking how reimages stand.
POLL_SHARE_S = 15.0
# One reading takes three answers or four; what takes longer is delivered by a later tick.
READ_MACHINES_S = 10.0
Planner = Callable[[Fleet, Policy, float], Plan]


@dataclass(frozen=True, slots=True)
class TickResult:
    """What a tick came to, for log and metrics.

    Attributes:
        records: as loaded at its start.
        seconds: by phase: `read`, `plan`, `store`, `act`.
    """

    at: float
    plan: Plan
    records: Records
    done: tuple[Done, ...]
    seconds: dict[str, float]


class Reconciler:
    """Ties the ports to the planner.

    Args:
        stopwatch: a monotonic clock for the figures, not for decisions.
    """

    def __init__(
        self,
        *,
        slurm: Slurm,
        store: Store,
        provisioner: Provisioner,
        bmc: Bmc,
        health: MachineHealth,
        executor: Executor,
        clock: Clock,
        policy: Policy,
        stopwatch: Callable[[], float],
        planner: Planner = make_plan,
    ) -> None:
        self._slurm = slurm
        self._store = store
        self._provisioner = provisioner
        self._bmc = bmc
        self._health = health
        self._executor = executor
        self._clock = clock
        self._policy = policy
        self._stopwatch = stopwatch
        self._planner = planner
        self._polled: dict[str, int] = {}

    def tick(self) -> TickResult:
        """Run one tick.

        Raises:
            TransientError: Slurm or its answer could not be read: nothing was decided.
            StoreError: the store could not be used: nothing was done.
            InvariantViolation: the plan was unsafe: nothing of it was stored or done.
        """
        marks = [self._stopwatch()]
        now = self._clock.now()
        records = self._store.load(now)
        fleet = Fleet(self._observe(records, now), records, self._store.identity())
        marks.append(self._stopwatch())
        plan = self._planner(fleet, self._policy, now)
        problems = check_plan(fleet, plan, self._policy, now)
        if problems:
            raise InvariantViolation("; ".join(problems[:5]))
        marks.append(self._stopwatch())
        self._store.apply(plan, now)
        marks.append(self._stopwatch())
        done = self._executor.execute(plan, _open_after(records, plan))
        marks.append(self._stopwatch())
        names = ("read", "plan", "store", "act")
        seconds = {name: after - before for name, before, after in zip(names, marks, marks[1:], strict=False)}
        return TickResult(now, plan, records, done, seconds)

    def _observe(self, records: Records, now: float) -> Observation:
        """Nodes before jobs: a job that starts in between makes the node busy in the second read."""
        nodes = self._slurm.nodes()
        if not nodes and (records.incidents or records.fences):
            raise TransientError("read nodes", "slurmctld lists no node at all")
        jobs = self._slurm.jobs()
        reservations = self._slurm.reservations()
        return Observation(
            now,
            nodes,
            jobs,
            reservations,
            provision=self._poll(records),
            machines=self._read_machines(records),
            health=self._health.reports(),
        )

    def _read_machines(self, records: Records) -> Mapping[str, MachineReading]:
        """Readings of the machines that a repair is under way on, through their BMC."""
        wanted = [
            one.node for one in records.attempts if one.outcome is None and through_bmc(one, self._policy)
        ]
        return self._bmc.read(wanted, READ_MACHINES_S) if wanted else {}

    def _poll(self, records: Records) -> dict[str, ProvisionStatus]:
        """Ask about reimages, those that waited longest first; a site's command that hangs is not waited for
        again and again in one tick.
        """
        wanted = [one for one in records.attempts if one.outcome is None and one.rung is Rung.REIMAGE]
        wanted.sort(key=lambda one: self._polled.get(one.op_id, 0))
        self._polled = {one.op_id: self._polled.get(one.op_id, 0) for one in wanted}
        began, found = self._stopwatch(), {}
        for one in wanted:
            if self._stopwatch() - began > POLL_SHARE_S:
                break
            found[one.op_id] = self._provisioner.poll(one.op_id, one.node)
            self._polled[one.op_id] += 1
        return found


def _open_after(records: Records, plan: Plan) -> dict[str, Incident]:
    incidents = dict(records.incidents)
    for one in plan.incidents:
        if one.step is Step.CLOSED:
            incidents.pop(one.node, None)
        else:
            incidents[one.node] = one
    return incidents
