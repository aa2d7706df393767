"""The plan checker: safety rules that hold whatever the planner thought. It shares no decision with it.

It runs before every execution, and as the oracle of the simulation. A plan that breaks a rule is refused as
a whole: halt actions, keep observing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_lifecycle.core.formats import is_our_reason, parse_claim
from slurm_lifecycle.core.machine import RESTORING, MachineCommand, StepOutcome
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    Fleet,
    Incident,
    JobView,
    NodeView,
    Owner,
    Rung,
    Step,
)
from slurm_lifecycle.core.ownership import claim_bearer, is_drained, jobs_by_node, owner_of
from slurm_lifecycle.core.plan import Drain, Plan, RemoveFence, SendStep, SetComment, StartAttempt, Undrain
from slurm_lifecycle.core.policy import Mode, Policy

# A machine that is on does nothing when it is told to go on, nor one without an override to drop it.
_AT_MOST = {MachineCommand.ON: 3, MachineCommand.BOOT_CLEAR: 3}
_DISRUPTIVE = frozenset({Rung.GPU_RESET, Rung.REBOOT, Rung.POWER, Rung.REIMAGE})


def check_plan(fleet: Fleet, plan: Plan, policy: Policy, now: float) -> tuple[str, ...]:
    """Every rule that the plan breaks, in words; empty when it is safe."""
    problems: list[str] = []
    incidents = {**fleet.records.incidents, **{one.node: one for one in plan.incidents}}
    on_record = _OnRecord.of(fleet, plan)
    for action in plan.actions:
        if isinstance(action, Drain):
            problems += _check_drain(fleet, action, policy)
        elif isinstance(action, Undrain):
            problems += _check_undrain(fleet, on_record, action, incidents, policy)
        elif isinstance(action, StartAttempt):
            problems += _check_start(fleet, on_record, action, policy, now)
        elif isinstance(action, SendStep):
            problems += _check_step(fleet, plan, on_record, action, policy)
        elif isinstance(action, RemoveFence):
            problems += _check_remove_fence(fleet, plan, on_record, action)
    problems += _check_mode(fleet, plan, policy)
    problems += _check_rows(fleet, plan)
    problems += _check_breaker(fleet, plan, policy)
    return tuple(problems)


@dataclass(frozen=True, slots=True)
class _OnRecord:
    """What the rules look up by node for each of a plan's actions, put in order once.

    Attributes:
        earlier: attempts on record before this plan.
        unresolved: attempts without an end as the plan leaves them.
        jobs: for nodes on which something is started.
    """

    earlier: Mapping[str, list[Attempt]]
    unresolved: Mapping[str, list[Attempt]]
    jobs: Mapping[str, list[JobView]]

    @classmethod
    def of(cls, fleet: Fleet, plan: Plan) -> "_OnRecord":
        """Look at every attempt and, where something is started, at every job once."""
        if not any(isinstance(one, StartAttempt | SendStep | Undrain | RemoveFence) for one in plan.actions):
            return cls({}, {}, {})
        started = {one.attempt.node for one in plan.actions if isinstance(one, StartAttempt | SendStep)}
        attempts = {one.op_id: one for one in (*fleet.records.attempts, *plan.attempts)}
        return cls(
            _by_node(fleet.records.attempts),
            _by_node(one for one in attempts.values() if one.outcome is None),
            jobs_by_node(fleet.observation.jobs, started) if started else {},
        )


def _by_node(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for one in attempts:
        found.setdefault(one.node, []).append(one)
    return found


def _view(fleet: Fleet, node: str) -> NodeView | None:
    return fleet.observation.nodes.get(node)


def _check_drain(fleet: Fleet, action: Drain, policy: Policy) -> Iterable[str]:
    view = _view(fleet, action.node)
    if view is None:
        yield f"drain of {action.node}, which Slurm does not have"
        return
    if owner_of(view, policy) is Owner.PERSON:
        yield f"drain of {action.node} over a person's reason"
    if not is_our_reason(action.reason):
        yield f"drain of {action.node} with a reason that is not ours"


def _check_undrain(
    fleet: Fleet, on_record: _OnRecord, action: Undrain, incidents: dict[str, Incident], policy: Policy
) -> Iterable[str]:
    view = _view(fleet, action.node)
    incident = incidents.get(action.node)
    if view is None or owner_of(view, policy) is not Owner.OURS:
        yield f"return of {action.node}, whose drain is not ours"
    if incident is None or incident.id != action.incident_id or incident.step is not Step.RETURNING:
        yield f"return of {action.node} without an incident that is returning"
    if on_record.unresolved.get(action.node):
        yield f"return of {action.node} with an attempt under way"


def _check_start(
    fleet: Fleet, on_record: _OnRecord, action: StartAttempt, policy: Policy, now: float
) -> Iterable[str]:
    attempt = action.attempt
    node = attempt.node
    if [one.op_id for one in on_record.unresolved.get(node, ())] != [attempt.op_id]:
        yield f"{attempt.op_id}: not the only unresolved attempt on record for {node}"
    if attempt.rung not in _DISRUPTIVE or action.again:
        # What is sent again does nothing twice; the executor looks at the node once more all the same.
        return
    yield from _check_disruption(fleet, on_record, action, policy)
    view = _view(fleet, node)
    if attempt.rung is Rung.REBOOT and view is not None and {"NOT_RESPONDING", "DOWN"} & view.state:
        yield f"{attempt.op_id}: {node} does not respond"
    yield from _check_caps(on_record, attempt, policy, now)


def _check_disruption(
    fleet: Fleet, on_record: _OnRecord, action: StartAttempt | SendStep, policy: Policy
) -> Iterable[str]:
    attempt = action.attempt
    node = attempt.node
    view = _view(fleet, node)
    if view is None or not is_drained(view, on_record.jobs[node]):
        yield f"{attempt.op_id}: {node} is not drained"
        return
    if owner_of(view, policy) is not Owner.OURS:
        yield f"{attempt.op_id}: the drain of {node} is not ours"
    fence = fleet.observation.reservations.get(action.fence)
    if fence is None or node not in fence.nodes or fence.start_s > fleet.observation.at:
        yield f"{attempt.op_id}: no fence over {node}"


def _check_caps(on_record: _OnRecord, attempt: Attempt, policy: Policy, now: float) -> Iterable[str]:
    for cap in policy.caps.get(attempt.rung, ()):
        earlier = sum(
            1
            for one in on_record.earlier.get(attempt.node, ())
            if one.rung is attempt.rung
            and one.op_id != attempt.op_id
            and one.outcome is not AttemptOutcome.CANCELLED
            and now - one.created_at < cap.window_s
        )
        if earlier >= cap.count:
            yield f"{attempt.op_id}: over the cap of {cap.count} in {cap.window_s:g} s"


def _check_step(
    fleet: Fleet, plan: Plan, on_record: _OnRecord, action: SendStep, policy: Policy
) -> Iterable[str]:
    """A command to a machine: written down first, never twice, and nothing is taken from a node in use."""
    attempt, step = action.attempt, action.step
    name = f"{attempt.op_id} {step.command.value}"
    if [one.op_id for one in on_record.unresolved.get(attempt.node, ())] != [attempt.op_id]:
        yield f"{name}: its attempt is not the only unresolved one on record for {attempt.node}"
    if step.op_id != attempt.op_id or step not in plan.steps:
        yield f"{name}: not written down before it is sent"
    earlier = [one for one in fleet.records.steps if one.op_id == attempt.op_id]
    if any(one.n >= step.n for one in earlier):
        yield f"{name}: its number was given before"
    # Over a cut that a daemon died it may have been sent; the others are asked for again by what was read.
    none = {StepOutcome.REFUSED, None} if step.command in RESTORING else {StepOutcome.REFUSED}
    sent = [one for one in earlier if one.command is step.command and one.outcome not in none]
    if len(sent) >= _AT_MOST.get(step.command, 1):
        yield f"{name}: was sent {len(sent)} times before"
    if step.command is MachineCommand.OFF_SEEN:
        yield f"{name}: is no command"
    if step.command in RESTORING:
        return
    yield from _check_disruption(fleet, on_record, action, policy)
    if not earlier:
        # As they were when the attempt was written down, an hour ago perhaps.
        yield from _check_caps(on_record, attempt, policy, attempt.created_at)


def _check_remove_fence(fleet: Fleet, plan: Plan, on_record: _OnRecord, action: RemoveFence) -> Iterable[str]:
    incident_of_fence = next(
        (
            one.incident_id
            for one in (*fleet.records.fences.values(), *plan.fences)
            if one.name == action.name
        ),
        None,
    )
    if incident_of_fence is None:
        yield f"removal of reservation {action.name}, which is not a fence on record"
    if any(one.incident_id == incident_of_fence for one in on_record.unresolved.get(action.node, ())):
        yield f"removal of fence {action.name} with an attempt under way"


def _check_mode(fleet: Fleet, plan: Plan, policy: Policy) -> Iterable[str]:
    effects = [one for one in plan.actions if type(one).__name__ != "Notice"]
    if not effects:
        return
    if policy.mode is not Mode.ACT:
        yield f"{len(effects)} effects in observe mode"
        return
    first = claim_bearer(fleet.observation.nodes)
    claim = parse_claim(first.comment) if first is not None else None
    me = fleet.identity
    if claim is not None and claim.instance == me.instance and claim.generation == me.generation:
        return
    only_claim = (
        first is not None
        and len(effects) == 1
        and isinstance(effects[0], SetComment)
        and effects[0].node == first.name
    )
    if not only_claim:
        yield "effects without the claim on the cluster"


def _check_rows(fleet: Fleet, plan: Plan) -> Iterable[str]:
    open_by_node = Counter(
        one.node
        for one in {
            **{one.id: one for one in fleet.records.incidents.values()},
            **{one.id: one for one in plan.incidents},
        }.values()
        if one.step is not Step.CLOSED
    )
    for node, count in open_by_node.items():
        if count > 1:
            yield f"{node}: {count} open incidents"
    known = {one.op_id for one in (*fleet.records.attempts, *plan.attempts)}
    for action in plan.actions:
        if isinstance(action, StartAttempt | SendStep) and action.attempt.op_id not in known:
            yield f"{action.attempt.op_id}: not written down before it is sent"


def _check_breaker(fleet: Fleet, plan: Plan, policy: Policy) -> Iterable[str]:
    """A new attempt on a node under an open trip, or more nodes in work than any limit allows."""
    trips = {one.scope: one for one in fleet.records.trips if one.reset_at is None}
    for trip in plan.trips:
        if trip.reset_at is None:
            trips[trip.scope] = trip
        else:
            trips.pop(trip.scope, None)
    before = {one.op_id for one in fleet.records.attempts}
    for attempt in plan.attempts:
        if attempt.op_id in before:
            continue
        domain = policy.domains.get(attempt.node)
        if "fleet" in trips or (domain and f"domain:{domain}" in trips):
            yield f"{attempt.op_id}: started although the breaker is tripped"
