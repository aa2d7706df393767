"""The plan in the making: working copies of the records, and what was decided so far in this tick."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurm_lifecycle.core.budget import Ledger, blocking_trip, scopes_of
from slurm_lifecycle.core.formats import REASON_PREFIX, parse_verdict
from slurm_lifecycle.core.machine import AttemptStep
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    BreakerHit,
    Fence,
    Finding,
    Fleet,
    Hold,
    Incident,
    JobView,
    NodeView,
    Owner,
    ReservationView,
    Step,
    Trip,
    Verdict,
)
from slurm_lifecycle.core.ownership import jobs_by_node, owner_of
from slurm_lifecycle.core.plan import Action, Event, Held, Notice, Plan
from slurm_lifecycle.core.policy import Mode, Policy
from slurm_lifecycle.core.survey import Survey
from slurm_lifecycle.core.transitions import move

FENCE_PREFIX = "slc-"
EVERYWHERE = "*"
# A finding that Slurm made, not the node: it has no boot.
SLURM_SAYS = "slurm"
FindingKey = tuple[str, str, str]


def finding_key(finding: Finding) -> FindingKey:
    """What makes a finding the same: node, code, component."""
    return finding.node, finding.code, finding.component


@dataclass(slots=True)
class Draft:
    """Mutable only within one call of the planner; `plan()` freezes it.

    `claim_problem` says why this daemon may not act on the cluster at all, "" when it may; `claim_pending`
    that it is only being written. Attempts and fences are kept by what they are asked for: an incident that
    had to look through all of them would make a tick grow with the square of the fleet.
    """

    fleet: Fleet
    policy: Policy
    now: float
    claim_problem: str = ""
    claim_pending: bool = False
    survey: Survey = field(default_factory=Survey)
    incident_ids: set[str] = field(default_factory=set)
    incidents: dict[str, Incident] = field(default_factory=dict)
    attempts_by_node: dict[str, dict[str, Attempt]] = field(default_factory=dict)
    findings_by_node: dict[str, dict[FindingKey, Finding]] = field(default_factory=dict)
    open_attempts: dict[str, Attempt] = field(default_factory=dict)
    steps: dict[str, list[AttemptStep]] = field(default_factory=dict)
    fences: dict[str, Fence] = field(default_factory=dict)
    fences_by_incident: dict[str, dict[str, Fence]] = field(default_factory=dict)
    trips: dict[str, Trip] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    jobs_by_node: dict[str, list[JobView]] = field(default_factory=dict)
    maintained: dict[str, ReservationView] | None = None
    ledger: Ledger = field(default_factory=lambda: Ledger({}))
    new_hits: list[BreakerHit] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    requests_done: list[tuple[int, str]] = field(default_factory=list)
    changed_incidents: dict[str, Incident] = field(default_factory=dict)
    changed_attempts: dict[str, Attempt] = field(default_factory=dict)
    changed_steps: list[AttemptStep] = field(default_factory=list)
    changed_findings: dict[FindingKey, Finding] = field(default_factory=dict)
    changed_fences: dict[str, Fence] = field(default_factory=dict)
    changed_trips: list[Trip] = field(default_factory=list)
    changed_holds: dict[str, Hold] = field(default_factory=dict)

    @classmethod
    def of(cls, fleet: Fleet, policy: Policy, now: float) -> "Draft":
        """A draft in which nothing is decided yet."""
        records = fleet.records
        draft = cls(fleet, policy, now, survey=Survey.of(fleet.observation.nodes))
        draft.incidents = dict(records.incidents)
        for attempt in records.attempts:
            draft._keep_attempt(attempt)
        for step in records.steps:
            draft.steps.setdefault(step.op_id, []).append(step)
        for one in records.findings:
            draft.findings_by_node.setdefault(one.node, {})[finding_key(one)] = one
        for fence in records.fences.values():
            draft._keep_fence(fence)
        draft.trips = {one.scope: one for one in records.trips if one.reset_at is None}
        draft.holds = dict(records.holds)
        draft.ledger = Ledger.of(draft.nodes, draft.incidents.values(), policy, draft.survey.restless)
        return draft

    # ------------------------------------------------------------ reading

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """The nodes as observed."""
        return self.fleet.observation.nodes

    def new_incident_id(self, node: str) -> str:
        """`<node>.<seconds>`, later by so many seconds as it takes for no other case of the node to bear it.

        A case may end and the next one begin within a second, or after a clock that was set back.
        """
        if not self.incident_ids:
            known = (*self.fleet.records.closed_incidents, *self.fleet.records.incidents.values())
            self.incident_ids = {one.id for one in known}
        second = int(self.now)
        while f"{node}.{second}" in self.incident_ids:
            second += 1
        self.incident_ids.add(f"{node}.{second}")
        return f"{node}.{second}"

    def jobs_on(self, node: str) -> list[JobView]:
        """Jobs that list the node; looked up at once for every node that is likely to be asked for."""
        if node not in self.jobs_by_node:
            names = {node, *self.survey.restless, *self.incidents}
            self.jobs_by_node |= jobs_by_node(self.fleet.observation.jobs, names)
        return self.jobs_by_node[node]

    def owner(self, view: NodeView) -> Owner:
        """Whose drain the node carries."""
        return owner_of(view, self.policy)

    def verdict(self, view: NodeView) -> Verdict | None:
        """What the node says of itself."""
        return parse_verdict(view.extra)

    def open_attempt(self, node: str) -> Attempt | None:
        """The node's unresolved attempt; the database allows at most one."""
        return self.open_attempts.get(node)

    def findings_of(self, node: str) -> list[Finding]:
        """The node's open findings."""
        return list(self.findings_by_node.get(node, {}).values())

    def attempts_on(self, node: str) -> tuple[Attempt, ...]:
        """All attempts on record for a node, those of its earlier incidents too."""
        return tuple(self.attempts_by_node.get(node, {}).values())

    def attempts_of(self, incident: Incident) -> tuple[Attempt, ...]:
        """An incident's attempts, oldest first."""
        mine = [one for one in self.attempts_on(incident.node) if one.incident_id == incident.id]
        return tuple(sorted(mine, key=lambda one: (one.created_at, one.op_id)))

    def steps_of(self, op_id: str) -> tuple[AttemptStep, ...]:
        """The commands of an attempt, in order."""
        return tuple(self.steps.get(op_id, ()))

    def fence_of(self, incident_id: str) -> Fence | None:
        """The fence on record for an incident."""
        return next(iter(self.fences_by_incident.get(incident_id, {}).values()), None)

    def fence_stands(self, fence: Fence) -> bool:
        """Whether the fence was seen in Slurm, in force, over its node."""
        seen = self.fleet.observation.reservations.get(fence.name)
        return seen is not None and fence.node in seen.nodes and seen.start_s <= self.fleet.observation.at

    def foreign_maintenance(self, node: str) -> ReservationView | None:
        """A maintenance reservation of somebody else that is in force over the node."""
        if self.maintained is None:
            self.maintained = self._maintained()
        return self.maintained.get(node)

    def _maintained(self) -> dict[str, ReservationView]:
        found: dict[str, ReservationView] = {}
        at = self.fleet.observation.at
        for one in self.fleet.observation.reservations.values():
            ours = one.name.startswith(FENCE_PREFIX)
            if not ours and "MAINT" in one.flags and one.start_s <= at <= one.end_s:
                for name in one.nodes:
                    found.setdefault(name, one)
        return found

    def breaker_on(self, view: NodeView) -> Trip | None:
        """The open trip that stops new work on the node."""
        return blocking_trip(self.trips.values(), scopes_of(view, self.policy))

    @property
    def only_watching(self) -> str:
        """Why no action at all may be planned in this tick, not even to finish something; "" when it may."""
        return self.claim_problem or ("" if self.policy.mode is Mode.ACT else "observe mode")

    def not_allowed(self, view: NodeView, what: str) -> str:
        """Why `what` (a rung, `drain` or `return`) may not be done on the node; "" when it may."""
        hold = self.holds.get(view.name)
        if hold is not None:
            return f"held by {hold.actor}: {hold.text}; would {what}"
        if self.only_watching:
            return f"{self.only_watching}; would {what}"
        allowed = self.policy.partitions
        outside = [one for one in view.partitions if one not in allowed]
        if EVERYWHERE not in allowed and (outside or not view.partitions):
            where = f"partition {','.join(outside)} is not in `partitions`" if outside else "in no partition"
            return f"{where}; would {what}"
        if what not in self.policy.rungs:
            return f"`rungs` does not list {what}; would {what}"
        maintenance = self.foreign_maintenance(view.name)
        if maintenance is not None:
            return f"in maintenance reservation {maintenance.name} of others; would {what}"
        return ""

    # ------------------------------------------------------------ writing

    def hold(self, node: str, why: str) -> None:
        """Explain why nothing is done on the node now; the first word stands."""
        self.held.setdefault(node, why)

    def act(self, action: Action) -> None:
        """Plan an action."""
        self.actions.append(action)

    def event(
        self, node: str, kind: str, text: str, incident: Incident | None = None, actor: str = "daemon"
    ) -> None:
        """Add a line to the history."""
        self.events.append(Event(self.now, node, kind, text, actor, incident.id if incident else ""))

    def put_incident(self, incident: Incident) -> Incident:
        """Record an incident as it is now."""
        self.changed_incidents[incident.id] = incident
        if incident.step is Step.CLOSED:
            self.incidents.pop(incident.node, None)
        else:
            self.incidents[incident.node] = incident
        return incident

    def move(
        self, incident: Incident, to: Step, why: str, deadline_s: float | None = None, **changes: object
    ) -> Incident:
        """Move an incident and write the history line."""
        deadline = None if deadline_s is None else self.now + deadline_s
        view = self.nodes.get(incident.node)
        if to in (Step.HELD, Step.AWAITING_PERSON) and view is not None:
            verdict = self.verdict(view)
            # So that whoever releases it later can tell a verdict of this boot from one of a newer boot.
            changes.setdefault("boot_before", verdict.boot_id if verdict is not None else "")
        moved = move(incident, to, self.now, deadline, **changes)
        self.event(incident.node, "transition", f"{incident.step.value} -> {to.value}: {why}", moved)
        return self.put_incident(moved)

    def close(self, incident: Incident, outcome: str, why: str, actor_note: str = "") -> Incident:
        """Close an incident; Slurm's own findings end with it, others are acknowledged unless returned.

        Whoever took a drain away decided about the node, whoever lifted a code about that code alone.
        """
        closed = self.move(incident, Step.CLOSED, why, outcome=outcome, note=actor_note)
        for finding in self.findings_of(incident.node):
            if finding.boot_id == SLURM_SAYS:
                self.put_finding(replace(finding, cleared_at=self.now))
            elif not finding.acknowledged and (
                outcome == "cancelled" or (outcome == "lifted" and finding.code == incident.code)
            ):
                self.put_finding(replace(finding, acknowledged=True))
        return closed

    def put_finding(self, finding: Finding) -> None:
        """Record a finding as it is now."""
        key = finding_key(finding)
        self.changed_findings[key] = finding
        of_node = self.findings_by_node.setdefault(finding.node, {})
        if finding.cleared_at is None:
            of_node[key] = finding
        else:
            of_node.pop(key, None)

    def put_attempt(self, attempt: Attempt) -> None:
        """Record an attempt as it is now."""
        self.changed_attempts[attempt.op_id] = attempt
        self.open_attempts.pop(attempt.node, None)
        self._keep_attempt(attempt)

    def _keep_attempt(self, attempt: Attempt) -> None:
        self.attempts_by_node.setdefault(attempt.node, {})[attempt.op_id] = attempt
        if attempt.outcome is None:
            self.open_attempts[attempt.node] = attempt

    def resolve(self, attempt: Attempt, outcome: AttemptOutcome, detail: str) -> Attempt:
        """End an attempt by evidence."""
        ended = replace(attempt, outcome=outcome, ended_at=self.now, detail=detail)
        self.put_attempt(ended)
        text = f"{attempt.rung.value} attempt {attempt.n} {outcome.value}: {detail}"
        self.event_of(attempt, "attempt", text)
        return ended

    def event_of(self, attempt: Attempt, kind: str, text: str) -> None:
        """Add a line about an attempt to the history."""
        self.events.append(Event(self.now, attempt.node, kind, text, "daemon", attempt.incident_id))

    def put_step(self, step: AttemptStep) -> None:
        """Record a command of an attempt."""
        self.changed_steps.append(step)
        self.steps.setdefault(step.op_id, []).append(step)

    def put_fence(self, fence: Fence) -> None:
        """Record a fence as it is now."""
        self.changed_fences[fence.name] = fence
        if fence.closed_at is None:
            self._keep_fence(fence)
        else:
            self.fences.pop(fence.name, None)
            self.fences_by_incident.get(fence.incident_id, {}).pop(fence.name, None)

    def _keep_fence(self, fence: Fence) -> None:
        self.fences[fence.name] = fence
        self.fences_by_incident.setdefault(fence.incident_id, {})[fence.name] = fence

    def put_trip(self, trip: Trip) -> None:
        """Record a trip as it is now."""
        self.changed_trips.append(trip)
        if trip.reset_at is None:
            self.trips[trip.scope] = trip
        else:
            self.trips.pop(trip.scope, None)

    def put_hold(self, hold: Hold) -> None:
        """Record a person's hold as it is now."""
        self.changed_holds[hold.node] = hold
        if hold.released_at is None:
            self.holds[hold.node] = hold
        else:
            self.holds.pop(hold.node, None)

    def page(self, node: str, key: str, text: str) -> None:
        """Call a person."""
        self.act(Notice(key, "page", node, text))

    def inform(self, node: str, key: str, text: str) -> None:
        """Tell without calling."""
        self.act(Notice(key, "info", node, text))

    def freeze(self) -> Plan:
        """The plan without its status lines."""
        return Plan(
            incidents=tuple(self.changed_incidents.values()),
            findings=tuple(self.changed_findings.values()),
            attempts=tuple(self.changed_attempts.values()),
            steps=tuple(self.changed_steps),
            fences=tuple(self.changed_fences.values()),
            trips=tuple(self.changed_trips),
            hits=tuple(self.new_hits),
            holds=tuple(self.changed_holds.values()),
            events=tuple(self.events),
            requests_done=tuple(self.requests_done),
            actions=tuple(self.actions),
            held=tuple(Held(node, why) for node, why in sorted(self.held.items())),
            not_acting=self.claim_problem,
        )


def is_our_reservation(name: str) -> bool:
    """Whether a reservation's name is one of our fences'."""
    return name.startswith(FENCE_PREFIX) and not name.startswith(REASON_PREFIX)
