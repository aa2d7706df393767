"""One tick of one open incident: what its step does with what was observed."""

from slurm_lifecycle.core.budget import scopes_of
from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.fault_catalog import DrainedBy, fault_for
from slurm_lifecycle.core.formats import make_reason
from slurm_lifecycle.core.ladder import choose, permission
from slurm_lifecycle.core.model import AttemptOutcome, Incident, NodeView, Owner, Phase, Rung, Step
from slurm_lifecycle.core.ownership import REBOOT_TOKENS, is_drained, reboot_under_way, understood
from slurm_lifecycle.core.plan import Drain
from slurm_lifecycle.core.repair import await_person, repairing
from slurm_lifecycle.core.returning import count_service, returning, verifying
from slurm_lifecycle.core.standing import PAGED_BUSY
from slurm_lifecycle.core.transitions import TRANSIENT_STEPS, update

PHASE_OF_STEP = {
    Step.DRAINING: Phase.LEAVING,
    Step.REPAIRING: Phase.WORKING,
    Step.VERIFYING: Phase.VERIFYING,
    Step.RETURNING: Phase.RETURNING,
    Step.AWAITING_PERSON: Phase.OUT,
    Step.HELD: Phase.PARKED,
}


def advance(draft: Draft, incident: Incident) -> None:
    """Take one incident one step further, or say why not."""
    view = draft.nodes.get(incident.node)
    if view is None:
        command = f"slurm-lifecycle node release {incident.node}"
        draft.hold(incident.node, f"the node is not in Slurm any more; `{command}` closes its case")
        _page_if_overdue(draft, incident)
        return
    if not understood(view):
        draft.hold(incident.node, f"state {'+'.join(sorted(view.state))} is not one to act on")
        _page_if_overdue(draft, incident)
        return
    if _person_decided(draft, incident, view):
        return
    incident = count_service(draft, _confirm_drain(draft, incident, view), view)
    if draft.open_attempt(incident.node) is not None:
        _keep_drain(draft, incident, view)
    elif incident.step is Step.HELD:
        held(draft, incident, view)
    elif reboot_under_way(view):
        # Also a node that Slurm 22.05 leaves in REBOOT_ISSUED after a real boot, until ResumeTimeout.
        draft.hold(incident.node, "Slurm shows a reboot under way: nothing is done until it ends")
    elif incident.step is Step.DRAINING:
        draining(draft, incident, view)
    elif incident.step is Step.REPAIRING:
        repairing(draft, incident, view)
    elif incident.step is Step.VERIFYING:
        verifying(draft, incident, view)
    elif incident.step is Step.RETURNING:
        returning(draft, incident, view)
    else:
        draft.hold(incident.node, incident.note or "waits for a person")
    now_open = draft.incidents.get(incident.node)
    if now_open is not None and now_open.step is incident.step:
        _page_if_overdue(draft, now_open)


def _person_decided(draft: Draft, incident: Incident, view: NodeView) -> bool:
    """A person's drain takes the node over; a drain of ours that is gone was lifted by a person."""
    owner = draft.owner(view)
    if owner is Owner.PERSON:
        if incident.step is not Step.HELD:
            draft.move(incident, Step.HELD, f"a person's drain: {view.reason[:80]!r}", hold="foreign")
        elif incident.hold not in ("foreign", "adopt"):
            draft.put_incident(update(incident, hold="foreign"))
        draft.hold(incident.node, f"drained by a person ({view.reason[:80] or 'no reason given'}): untouched")
        return True
    ours_in_flight = (
        draft.open_attempt(incident.node) is not None
        or incident.step is Step.RETURNING
        or _end_not_seen(draft, incident)
    )
    in_service = owner is Owner.NOBODY and not view.state & REBOOT_TOKENS
    if in_service and incident.drain_confirmed and not ours_in_flight and incident.hold != "adopt":
        draft.close(incident, "cancelled", "the drain was taken away; the finding counts as acknowledged")
        return True
    return False


def _end_not_seen(draft: Draft, incident: Incident) -> bool:
    """A repair whose end nobody saw may still take the drain away: 22.05 drops it at ResumeTimeout."""
    last = next(reversed(draft.attempts_of(incident)), None)
    return incident.step is Step.REPAIRING and last is not None and last.outcome is AttemptOutcome.AMBIGUOUS


def _confirm_drain(draft: Draft, incident: Incident, view: NodeView) -> Incident:
    seen = "DRAIN" in view.state and draft.owner(view) is Owner.OURS
    if seen and not incident.drain_confirmed and incident.step is not Step.RETURNING:
        return draft.put_incident(update(incident, drain_confirmed=True))
    return incident


def _keep_drain(draft: Draft, incident: Incident, view: NodeView) -> None:
    """While an attempt is open, a drain that vanished is Slurm's doing: set it again."""
    if "DRAIN" not in view.state and incident.step is not Step.HELD:
        why_not = draft.not_allowed(view, "drain")
        if not why_not:
            draft.act(Drain(view.name, make_reason(incident.code, incident.component)))


