"""What persons ask of the daemon, answered within the tick: holds, releases, repairs, the breaker."""

from dataclasses import replace

from slurm_lifecycle.core.budget import scopes_of
from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.intake import open_incident
from slurm_lifecycle.core.model import Hold, Incident, Owner, Request, Step, Verb
from slurm_lifecycle.core.transitions import WORKING_STEPS, update


def answer_requests(draft: Draft) -> None:
    """Take every pending request and write down its answer."""
    for request in draft.fleet.records.requests:
        answer = _answer(draft, request)
        draft.requests_done.append((request.id, answer))
        draft.event(_node_of(request), "request", f"{request.verb.value}: {answer}", actor=request.actor)


def _node_of(request: Request) -> str:
    return "" if request.verb in (Verb.BREAKER_RESET, Verb.BREAKER_LIFT) else request.subject


def _answer(draft: Draft, request: Request) -> str:
    if request.verb is Verb.BREAKER_RESET:
        return _reset_breaker(draft, request)
    if request.verb is Verb.BREAKER_LIFT:
        return _lift(draft, request)
    if request.subject not in draft.nodes:
        return _forget(draft, request)
    if request.verb is Verb.HOLD:
        draft.put_hold(Hold(request.subject, draft.now, request.actor, request.text or "no reason given"))
        return "held: nothing new is started on this node until it is released"
    if request.verb is Verb.RELEASE:
        return _release(draft, request)
    if request.verb in (Verb.RETURN, Verb.RMA_CLOSE):
        return _go_on(draft, request)
    return _remediate(draft, request)


def _forget(draft: Draft, request: Request) -> str:
    """A node that was taken out of Slurm: what is on record about it ends when a person says so."""
    refused = f"refused: Slurm has no node {request.subject}"
    if request.verb not in (Verb.RELEASE, Verb.RETURN, Verb.RMA_CLOSE):
        return refused
    hold, incident = draft.holds.get(request.subject), draft.incidents.get(request.subject)
    if hold is None and incident is None:
        return refused
    if draft.open_attempt(request.subject) is not None:
        return f"{refused}, and the end of its repair is waited for"
    if hold is not None:
        draft.put_hold(replace(hold, released_at=draft.now))
    if incident is not None:
        draft.close(incident, "cancelled", f"the node is not in Slurm any more; closed by {request.actor}")
    return "closed: the node is not in Slurm any more"


def _release(draft: Draft, request: Request) -> str:
    hold = draft.holds.get(request.subject)
    if hold is not None:
        draft.put_hold(replace(hold, released_at=draft.now))
        return f"released the hold of {hold.actor}"
    return _go_on(draft, request)


def _go_on(draft: Draft, request: Request) -> str:
    """A held or waiting incident goes on; it is always checked before the node goes back."""
    incident = draft.incidents.get(request.subject)
    if incident is None:
        return "refused: no open incident and no hold on this node"
    waits = incident.step in (Step.HELD, Step.AWAITING_PERSON)
    # A return skips what is left of the ladder, not the checks; what is under way is finished first.
    skips = request.verb is Verb.RETURN and incident.step in (Step.DRAINING, Step.REPAIRING)
    if not waits and not (skips and draft.open_attempt(incident.node) is None):
        return f"refused: the incident is {incident.step.value}, not waiting for a person"
    if draft.owner(draft.nodes[request.subject]) is Owner.PERSON:
        return "refused: the drain is a person's; undrain it in Slurm first"
    if incident.hold in ("drain_timeout", "refused", "adopt"):
        draft.move(
            incident,
            Step.DRAINING,
            f"released by {request.actor}",
            draft.policy.drain_deadline_s,
            drain_confirmed=False,
            note="",
        )
        return "released: the ladder goes on from the drain"
    if incident.step not in WORKING_STEPS:
        draft.ledger.take_working(scopes_of(draft.nodes[incident.node], draft.policy))
    draft.move(
        incident,
        Step.VERIFYING,
        f"released by {request.actor}",
        draft.policy.verify_deadline_s,
        verify_since=None,
        verify_runs=0,
        boot_before=_boot_that_is_over(draft, incident),
        drain_confirmed=False,
        note="",
    )
    return "released: the node is checked, then returned"


def _boot_that_is_over(draft: Draft, incident: Incident) -> str:
    """The boot whose verdict still stands in Slurm although the node has left it; "" where it has not.

    A person who mends a node powers it off and on. The verdict of the boot before stays in Slurm until an
    agent of the new boot speaks, and where none does, it must not pass for a check.
    """
    view = draft.nodes[incident.node]
    verdict = draft.verdict(view)
    if verdict is None:
        return ""
    if "NOT_RESPONDING" in view.state:
        return verdict.boot_id
    booted = view.boot_time_s is not None and view.boot_time_s > incident.step_since
    return verdict.boot_id if booted and verdict.boot_id == incident.boot_before else ""


def _remediate(draft: Draft, request: Request) -> str:
    view = draft.nodes[request.subject]
    if request.subject in draft.incidents:
        return f"refused: incident {draft.incidents[request.subject].id} is open already"
    if draft.owner(view) is Owner.PERSON:
        return "refused: the node is drained by a person; undrain it in Slurm first"
    opened = open_incident(draft, view, "MANUAL", "-", request.actor)
    return f"incident {opened.id} opened: the node is drained, then repaired from the first rung"


def _reset_breaker(draft: Draft, request: Request) -> str:
    wanted = request.subject
    reset = [trip for trip in draft.trips.values() if wanted in ("", "all", trip.scope)]
    if not reset:
        return f"refused: no breaker is tripped for {wanted or 'anything'}"
    for trip in reset:
        draft.put_trip(replace(trip, reset_at=draft.now))
    return f"reset: {', '.join(trip.scope for trip in reset)}; new work may start"


def _lift(draft: Draft, request: Request) -> str:
    """A person says that a code is a false alarm: what it concerns goes back without repair or check."""
    concerned = [one for one in draft.incidents.values() if one.code == request.subject]
    lifted: list[str] = []
    busy: list[str] = []
    for incident in sorted(concerned, key=lambda one: one.node):
        view = draft.nodes.get(incident.node)
        if view is None or draft.owner(view) is Owner.PERSON or incident.hold == "foreign":
            continue
        # What is under way is finished; a node past its repair is returned through its checks.
        if draft.open_attempt(incident.node) or incident.step in (Step.VERIFYING, Step.RETURNING):
            busy.append(incident.node)
            continue
        _let_go(draft, incident, drained=bool(view.state & {"DRAIN", "DOWN"}), actor=request.actor)
        lifted.append(incident.node)
    words = f"lifted {len(lifted)} nodes: {' '.join(lifted[:20])}" if lifted else "lifted nothing"
    return words + (f"; finishing first: {' '.join(busy[:20])}" if busy else "")


def _let_go(draft: Draft, incident: Incident, drained: bool, actor: str) -> None:
    why = f"{incident.code} lifted by {actor}"
    if not drained:
        draft.close(incident, "lifted", why)
        return
    if incident.step is Step.RETURNING:
        draft.put_incident(update(incident, lifted=True))
        return
    draft.move(
        incident,
        Step.RETURNING,
        why,
        draft.policy.return_deadline_s,
        lifted=True,
        service_ticks=0,
        cured_by="",
    )
