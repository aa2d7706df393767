"""The way back: checks of the present boot, then the drain is lifted inside the fence, the fence last."""

from slurm_lifecycle.core.budget import scopes_of
from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.fault_catalog import Level, fault_for
from slurm_lifecycle.core.formats import make_reason
from slurm_lifecycle.core.intake import precedence
from slurm_lifecycle.core.model import AttemptOutcome, Incident, NodeView, Owner, Rung, Step, Verdict
from slurm_lifecycle.core.ownership import is_drained, is_out
from slurm_lifecycle.core.plan import Drain, RemoveFence, Undrain
from slurm_lifecycle.core.transitions import update

# Verdicts that say a check could not run or did not end: neither a pass nor a failure.
COULD_NOT_RUN = frozenset({"CHECK_FAILED", "PROBE_HUNG"})
MAX_VERIFY_RUNS = 2
# Seen in service in this many ticks in a row before an incident is closed as returned.
SERVICE_TICKS = 2


def verifying(draft: Draft, incident: Incident, view: NodeView) -> None:
    """Wait for a good verdict of a boot after the repair that holds for the settling time."""
    if "DRAIN" not in view.state or draft.owner(view) is not Owner.OURS:
        # The reboot lost it, or nobody had set it: checks are made on a drained node.
        why_not = draft.not_allowed(view, "drain")
        if why_not:
            draft.hold(view.name, f"verifying; lost its drain; {why_not}")
        else:
            draft.act(Drain(view.name, make_reason(incident.code, incident.component)))
            draft.hold(view.name, "verifying: being drained again")
        return
    verdict = draft.verdict(view)
    if _boot_is_over(incident, view, verdict):
        # A node that reboots by itself may not be missed by Slurm: what it said before is over.
        incident = draft.put_incident(update(incident, verify_since=None, boot_before=incident.verify_boot))
    problem = _not_yet(incident, view, verdict)
    if not problem and verdict is not None and verdict.level is Level.DRAIN:
        _failed(draft, incident, view, verdict)
        return
    if problem:
        _wait(draft, incident, view, problem)
        return
    assert verdict is not None
    if incident.verify_since is None or verdict.boot_id != incident.verify_boot:
        draft.put_incident(update(incident, verify_since=draft.now, verify_boot=verdict.boot_id))
        draft.hold(view.name, "verifying: verdict is good, settling")
        return
    if draft.now - incident.verify_since < draft.policy.verify_settle_s:
        draft.hold(view.name, "verifying: verdict is good, settling")
        return
    if not is_drained(view, draft.jobs_on(view.name)):
        draft.hold(view.name, "verifying: a job lists the node")
        return
    why_not = draft.not_allowed(view, "return")
    if why_not:
        draft.hold(view.name, f"checks passed; {why_not}")
        return
    cured_by = incident.rung.value if incident.rung is not None else ""
    draft.move(
        incident,
        Step.RETURNING,
        "checks of this boot passed",
        draft.policy.return_deadline_s,
        service_ticks=0,
        cured_by=cured_by,
    )


def _boot_is_over(incident: Incident, view: NodeView, verdict: Verdict | None) -> bool:
    """The node has booted since its verdict began to settle, and its agent has not spoken in the new boot."""
    since = incident.verify_since
    booted = since is not None and view.boot_time_s is not None and view.boot_time_s > since
    return booted and verdict is not None and verdict.boot_id == incident.verify_boot


def _not_yet(incident: Incident, view: NodeView, verdict: Verdict | None) -> str:
    """Why the verdict that stands cannot be judged; "" when it can."""
    if "NOT_RESPONDING" in view.state:
        return "the node does not respond"
    if verdict is None:
        return "the node's agent has not said anything"
    if incident.boot_before and verdict.boot_id == incident.boot_before:
        return "no verdict of the new boot yet"
    if verdict.code in COULD_NOT_RUN:
        return f"a check could not run ({verdict.code} {verdict.component})"
    return ""


def _wait(draft: Draft, incident: Incident, view: NodeView, problem: str) -> None:
    draft.hold(view.name, f"verifying: {problem}")
    if incident.verify_since is not None:
        incident = draft.put_incident(update(incident, verify_since=None))
    if incident.deadline is None or draft.now < incident.deadline:
        return
    runs = incident.verify_runs + 1
    if runs < MAX_VERIFY_RUNS:
        again = draft.now + draft.policy.verify_deadline_s
        draft.put_incident(update(incident, verify_runs=runs, deadline=again))
        draft.event(view.name, "verify", f"could not run: {problem}; once more", incident)
        return
    draft.move(incident, Step.HELD, f"checks could not run twice: {problem}", hold="verify", note=problem)