def _page_if_overdue(draft: Draft, incident: Incident) -> None:
    if incident.deadline is None or draft.now < incident.deadline or incident.step not in TRANSIENT_STEPS:
        return
    why = draft.held.get(incident.node, incident.step.value)
    text = f"{incident.node}: {incident.step.value} past its deadline: {why}"
    draft.page(incident.node, f"overdue:{incident.id}:{incident.revision}", text)
    again = draft.now + (incident.deadline - incident.step_since)
    draft.put_incident(update(incident, deadline=again))
    draft.event(incident.node, "overdue", text, incident)


# ---------------------------------------------------------------- draining


def draining(draft: Draft, incident: Incident, view: NodeView) -> None:
    """Get the node out of the way: set the drain, wait for its jobs, then ask for a working place."""
    if "DRAIN" not in view.state or draft.owner(view) is not Owner.OURS:
        _start_drain(draft, incident, view)
        return
    if not is_drained(view, draft.jobs_on(view.name)):
        jobs = ",".join(sorted(job.job_id for job in draft.jobs_on(view.name))[:8])
        draft.hold(view.name, f"drains; waits for job {jobs or '(still completing)'} to end")
        if incident.deadline is not None and draft.now >= incident.deadline:
            note = f"jobs {jobs} still run at the deadline"
            draft.move(incident, Step.HELD, "not drained by the deadline", hold="drain_timeout", note=note)
        elif _hangs_on_dead_gpu(draft, incident):
            note = f"{PAGED_BUSY}job {jobs} on a node with {incident.code}"
            draft.put_incident(update(incident, note=note))
        return
    _admit(draft, incident, view)


def _hangs_on_dead_gpu(draft: Draft, incident: Incident) -> bool:
    waited = draft.now - incident.step_since
    return waited >= draft.policy.page_busy_after_s and not incident.note.startswith(PAGED_BUSY)


def _fault_is_gone(draft: Draft, incident: Incident) -> bool:
    """A fault that cleared before anybody drained for it needs no repair."""
    return not incident.drain_confirmed and not any(
        one.code == incident.code for one in draft.findings_of(incident.node)
    )


def _start_drain(draft: Draft, incident: Incident, view: NodeView) -> None:
    if _fault_is_gone(draft, incident) and incident.code != "MANUAL":
        draft.close(incident, "cleared", "the fault is gone before the node was drained")
        return
    why_not = draft.not_allowed(view, "drain")
    common = fault_for(incident.code).drained_by is not DrainedBy.NODE
    if not why_not and common and not _kept_by_a_fence(draft, incident):
        # Classes with a common cause take a place in the budget and wait for the breaker; a node that is
        # out already costs nobody anything more.
        trip = draft.breaker_on(view)
        if trip is not None:
            why_not = f"breaker tripped ({trip.reason}); would drain"
        elif draft.owner(view) is Owner.NOBODY:
            why_not = draft.ledger.admit_out(scopes_of(view, draft.policy))
    if why_not:
        draft.hold(view.name, why_not)
        return
    draft.act(Drain(view.name, make_reason(incident.code, incident.component)))
    draft.hold(view.name, "being drained")


def _kept_by_a_fence(draft: Draft, incident: Incident) -> bool:
    """After a return that was broken off: undrained already, and still nobody's to use."""
    fence = draft.fence_of(incident.id)
    return fence is not None and draft.fence_stands(fence)


def _admit(draft: Draft, incident: Incident, view: NodeView) -> None:
    responding = "NOT_RESPONDING" not in view.state and "DOWN" not in view.state
    choice = choose(draft.policy, incident, draft.attempts_on(view.name), draft.now, responding)
    if choice.rule is None or choice.rule.rung is Rung.PERSON:
        await_person(draft, incident, choice)
        return
    what = permission(choice.rule.rung)
    why_not = draft.not_allowed(view, what)
    trip = draft.breaker_on(view)
    if not why_not and trip is not None:
        why_not = f"breaker tripped ({trip.reason}); would {what}"
    if not why_not:
        why_not = draft.ledger.admit_working(scopes_of(view, draft.policy))
    if why_not:
        draft.hold(view.name, f"drained; {why_not}")
        return
    words = f"drained; {choice.rule.rung.value}" + (
        f" ({'; '.join(choice.skipped)})" if choice.skipped else ""
    )
    if choice.rule.rung is Rung.VERIFY:
        draft.move(
            incident,
            Step.VERIFYING,
            words,
            choice.rule.deadline_s,
            rung=Rung.VERIFY,
            path_index=choice.index,
            verify_since=None,
            verify_runs=0,
            boot_before="",
        )
        return
    draft.move(
        incident,
        Step.REPAIRING,
        words,
        choice.rule.deadline_s,
        rung=choice.rule.rung,
        path_index=choice.index,
    )


# ---------------------------------------------------------------- held


def held(draft: Draft, incident: Incident, view: NodeView) -> None:
    """What a held incident waits for; a person's drain that is gone wakes it."""
    if incident.hold == "foreign":
        if not any(one.code == incident.code for one in draft.findings_of(incident.node)):
            draft.close(incident, "cleared", "the fault is gone; the drain was a person's")
        elif draft.owner(view) is not Owner.PERSON:
            draft.move(
                incident,
                Step.DRAINING,
                "the person's drain is gone, the fault is not",
                draft.policy.drain_deadline_s,
            )
        return
    draft.hold(
        incident.node,
        f"held ({incident.hold}): {incident.note or 'waits for a person'}; "
        f"`slurm-lifecycle node release {incident.node}` lets it go on",
    )
