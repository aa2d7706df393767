"""Why a node is as it is, in words: pure, from what Slurm and the store say."""

from dataclasses import dataclass

from slurm_lifecycle.cli.output import ago, moment, span
from slurm_lifecycle.core.budget import blocking_trip, scopes_of
from slurm_lifecycle.core.fault_catalog import fault_for
from slurm_lifecycle.core.formats import parse_verdict
from slurm_lifecycle.core.ladder import choose
from slurm_lifecycle.core.model import (
    Attempt,
    Finding,
    Hold,
    Incident,
    JobView,
    NodeView,
    Owner,
    Rung,
    Step,
    Trip,
)
from slurm_lifecycle.core.ownership import owner_of
from slurm_lifecycle.core.plan import NodeStatus
from slurm_lifecycle.core.policy import Mode, Policy

_OWNERS = {
    Owner.OURS: "drained by this suite",
    Owner.PERSON: "drained by a person: never touched, not even when it is well again",
    Owner.SLURM: "taken out by Slurm itself",
    Owner.TOOL: "drained by another tool that policy lets us take over from",
    Owner.NOBODY: "not drained",
}


@dataclass(frozen=True, slots=True)
class WhyFacts:
    """What `explain` looks at.

    Attributes:
        view, jobs: None where Slurm does not know the node or could not be asked (`view_problem`).
        mode: the daemon's mode in its last tick, "" before the first.
    """

    node: str
    now: float
    policy: Policy
    view: NodeView | None = None
    view_problem: str = ""
    jobs: tuple[JobView, ...] | None = None
    status: NodeStatus | None = None
    incident: Incident | None = None
    attempts: tuple[Attempt, ...] = ()
    findings: tuple[Finding, ...] = ()
    hold: Hold | None = None
    trips: tuple[Trip, ...] = ()
    tick_at: float | None = None
    mode: str = ""


def explain(facts: WhyFacts) -> tuple[tuple[str, str], ...]:
    """Lines as (label, text), from what Slurm says to what a person can do."""
    lines: list[tuple[str, str]] = [("slurm", _slurm(facts)), ("node says", _node_says(facts))]
    lines += [("finding", _finding(one, facts.now)) for one in facts.findings]
    if facts.hold is not None:
        lines.append(("held", f"by {facts.hold.actor} since {moment(facts.hold.at)}: {facts.hold.text}"))
    if facts.incident is not None:
        lines.append(("incident", _incident(facts.incident, facts.now)))
        lines += [("attempt", _attempt(one, facts.now)) for one in facts.attempts]
    lines.append(("last tick", _tick(facts)))
    what_next = _next(facts)
    if facts.status is not None and facts.status.why not in ("", what_next):
        lines.append(("why", facts.status.why))
    lines.append(("next", what_next))
    lines += [("you can", text) for text in _you_can(facts)]
    return tuple(lines)


def _slurm(facts: WhyFacts) -> str:
    view = facts.view
    if view is None:
        return (
            f"could not be asked: {facts.view_problem}" if facts.view_problem else "does not know this node"
        )
    owner = owner_of(view, facts.policy)
    text = f"{'+'.join(sorted(view.state))}, {_OWNERS[owner]}"
    if view.reason:
        since = f" since {moment(view.reason_at_s)}" if view.reason_at_s else ""
        stale = " (a leftover: the node is in service)" if owner is Owner.NOBODY else ""
        text += f"; reason {view.reason!r}{since}{stale}"
    if facts.jobs:
        shown = ", ".join(f"{job.job_id} {job.state.lower()}" for job in facts.jobs[:5])
        text += f"; {len(facts.jobs)} jobs ({shown})"
    return text


def _node_says(facts: WhyFacts) -> str:
    verdict = parse_verdict(facts.view.extra) if facts.view is not None else None
    if verdict is None:
        return (
            "nothing: no agent has written its verdict (systemctl status slurm-lifecycle-agent, on the node)"
        )
    words = f"{verdict.level.value}, boot {verdict.boot_id[:8]}, message {verdict.seq} of it"
    if not verdict.code:
        return words
    return f"{verdict.code} {verdict.component} ({fault_for(verdict.code).text}): {words}"


def _finding(finding: Finding, now: float) -> str:
    seen = ", acknowledged: nothing is done until it clears" if finding.acknowledged else ""
    when = f"{finding.level.value}, {ago(finding.raised_at, now)}{seen}"
    return f"{finding.code} {finding.component} ({when}): {finding.text}"


