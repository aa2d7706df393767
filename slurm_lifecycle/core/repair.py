"""The repairing step: a fence first, then one attempt of the rung, judged by `core.evidence`."""

from slurm_lifecycle.core.draft import FENCE_PREFIX, Draft
from slurm_lifecycle.core.evidence import begin_verifying, proven, through_bmc
from slurm_lifecycle.core.formats import make_reason, tells_of_a_reboot
from slurm_lifecycle.core.ladder import MAX_CANCELLED_IN_A_ROW, TICKET_RUNGS, Choice, choose, permission
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, Fence, Incident, NodeView, Owner, Rung, Step
from slurm_lifecycle.core.ownership import is_drained
from slurm_lifecycle.core.plan import CreateFence, Drain, StartAttempt
from slurm_lifecycle.core.transitions import update


def repairing(draft: Draft, incident: Incident, view: NodeView) -> None:
    """No attempt is open: take what the last one came to, or start the next."""
    last = next(reversed(draft.attempts_of(incident)), None)
    if last is not None and last.outcome is AttemptOutcome.AMBIGUOUS and proven(draft, last, view):
        begin_verifying(draft, last, f"{last.rung.value} came back after its deadline")
        return
    if last is not None and last.rung in TICKET_RUNGS and last.outcome is AttemptOutcome.SUCCEEDED:
        _to_person(draft, incident, f"{last.rung.value} ticket written: {last.detail}")
        return
    if "DRAIN" not in view.state or draft.owner(view) is not Owner.OURS:
        _drain_again(draft, incident, view)
        return
    if not is_drained(view, draft.jobs_on(view.name)):
        draft.hold(view.name, "not drained any more: a job lists the node; nothing is started")
        return
    responding = "NOT_RESPONDING" not in view.state and "DOWN" not in view.state
    choice = choose(draft.policy, incident, draft.attempts_on(view.name), draft.now, responding)
    if choice.rule is None or choice.rule.rung is Rung.PERSON:
        await_person(draft, incident, choice)
        return
    if choice.rule.rung is Rung.VERIFY:
        draft.move(
            incident,
            Step.VERIFYING,
            "check",
            choice.rule.deadline_s,
            rung=Rung.VERIFY,
            # Else the check would be the next place of the path once more when it fails.
            path_index=choice.index,
            verify_since=None,
            verify_runs=0,
        )
        return
    if choice.index != incident.path_index or choice.rule.rung is not incident.rung:
        incident = draft.put_incident(
            update(
                incident,
                path_index=choice.index,
                rung=choice.rule.rung,
                deadline=draft.now + choice.rule.deadline_s,
                step_since=draft.now,
            )
        )
    _start(draft, incident, view, choice)


def _drain_again(draft: Draft, incident: Incident, view: NodeView) -> None:
    why_not = draft.not_allowed(view, "drain")
    if why_not:
        draft.hold(view.name, f"lost its drain; {why_not}")
        return
    draft.act(Drain(view.name, make_reason(incident.code, incident.component)))
    draft.hold(view.name, "lost its drain in the repair: being drained again")


