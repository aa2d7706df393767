"""Attempts that go step by step through a machine's BMC: each tick takes them one command further.

`core.power_sequence` says what is next; here is what it may depend on, and what becomes of it in the plan.
"""

from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.evidence import (
    abort_image,
    apply_end,
    came_back,
    image_proven,
    marker_text,
    through_bmc,
)
from slurm_lifecycle.core.ladder import permission
from slurm_lifecycle.core.machine import AttemptStep, MachineCommand, StepOutcome
from slurm_lifecycle.core.model import Attempt, NodeView, Owner, ProvisionState, Rung
from slurm_lifecycle.core.ownership import is_drained, reboot_under_way, understood
from slurm_lifecycle.core.plan import SendStep
from slurm_lifecycle.core.power_sequence import next_step
from slurm_lifecycle.core.sequence_record import End, Goal, Marker, Note, Send, Situation


def take_steps(draft: Draft) -> None:
    """The next command of every such attempt that is open."""
    for attempt in sorted(draft.open_attempts.values(), key=lambda one: one.op_id):
        if through_bmc(attempt, draft.policy):
            _take_step(draft, attempt)


def _take_step(draft: Draft, attempt: Attempt) -> None:
    situation = _situation(draft, attempt)
    decision = next_step(situation)
    words = f"{attempt.rung.value} attempt {attempt.n}"
    if isinstance(decision, End):
        ended = draft.resolve(attempt, decision.outcome, decision.detail)
        if draft.steps_of(attempt.op_id):
            abort_image(draft, ended)
        apply_end(draft, ended)
        return
    if isinstance(decision, Send):
        # Not even what would put it in order: this daemon may be the one that is not to act here.
        if draft.only_watching:
            draft.held[attempt.node] = f"{words}: {draft.only_watching}; would send {decision.command.value}"
            return
        step = _step(draft, attempt, decision.command)
        fence = draft.fence_of(attempt.incident_id)
        draft.put_step(step)
        draft.act(SendStep(attempt, step, fence.name if fence is not None else ""))
        draft.held[attempt.node] = f"{words}: {decision.command.value} is sent"
    elif isinstance(decision, Note):
        step = _step(draft, attempt, MachineCommand.OFF_SEEN)
        draft.put_step(_noted(step, draft.now))
        draft.event_of(attempt, "step", f"{words}: the machine is off")
        draft.held[attempt.node] = f"{words}: is off"
    else:
        draft.held[attempt.node] = f"{words}: {decision.why}"


def _step(draft: Draft, attempt: Attempt, command: MachineCommand) -> AttemptStep:
    number = len(draft.steps_of(attempt.op_id)) + 1
    return AttemptStep(attempt.op_id, number, command, draft.now)


def _noted(step: AttemptStep, now: float) -> AttemptStep:
    return AttemptStep(step.op_id, step.n, step.command, step.created_at, StepOutcome.ACCEPTED, now)


def _situation(draft: Draft, attempt: Attempt) -> Situation:
    view = draft.nodes.get(attempt.node)
    booted_at = None
    if view is not None and understood(view) and came_back(draft, attempt, view):
        booted_at = view.boot_time_s
    proven = view is not None and image_proven(draft, attempt, view)
    status = draft.fleet.observation.provision.get(attempt.op_id)
    failed = status is not None and status.state is ProvisionState.FAILED
    return Situation(
        goal=_goal(draft, attempt),
        created_at=attempt.created_at,
        deadline=attempt.deadline,
        steps=draft.steps_of(attempt.op_id),
        gone=view is None,
        reading=draft.fleet.observation.machines.get(attempt.node),
        now=draft.now,
        limits=draft.policy.machine,
        may_not=_may_not(draft, attempt, view),
        booted_at=booted_at,
        marker=Marker.PROVEN if proven else Marker.OTHER,
        marker_text=marker_text(draft, view),
        install_failed=(status.text or "the provisioner says failed") if failed and status else "",
    )


def _goal(draft: Draft, attempt: Attempt) -> Goal:
    if attempt.rung is Rung.REIMAGE:
        return Goal.REIMAGE
    incident = draft.incidents.get(attempt.node)
    mine = incident is not None and incident.id == attempt.incident_id
    wanted = mine and incident is not None and incident.code in draft.policy.ac_cycle_codes
    return Goal.AC_CYCLE if wanted else Goal.POWER_CYCLE


def _may_not(draft: Draft, attempt: Attempt, view: NodeView | None) -> str:
    """Why nothing may be taken from the node now; "" when it may."""
    if view is None:
        return f"{attempt.node} is not in Slurm any more"
    fence = draft.fence_of(attempt.incident_id)
    if draft.owner(view) is not Owner.OURS:
        return f"the drain is not ours any more: {view.reason[:80]!r}"
    if not is_drained(view, draft.jobs_on(view.name)):
        return "not drained any more"
    if fence is None or not draft.fence_stands(fence):
        return "its fence does not stand"
    if reboot_under_way(view):
        return "Slurm shows a reboot under way"
    return draft.not_allowed(view, permission(attempt.rung))