def _incident(incident: Incident, now: float) -> str:
    text = (
        f"{incident.id}: {incident.code} {incident.component}, class {incident.fault_class.value}, opened "
        f"{ago(incident.opened_at, now)}; {incident.step.value} for {span(now - incident.step_since)}"
    )
    if incident.rung is not None:
        text += f", rung {incident.rung.value}"
    if incident.hold:
        text += f", held ({incident.hold})"
    if incident.deadline is not None:
        left = incident.deadline - now
        text += f", {span(left)} left" if left > 0 else f", {span(-left)} OVER its deadline"
    return text


def _attempt(attempt: Attempt, now: float) -> str:
    words = f"{attempt.rung.value} {attempt.n}, {ago(attempt.created_at, now)}: "
    if attempt.outcome is not None:
        return words + f"{attempt.outcome.value} {attempt.detail}".rstrip()
    left = attempt.deadline - now
    until = f"{span(left)} left to prove it" if left > 0 else "past its deadline, judged in the next tick"
    return words + (f"under way, {until}" if attempt.sent else "written down, not sent yet")


def _tick(facts: WhyFacts) -> str:
    if facts.tick_at is None:
        return "none yet: the daemon has not run on this store"
    return f"{ago(facts.tick_at, facts.now)}, mode {facts.mode}"


def _next(facts: WhyFacts) -> str:
    if facts.hold is not None:
        return "nothing new is started while the hold stands"
    incident = facts.incident
    if incident is None:
        return _next_without_incident(facts)
    if facts.mode != Mode.ACT.value:
        return f"nothing: the daemon only observes; it would go on from {incident.step.value}"
    open_attempt = next((one for one in facts.attempts if one.outcome is None), None)
    if open_attempt is not None:
        then = "checked" if open_attempt.rung not in (Rung.RMA, Rung.RESEAT) else "a person repairs it"
        return f"the {open_attempt.rung.value} is proven or times out; then {then}"
    if incident.step is Step.VERIFYING:
        settle = span(facts.policy.verify_settle_s)
        return (
            f"a good verdict of this boot for {settle}, then it is returned; a bad one: {_rung_after(facts)}"
        )
    if incident.step is Step.RETURNING:
        return "the drain is lifted, then the fence; closed once it was seen in service twice"
    if incident.step is Step.AWAITING_PERSON:
        return incident.note or "a person repairs it"
    if incident.step is Step.HELD:
        if incident.hold == "foreign":
            return "nothing while the person's drain stands; when it goes and the fault does not, we drain"
        return incident.note or "a person decides"
    trip = blocking_trip(facts.trips, scopes_of(facts.view, facts.policy)) if facts.view is not None else None
    if trip is not None:
        return f"nothing new: the breaker is tripped for {trip.scope} ({trip.reason})"
    jobs = "when its jobs have ended and a working place is free: " if incident.step is Step.DRAINING else ""
    return jobs + _rung_after(facts)


def _next_without_incident(facts: WhyFacts) -> str:
    owner = owner_of(facts.view, facts.policy) if facts.view is not None else Owner.NOBODY
    if owner is Owner.PERSON:
        return "nothing: it is the person's who drained it"
    if owner is Owner.SLURM and facts.policy.adopt_slurm:
        return f"taken over once Slurm's reason has stood for {span(facts.policy.adopt_after_s)}"
    if owner is Owner.TOOL:
        return f"taken over once the reason has stood for {span(facts.policy.adopt_after_s)}"
    if any(one.acknowledged for one in facts.findings):
        return "nothing until the acknowledged finding clears"
    return "nothing is to be done"


def _rung_after(facts: WhyFacts) -> str:
    """The rung that would be taken now, by the same choice that the planner makes."""
    assert facts.incident is not None
    state = facts.view.state if facts.view is not None else frozenset()
    responding = not state & {"NOT_RESPONDING", "DOWN"}
    choice = choose(facts.policy, facts.incident, facts.attempts, facts.now, responding)
    skipped = f" ({'; '.join(choice.skipped)})" if choice.skipped else ""
    if choice.rule is None:
        return f"a person is called, the ladder is exhausted{skipped}"
    return f"{choice.rule.rung.value} (attempt {choice.n} of {choice.rule.attempts}){skipped}"


def _you_can(facts: WhyFacts) -> tuple[str, ...]:
    cli, name, incident = "slurm-lifecycle", facts.node, facts.incident
    if facts.hold is not None:
        return (f"{cli} node release {name}",)
    if incident is None:
        return ()
    if incident.hold == "foreign":
        return (f"scontrol update NodeName={name} State=UNDRAIN  (if that drain is yours)",)
    if incident.step in (Step.HELD, Step.AWAITING_PERSON):
        return (f"{cli} node release {name}  (repaired: it is checked before it goes back)",)
    return (
        f"{cli} node hold {name} --reason TEXT  (nothing new is started)",
        f"{cli} breaker lift {incident.code}  (a false alarm: every node with it goes back unchecked)",
    )