def _start(draft: Draft, incident: Incident, view: NodeView, choice: Choice) -> None:
    assert choice.rule is not None
    rung = choice.rule.rung
    why_not = draft.not_allowed(view, permission(rung))
    trip = draft.breaker_on(view)
    if not why_not and trip is not None:
        why_not = f"breaker tripped ({trip.reason}); would {rung.value}"
    why_not = why_not or _recently_cancelled(draft, incident, rung) or _too_many_at_once(draft, view, rung)
    if why_not:
        draft.hold(view.name, why_not)
        return
    if rung not in TICKET_RUNGS and not fenced(draft, incident, view):
        return
    if rung is Rung.REBOOT and tells_of_a_reboot(view.reason):
        why_not = draft.not_allowed(view, "drain")
        if not why_not:
            draft.act(Drain(view.name, make_reason(incident.code, incident.component)))
        words = "its reason tells of an earlier reboot and has to be written anew before the next one"
        draft.hold(view.name, f"{words}; {why_not}" if why_not else words)
        return
    verdict = draft.verdict(view)
    attempt = Attempt(
        op_id=f"{incident.id}.{rung.value}.{choice.n}",
        incident_id=incident.id,
        node=view.name,
        rung=rung,
        n=choice.n,
        created_at=draft.now,
        deadline=draft.now + choice.rule.deadline_s,
        boot_before=verdict.boot_id if verdict is not None else "",
        boot_time_before_s=view.boot_time_s,
    )
    draft.put_attempt(attempt)
    if not through_bmc(attempt, draft.policy):
        fence = draft.fence_of(incident.id)
        draft.act(StartAttempt(attempt, fence.name if fence is not None else ""))
    draft.event(view.name, "attempt", f"{rung.value} attempt {choice.n} reserved", incident)
    draft.hold(view.name, f"{rung.value} attempt {choice.n} begins")


def _too_many_at_once(draft: Draft, view: NodeView, rung: Rung) -> str:
    """Power cycles draw their inrush together in a rack; an image server serves so many at a time."""
    policy = draft.policy
    limit = {Rung.POWER: policy.power_at_once, Rung.REIMAGE: policy.reimage_at_once}.get(rung)
    if limit is None:
        return ""
    nodes = [one.node for one in draft.open_attempts.values() if one.rung is rung]
    if len(nodes) >= limit:
        return f"{len(nodes)} nodes are in {rung.value} already, of {limit} at once"
    domain = policy.domains.get(view.name)
    if rung is Rung.POWER and domain is not None and any(policy.domains.get(one) == domain for one in nodes):
        return f"another node of {domain} is in {rung.value}"
    return ""


def _recently_cancelled(draft: Draft, incident: Incident, rung: Rung) -> str:
    """Attempts that could not even be sent are spaced out, and after three in a row a person is called."""
    tries = [
        one
        for one in draft.attempts_of(incident)
        if one.rung is rung and one.created_at >= incident.step_since
    ]
    cancelled = 0
    for one in reversed(tries):
        if one.outcome is not AttemptOutcome.CANCELLED:
            break
        cancelled += 1
    if cancelled >= MAX_CANCELLED_IN_A_ROW:
        why = f"{rung.value} was refused {cancelled} times: {tries[-1].detail}"
        if incident.step is not Step.HELD:
            draft.move(incident, Step.HELD, why, hold="refused", note=why)
        return why
    last = tries[-1] if tries else None
    if last is not None and last.ended_at is not None and cancelled:
        wait = draft.policy.retry_after_s * cancelled
        if draft.now - last.ended_at < wait:
            return f"{rung.value} could not be sent ({last.detail}); again in {wait:g} s"
    return ""


def fenced(draft: Draft, incident: Incident, view: NodeView) -> bool:
    """Whether the fence stands; plans it where it does not."""
    fence = draft.fence_of(incident.id)
    if fence is None:
        fence = Fence(f"{FENCE_PREFIX}{incident.id}", view.name, incident.id, draft.now)
        draft.put_fence(fence)
    if draft.fence_stands(fence):
        return True
    draft.act(CreateFence(fence.name, view.name))
    draft.hold(view.name, f"fence {fence.name} is being set")
    return False


def await_person(draft: Draft, incident: Incident, choice: Choice) -> None:
    """The ladder has nothing more that can be done without a person."""
    skipped = f" ({'; '.join(choice.skipped)})" if choice.skipped else ""
    _to_person(draft, incident, f"the ladder for {incident.fault_class.value} is exhausted{skipped}")


def _to_person(draft: Draft, incident: Incident, why: str) -> None:
    todo = (
        f"repair it, then `slurm-lifecycle node release {incident.node}`: it is checked before it goes back"
    )
    draft.move(incident, Step.AWAITING_PERSON, why, note=f"{why}; {todo}")
    draft.hold(incident.node, f"{why}; {todo}")
