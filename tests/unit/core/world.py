"""A small cluster in values: applies a plan's actions the way Slurm 22.05 was measured to, tick by tick."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from slurm_lifecycle.core.fault_catalog import fault_for
from slurm_lifecycle.core.formats import make_reason
from slurm_lifecycle.core.invariants import check_plan
from slurm_lifecycle.core.machine import AttemptStep, MachineCommand, StepOutcome
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    Fleet,
    Identity,
    Incident,
    JobView,
    NodeView,
    Observation,
    ProvisionState,
    ProvisionStatus,
    Records,
    Request,
    ReservationView,
    Rung,
    Step,
    Verb,
)
from slurm_lifecycle.core.plan import (
    AbortImage,
    CreateFence,
    Drain,
    Notice,
    Plan,
    RemoveFence,
    RenewFence,
    SendStep,
    SetComment,
    StartAttempt,
    Undrain,
)
from slurm_lifecycle.core.planner import plan
from slurm_lifecycle.core.policy import Mode, Policy
from tests.unit.core.machine import Machine

ALL_RUNGS = frozenset({"drain", "return", "reboot", "reimage", "rma"})
ACT = Policy(
    mode=Mode.ACT,
    partitions=("*",),
    rungs=ALL_RUNGS,
    verify_settle_s=10.0,
    adopt_after_s=60.0,
)
TICK_S = 5.0


def boot(node: str, n: int) -> str:
    return f"{n:08x}-0000-4000-8000-{sum(map(ord, node)):012x}"


@dataclass
class World:
    """Nodes n1..nK, a store in memory, and knobs: `cure` says which rung heals which node."""

    count: int = 8
    policy: Policy = ACT
    now: float = 1_000_000.0
    nodes: dict[str, NodeView] = field(default_factory=dict)
    jobs: list[JobView] = field(default_factory=list)
    reservations: dict[str, ReservationView] = field(default_factory=dict)
    provision: dict[str, ProvisionStatus] = field(default_factory=dict)
    boots: dict[str, int] = field(default_factory=dict)
    images: dict[str, tuple[str, str]] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    staged: dict[str, tuple[str, str]] = field(default_factory=dict)
    killed: Callable[[AttemptStep], bool] = field(default=lambda step: False)
    faults: dict[str, tuple[str, str]] = field(default_factory=dict)
    cured_by: dict[str, str] = field(default_factory=dict)
    incidents: dict[str, Incident] = field(default_factory=dict)
    records: Records = field(default_factory=Records)
    identity: Identity = field(default_factory=lambda: Identity("inst1", "admin", 1))
    log: list[object] = field(default_factory=list)
    last: Plan = field(default_factory=Plan)
    lose: Callable[[object], bool] = field(default=lambda action: False)
    reboot_ticks: int = 2
    rebooting: dict[str, int] = field(default_factory=dict)
    request_id: int = 0

    def __post_init__(self) -> None:
        for number in range(1, self.count + 1):
            name = f"n{number}"
            self.boots[name] = 1
            self.nodes[name] = NodeView(name, frozenset({"IDLE"}), partitions=("batch",), gpus=8)
            self.say(name)

    # ---- what happens outside

    def say(self, name: str) -> None:
        code, component = self.faults.get(name, ("-", "-"))
        level = "ok" if code == "-" else fault_for(code).level.value
        extra = f"slc1 {boot(name, self.boots[name])} 1 {level} {code} {component}"
        if name in self.images:
            op_id, image = self.images[name]
            extra += f" img={op_id},{image}"
        self.nodes[name] = replace(self.nodes[name], extra=extra)

    def fault(self, name: str, code: str, component: str = "gpu3", cured_by: str = "reboot") -> None:
        self.faults[name] = (code, component)
        self.cured_by[name] = cured_by
        self.say(name)

    def agent_drains(self, name: str) -> None:
        code, component = self.faults[name]
        self.set_state(name, "DRAIN", reason=make_reason(code, component))

    def set_state(self, name: str, *add: str, drop: tuple[str, ...] = (), reason: str | None = None) -> None:
        view = self.nodes[name]
        state = (view.state | set(add)) - set(drop)
        self.nodes[name] = replace(
            view,
            state=frozenset(state),
            reason=view.reason if reason is None else reason,
            reason_at_s=self.now,
        )

    def admin_drains(self, name: str, reason: str = "fan noise") -> None:
        self.set_state(name, "DRAIN", reason=reason)

    def admin_undrains(self, name: str) -> None:
        self.set_state(name, drop=("DRAIN",), reason="")

    def run_job(self, name: str, job_id: str = "100") -> None:
        self.jobs.append(JobView(job_id, "RUNNING", (name,), 1000, 0))
        self.set_state(name, "ALLOCATED", drop=("IDLE",))

    def end_jobs(self, name: str) -> None:
        self.jobs = [job for job in self.jobs if name not in job.nodes]
        self.set_state(name, "IDLE", drop=("ALLOCATED", "COMPLETING"))

    def ask(self, verb: Verb, subject: str) -> None:
        self.request_id += 1
        request = Request(self.request_id, self.now, "alice", verb, subject)
        self.records = replace(self.records, requests=(*self.records.requests, request))

    def holds_now(self) -> list[str]:
        return list(self.records.holds)

    # ---- one tick

    def fleet(self) -> Fleet:
        asked = {one.node for one in self.records.attempts if one.outcome is None} & self.machines.keys()
        seen = Observation(
            self.now,
            dict(self.nodes),
            tuple(self.jobs),
            dict(self.reservations),
            dict(self.provision),
            {name: self.machines[name].reading(name, self.now) for name in asked},
        )
        return Fleet(seen, self.records, self.identity)

    def tick(self, count: int = 1) -> Plan:
        for _ in range(count):
            self.now += TICK_S
            self._reboots_go_on()
            self._machines_go_on()
            fleet = self.fleet()
            self.last = plan(fleet, self.policy, self.now)
            problems = check_plan(fleet, self.last, self.policy, self.now)
            assert not problems, problems
            self._store(self.last)
            for action in self.last.actions:
                self.log.append(action)
                if not self.lose(action):
                    self._do(action)
        return self.last

    def run_until(self, done: Callable[["World"], bool], ticks: int = 400) -> None:
        for _ in range(ticks):
            self.tick()
            if done(self):
                return
        raise AssertionError(f"not reached: {self.last.held} {list(self.records.incidents.values())}")

    def incident(self, name: str) -> Incident | None:
        return self.records.incidents.get(name)

    def step(self, name: str) -> Step | None:
        found = self.incident(name)
        return None if found is None else found.step

    def sent(self, kind: type, node: str = "") -> list[object]:
        return [
            one
            for one in self.log
            if isinstance(one, kind) and (not node or node in (getattr(one, "node", ""), _attempt_node(one)))
        ]

    def closed(self, name: str) -> Incident:
        return next(one for one in reversed(self.records.closed_incidents) if one.node == name)

    def _store(self, made: Plan) -> None:
        incidents = dict(self.records.incidents)
        closed = list(self.records.closed_incidents)
        for one in made.incidents:
            incidents.pop(one.node, None) if one.step is Step.CLOSED else incidents.update({one.node: one})
            if one.step is Step.CLOSED:
                closed.append(one)
        findings = {(one.node, one.code, one.component): one for one in self.records.findings}
        findings |= {(one.node, one.code, one.component): one for one in made.findings}
        attempts = {one.op_id: one for one in self.records.attempts} | {
            one.op_id: one for one in made.attempts
        }
        steps = {(one.op_id, one.n): one for one in (*self.records.steps, *made.steps)}
        fences = dict(self.records.fences) | {one.name: one for one in made.fences}
        holds = dict(self.records.holds) | {one.node: one for one in made.holds}
        done = {number for number, _ in made.requests_done}
        self.records = Records(
            incidents=incidents,
            closed_incidents=tuple(closed),
            attempts=tuple(attempts.values()),
            steps=tuple(steps.values()),
            findings=tuple(one for one in findings.values() if one.cleared_at is None),
            fences={name: one for name, one in fences.items() if one.closed_at is None},
            trips=(*self.records.trips, *made.trips)
            if not any(one.reset_at for one in made.trips)
            else tuple(made.trips),
            hits=(*self.records.hits, *made.hits),
            holds={name: one for name, one in holds.items() if one.released_at is None},
            requests=tuple(one for one in self.records.requests if one.id not in done),
        )

    # ---- what the actions do

    def _do(self, action: object) -> None:
        if isinstance(action, Drain):
            self.set_state(action.node, "DRAIN", reason=action.reason)
        elif isinstance(action, SetComment):
            self.nodes[action.node] = replace(self.nodes[action.node], comment=action.comment)
        elif isinstance(action, CreateFence):
            end = self.now + 365 * 86400
            flags = frozenset({"MAINT", "IGNORE_JOBS"})
            self.reservations[action.name] = ReservationView(
                action.name, (action.node,), self.now, end, flags
            )
        elif isinstance(action, RenewFence):
            old = self.reservations[action.name]
            self.reservations[action.name] = replace(old, end_s=action.end_s)
        elif isinstance(action, RemoveFence):
            self.reservations.pop(action.name, None)
        elif isinstance(action, Undrain):
            self.set_state(action.node, "IDLE", drop=("DRAIN", "DOWN"), reason="")
        elif isinstance(action, StartAttempt):
            self._attempt(action.attempt)
        elif isinstance(action, SendStep):
            self._send(action)
        elif isinstance(action, AbortImage):
            self.staged.pop(action.node, None)
        else:
            assert isinstance(action, Notice)

    def _attempt(self, attempt: Attempt) -> None:
        self._resolve(replace(attempt, sent=True))
        if attempt.rung is Rung.REBOOT:
            self.rebooting[attempt.node] = self.reboot_ticks
            self.set_state(
                attempt.node,
                "DOWN",
                "REBOOT_ISSUED",
                drop=("IDLE",),
                reason=self.nodes[attempt.node].reason + " : reboot issued",
            )
        elif attempt.rung is Rung.REIMAGE:
            self.provision[attempt.op_id] = ProvisionStatus(ProvisionState.DONE)
            self.images[attempt.node] = (attempt.op_id, self.policy.image)
            self._booted(attempt.node, "reimage")
        else:
            self._resolve(
                replace(attempt, outcome=AttemptOutcome.SUCCEEDED, ended_at=self.now, detail="t.md")
            )

    def _send(self, action: SendStep) -> None:
        step = action.step
        if step.command is MachineCommand.STAGE:
            self.staged[action.node] = (action.attempt.op_id, self.policy.image)
            outcome, detail = StepOutcome.ACCEPTED, ""
        else:
            outcome, detail = self.machines[action.node].send(step.command, self.now)
        if self.killed(step):
            return
        ended = replace(step, outcome=outcome, ended_at=self.now, detail=detail)
        steps = tuple(ended if one is step else one for one in self.records.steps)
        self.records = replace(self.records, steps=steps)

    def _machines_go_on(self) -> None:
        """Power that comes and goes under Slurm: a node that is off is lost, one that booted registers."""
        for name, machine in self.machines.items():
            was_up = machine.up
            machine.pass_time(self.now)
            if was_up and not machine.up:
                self.set_state(name, "DOWN", "NOT_RESPONDING", drop=("IDLE",))
            elif machine.up and machine.booted_at != self.nodes[name].boot_time_s:
                if machine.booted_from == "network" and name in self.staged:
                    self.images[name] = self.staged[name]
                    self._cured(name, "reimage")
                self._cured(name, "power")
                self._booted(name, "reboot")
                self.set_state(name, drop=("NOT_RESPONDING",))
                self.nodes[name] = replace(self.nodes[name], boot_time_s=machine.booted_at)

    def _cured(self, name: str, rung: str) -> None:
        if self.cured_by.get(name) == rung:
            self.faults.pop(name, None)

    def _resolve(self, attempt: Attempt) -> None:
        attempts = {one.op_id: one for one in self.records.attempts} | {attempt.op_id: attempt}
        self.records = replace(self.records, attempts=tuple(attempts.values()))

    def _reboots_go_on(self) -> None:
        for name in list(self.rebooting):
            self.rebooting[name] -= 1
            if self.rebooting[name] <= 0:
                del self.rebooting[name]
                self._booted(name, "reboot")

    def _booted(self, name: str, rung: str) -> None:
        self.boots[name] += 1
        if self.cured_by.get(name) == rung:
            self.faults.pop(name, None)
        self.set_state(name, "IDLE", drop=("DOWN", "REBOOT_ISSUED"))
        self.say(name)


def _attempt_node(action: object) -> str:
    return action.attempt.node if isinstance(action, StartAttempt) else ""
