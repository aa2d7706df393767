"""The planner: what was observed and what is on record in, a plan out. Pure, and the same for the same input.

    plan(fleet, policy, now) -> Plan(rows to write, actions to take after that, held with reasons)

Level-triggered: every convergent effect is derived anew each tick, so a lost request or a killed daemon
changes nothing but the time it takes.
"""

from dataclasses import replace
from functools import lru_cache

from slurm_lifecycle.core.draft import FENCE_PREFIX, Draft, is_our_reservation
from slurm_lifecycle.core.evidence import judge_open_attempts, send_unsent
from slurm_lifecycle.core.formats import Claim, Mark, parse_claim, parse_mark, with_claim, with_mark
from slurm_lifecycle.core.intake import adopt_unknown, knows_case, take_in
from slurm_lifecycle.core.model import Fence, Fleet, Incident, NodeView, Owner, Phase, Step
from slurm_lifecycle.core.ownership import claim_bearer, is_out, understood
from slurm_lifecycle.core.plan import NodeStatus, Plan, RemoveFence, RenewFence, SetComment
from slurm_lifecycle.core.policy import DAY_S, Mode, Policy
from slurm_lifecycle.core.requests import answer_requests
from slurm_lifecycle.core.standing import begun_now, standing
from slurm_lifecycle.core.steps import PHASE_OF_STEP, advance
from slurm_lifecycle.core.stepwise import take_steps

# Slurm stores a reservation without end as 365 days; it is renewed long before that.
RENEW_BEFORE_S = 30 * DAY_S
# Twice as many as the largest fleet has nodes.
_STATUSES_KEPT = 32_768
# Held for these reasons, the node stays fenced: it may be undrained or unproven.
_FENCED_HOLDS = frozenset({"verify", "return", "refused", "adopt"})
_FENCED_STEPS = frozenset({Step.REPAIRING, Step.VERIFYING, Step.RETURNING})


def plan(fleet: Fleet, policy: Policy, now: float) -> Plan:
    """Decide one tick.

    Args:
        fleet: what was observed and what is on record.
        policy: the site's policy.
        now: seconds since the epoch.

    Returns:
        The plan; every node that would be acted on but is not stands in `held` with the reason.
    """
    draft = Draft.of(fleet, policy, now)
    draft.claim_problem = _claim(draft)
    if not draft.claim_problem and policy.mode is Mode.ACT:
        adopt_unknown(draft)
    judge_open_attempts(draft)
    answer_requests(draft)
    send_unsent(draft)
    take_steps(draft)
    take_in(draft)
    for name in sorted(draft.incidents):
        advance(draft, draft.incidents[name])
    _tend_fences(draft)
    _tend_marks(draft)
    return _with_statuses(draft)


# ---------------------------------------------------------------- who acts


def _claim(draft: Draft) -> str:
    """Why this daemon may not act on this cluster, "" when it may.

    The claim stands in the Comment of the first readable node by name. One by another instance, or by a later
    generation of this one (then this store is a restored backup), forbids every action until a person
    decides with `db claim`. It has no heartbeat: a claim does not age.
    """
    if draft.policy.mode is not Mode.ACT or not draft.nodes:
        return ""
    me = draft.fleet.identity
    for name in draft.survey.claimed:
        claim = parse_claim(draft.nodes[name].comment)
        if claim is None:
            continue
        if claim.instance not in (me.instance, me.took_over):
            return (
                f"the cluster is claimed by instance {claim.instance} on {claim.host} (Comment of {name}); "
                "stop that daemon, or take over with `slurm-lifecycle db claim`"
            )
        if claim.instance == me.instance and claim.generation > me.generation:
            return (
                f"this store is older than the cluster's claim (generation {me.generation} < "
                f"{claim.generation}): a restored backup? Check the nodes, then `slurm-lifecycle db claim`"
            )
    first = claim_bearer(draft.nodes)
    if first is None:
        return "no node can be read"
    mine = Claim(me.instance, me.host, me.generation)
    if parse_claim(first.comment) == mine:
        return ""
    draft.act(SetComment(first.name, with_claim(first.comment, mine), first.comment))
    draft.claim_pending = True
    return "the claim on the cluster is being written"


# ---------------------------------------------------------------- fences and marks


def _tend_fences(draft: Draft) -> None:
    """Renew fences that are needed, remove those that are not, and close the record when they are gone."""
    if draft.claim_problem or draft.policy.mode is not Mode.ACT:
        return
    _recall_fences(draft)
    for fence in sorted(draft.fences.values(), key=lambda one: one.name):
        seen = draft.fleet.observation.reservations.get(fence.name)
        if _fence_needed(draft, fence):
            if seen is not None and seen.end_s - draft.now < RENEW_BEFORE_S:
                draft.act(RenewFence(fence.name, draft.now + draft.policy.fence_days * DAY_S))
            continue
        if seen is None:
            closed = Fence(fence.name, fence.node, fence.incident_id, fence.created_at, draft.now)
            draft.put_fence(closed)
        else:
            draft.act(RemoveFence(fence.name, fence.node))