def _failed(draft: Draft, incident: Incident, view: NodeView, verdict: Verdict) -> None:
    """Checks failed: the next rung, of the worse class's path where the fault is another one now."""
    why = f"checks failed: {verdict.code} {verdict.component}"
    last = next(reversed(draft.attempts_of(incident)), None)
    if last is not None and last.outcome is AttemptOutcome.AMBIGUOUS:
        # It came back after its deadline and was checked for that. Left open to doubt, it would be sent to
        # the same checks for ever, and never a rung higher.
        draft.resolve(last, AttemptOutcome.FAILED, "came back after its deadline, and its checks failed")
    new_class = fault_for(verdict.code).fault_class
    # A check without a repair before it is not tried again: the next place of the path follows.
    index = incident.path_index + 1 if incident.rung is Rung.VERIFY else incident.path_index
    changes: dict[str, object] = {"code": verdict.code, "component": verdict.component, "path_index": index}
    if precedence(new_class) > precedence(incident.fault_class):
        changes |= {"fault_class": new_class, "path_index": 0}
    if draft.ledger.give_up_working(scopes_of(view, draft.policy)):
        # It waits for a place as any drained node does.
        draft.move(incident, Step.DRAINING, why, draft.policy.drain_deadline_s, **changes)
        return
    draft.move(incident, Step.REPAIRING, why, draft.policy.verify_deadline_s, **changes)


def _check_again(draft: Draft, incident: Incident, why: str, **changes: object) -> None:
    draft.move(
        incident,
        Step.VERIFYING,
        why,
        draft.policy.verify_deadline_s,
        verify_since=None,
        verify_runs=incident.verify_runs + 1,
        drain_confirmed=False,
        **changes,
    )


def count_service(draft: Draft, incident: Incident, view: NodeView) -> Incident:
    """Begin to count anew where the node is out again: it is seen in service so many times in a row."""
    if incident.service_ticks and (_fenced(draft, incident) or is_out(view)):
        return draft.put_incident(update(incident, service_ticks=0))
    return incident


def _fenced(draft: Draft, incident: Incident) -> bool:
    fence = draft.fence_of(incident.id)
    return fence is not None and fence.name in draft.fleet.observation.reservations


def _booted_on_its_way(draft: Draft, incident: Incident, view: NodeView) -> bool:
    """A node that booted after its checks, and is not in service yet, is checked again, twice at most."""
    verdict = draft.verdict(view)
    kept = bool(view.state & {"DRAIN", "DOWN"}) or _fenced(draft, incident)
    newer = view.boot_time_s is not None and view.boot_time_s > incident.step_since
    spoke = verdict is not None and verdict.boot_id != incident.verify_boot and bool(incident.verify_boot)
    if incident.lifted or not kept or not (newer or spoke):
        return False
    if incident.verify_runs < MAX_VERIFY_RUNS:
        over = incident.boot_before if spoke else incident.verify_boot
        _check_again(draft, incident, "it booted after its checks", boot_before=over)
    else:
        draft.hold(view.name, "returning: it booted after its checks, and again: a person has to look")
    return True


def returning(draft: Draft, incident: Incident, view: NodeView) -> None:
    """Undrain inside the fence, see it respond, remove the fence, see it in service, close."""
    verdict = draft.verdict(view)
    # Whoever lifted a code as a false alarm said nothing of another one.
    waived = incident.lifted and verdict is not None and verdict.code == incident.code
    if verdict is not None and verdict.level is Level.DRAIN and not waived:
        draft.move(
            incident,
            Step.DRAINING,
            f"{verdict.code} {verdict.component} before it was back",
            draft.policy.drain_deadline_s,
            code=verdict.code,
            component=verdict.component,
            drain_confirmed=False,
            lifted=False,
        )
        return
    if incident.deadline is not None and draft.now >= incident.deadline:
        draft.move(
            incident, Step.HELD, "not in service by the deadline", hold="return", note="return timed out"
        )
        return
    if _booted_on_its_way(draft, incident, view):
        return
    if view.state & {"DRAIN", "DOWN"}:
        why_not = draft.not_allowed(view, "return")
        if (
            draft.owner(view) is Owner.SLURM
            and not incident.lifted
            and incident.verify_runs < MAX_VERIFY_RUNS
        ):
            # 22.05: a slurmd answer between REBOOT_ISSUED and the node's death ends the reboot for Slurm;
            # the boot itself is then "unexpected", and takes the node DOWN after it was undrained.
            _check_again(draft, incident, f"Slurm took the node out again: {view.reason[:80]}")
        elif draft.owner(view) is not Owner.OURS:
            draft.hold(view.name, "returning: the drain is not ours any more")
        elif why_not:
            draft.hold(view.name, why_not)
        else:
            draft.act(Undrain(view.name, incident.id, resume="DOWN" in view.state))
            draft.hold(view.name, "returning: drain is being lifted")
        return
    if "NOT_RESPONDING" in view.state:
        draft.hold(view.name, "returning: waits for the node to respond")
        return
    fence = draft.fence_of(incident.id)
    if fence is not None and fence.name in draft.fleet.observation.reservations:
        if draft.only_watching:
            draft.hold(view.name, f"returning: {draft.only_watching}; would remove the fence")
            return
        draft.act(RemoveFence(fence.name, view.name))
        draft.hold(view.name, "returning: fence is being removed")
        return
    ticks = incident.service_ticks + 1
    if ticks < SERVICE_TICKS:
        draft.put_incident(update(incident, service_ticks=ticks))
        draft.hold(view.name, "returning: in service, seen once")
        return
    outcome = "lifted" if incident.lifted else "returned"
    draft.close(incident, outcome, "in service")
    draft.inform(
        view.name,
        f"returned:{incident.id}",
        f"{view.name}: back in service after {incident.cured_by or outcome}",
    )