def _recall_fences(draft: Draft) -> None:
    """Put a fence of a case that we know back on record, so that it is tended.

    A slurmctld that hangs creates it long after it was asked to (measured: also after the client was killed).
    By then its case may be closed, or nothing was seen of the fence and its record is.
    """
    for name, reservation in draft.fleet.observation.reservations.items():
        if not is_our_reservation(name) or name in draft.fences:
            continue
        incident_id = name.removeprefix(FENCE_PREFIX)
        if reservation.nodes and knows_case(draft, incident_id):
            draft.put_fence(Fence(name, reservation.nodes[0], incident_id, draft.now))


def _fence_needed(draft: Draft, fence: Fence) -> bool:
    incident = draft.incidents.get(fence.node)
    attempt = draft.open_attempt(fence.node)
    if attempt is not None and attempt.incident_id == fence.incident_id:
        return True
    if incident is None or incident.id != fence.incident_id:
        return False
    # A return broken off, or a release, begins again at the drain: until that is seen, the fence holds.
    not_out_yet = incident.step is Step.DRAINING and not incident.drain_confirmed
    held = incident.step is Step.HELD and incident.hold in _FENCED_HOLDS
    return incident.step in _FENCED_STEPS or not_out_yet or held


def _tend_marks(draft: Draft) -> None:
    """Our mark on every node that we work on or that a person holds; none elsewhere."""
    if draft.claim_problem or draft.policy.mode is not Mode.ACT:
        return
    claimed = {one.node for one in draft.actions if isinstance(one, SetComment)}
    names = {*draft.incidents, *draft.holds, *draft.survey.marked}
    for name in sorted(names - claimed):
        view = draft.nodes.get(name)
        if view is None or not understood(view):
            continue
        wanted = _wanted_mark(draft, name)
        comment = with_mark(view.comment, wanted)
        if parse_mark(view.comment) != wanted or comment != view.comment:
            draft.act(SetComment(name, comment, view.comment))


def _wanted_mark(draft: Draft, name: str) -> Mark | None:
    incident = draft.incidents.get(name)
    held = name in draft.holds
    instance = draft.fleet.identity.instance
    # A person's node is left as it is, and observed incidents outside the allow-list leave no trace.
    if incident is not None and incident.hold != "foreign" and _marked(draft, draft.nodes[name], incident):
        return Mark(instance, incident.id, incident.revision, incident.step.value, held)
    return Mark(instance, "-", 0, "hold", True) if held else None


def _marked(draft: Draft, view: NodeView, incident: Incident) -> bool:
    return incident.drain_confirmed or not draft.not_allowed(view, "drain")


# ---------------------------------------------------------------- words


def _with_statuses(draft: Draft) -> Plan:
    statuses = dict(zip(draft.survey.names, map(_in_service, draft.survey.names), strict=True))
    for name in {*draft.survey.restless, *draft.incidents, *draft.held} & draft.nodes.keys():
        statuses[name] = _status(draft, draft.nodes[name])
    gone = tuple(
        NodeStatus(name, Phase.GONE, draft.held.get(name, ""))
        for name in sorted(draft.incidents)
        if name not in draft.nodes
    )
    waiting = standing(draft)
    for notice in begun_now(draft, waiting):
        draft.act(notice)
    return replace(draft.freeze(), statuses=(*statuses.values(), *gone), standing=waiting)


@lru_cache(maxsize=_STATUSES_KEPT)
def _in_service(name: str) -> NodeStatus:
    """What is said of a node that there is nothing to say of."""
    return NodeStatus(name, Phase.IN_SERVICE, "")


def _status(draft: Draft, view: NodeView) -> NodeStatus:
    why = draft.held.get(view.name, "")
    incident = draft.incidents.get(view.name)
    if not understood(view):
        return NodeStatus(view.name, Phase.UNKNOWN, why or f"state {'+'.join(sorted(view.state))}")
    if incident is not None:
        foreign = incident.hold == "foreign"
        return NodeStatus(view.name, Phase.FOREIGN if foreign else PHASE_OF_STEP[incident.step], why)
    owner = draft.owner(view)
    if owner is Owner.PERSON:
        return NodeStatus(view.name, Phase.FOREIGN, why or "drained by a person: untouched")
    if owner is not Owner.NOBODY:
        return NodeStatus(view.name, Phase.OUT, why or f"out, reason of {owner.value}: {view.reason[:80]}")
    if is_out(view):
        return NodeStatus(view.name, Phase.OUT, why)
    return NodeStatus(view.name, Phase.IN_SERVICE, why)
