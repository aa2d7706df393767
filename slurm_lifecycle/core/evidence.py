"""What became of attempts that were sent: judged by what was read after they were, never by the reply."""

from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.formats import tells_of_a_reboot
from slurm_lifecycle.core.ladder import needs_bmc, permission
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, NodeView, ProvisionState, Rung, Step
from slurm_lifecycle.core.ownership import REBOOT_TOKENS, is_drained, reboot_under_way, understood
from slurm_lifecycle.core.plan import AbortImage, StartAttempt
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.core.transitions import update

# By their contract these do nothing twice for one operation id.
IDEMPOTENT_RUNGS = frozenset({Rung.REIMAGE, Rung.RMA, Rung.RESEAT})
# Far longer than a slurmctld that hangs takes to carry out a request of a client that is gone.
UNSENT_AFTER_S = 120.0
# slurmd reckons its boot time anew at each registration, from an uptime in whole seconds.
_BOOT_TIME_JITTER_S = 2.0


def abort_image(draft: Draft, attempt: Attempt) -> None:
    """A reimage that ended without success must not begin after all at some later start."""
    unproven = attempt.rung is Rung.REIMAGE and attempt.outcome is not AttemptOutcome.SUCCEEDED
    if unproven and not draft.only_watching:
        draft.act(AbortImage(attempt.node, attempt.op_id))


def through_bmc(attempt: Attempt, policy: Policy) -> bool:
    """Whether an attempt is carried out by commands to the node's BMC, one a tick (`core.stepwise`)."""
    return needs_bmc(attempt.rung, policy)


def proven(draft: Draft, attempt: Attempt, view: NodeView) -> bool:
    """Whether the node came back by this attempt, after it was given up."""
    back = came_back(draft, attempt, view)
    return back and (attempt.rung is not Rung.REIMAGE or image_proven(draft, attempt, view))


def judge_open_attempts(draft: Draft) -> None:
    """Resolve every unresolved attempt that the observation proves or whose deadline has passed."""
    for attempt in sorted(draft.open_attempts.values(), key=lambda one: one.op_id):
        view = draft.nodes.get(attempt.node)
        if through_bmc(attempt, draft.policy):
            continue
        judged = _judge(draft, attempt, view)
        if judged is None:
            draft.hold(
                attempt.node, f"{attempt.rung.value} attempt {attempt.n}: waits for evidence of its end"
            )
            continue
        outcome, detail = judged
        ended = draft.resolve(attempt, outcome, detail)
        abort_image(draft, ended)
        apply_end(draft, ended)


def send_unsent(draft: Draft) -> None:
    """The daemon died between writing an attempt down and sending it: safe again where it is idempotent.

    What persons decided since counts: the configuration, a hold, also one that this tick was asked for.
    """
    for attempt in sorted(draft.open_attempts.values(), key=lambda one: one.op_id):
        view = draft.nodes.get(attempt.node)
        if attempt.sent or attempt.rung not in IDEMPOTENT_RUNGS or view is None:
            continue
        if through_bmc(attempt, draft.policy):
            continue
        why_not = draft.not_allowed(view, permission(attempt.rung))
        if why_not:
            # In place of waiting for evidence, of which there can be none.
            draft.held[attempt.node] = f"{attempt.rung.value} attempt {attempt.n} was not sent; {why_not}"
            continue
        fence = draft.fence_of(attempt.incident_id)
        draft.act(StartAttempt(attempt, fence.name if fence is not None else "", again=True))


def _judge(draft: Draft, attempt: Attempt, view: NodeView | None) -> tuple[AttemptOutcome, str] | None:
    overdue = draft.now >= attempt.deadline
    if view is not None and understood(view):
        if attempt.rung is Rung.REBOOT and came_back(draft, attempt, view):
            return AttemptOutcome.SUCCEEDED, "a new boot was seen"
        if attempt.rung is Rung.REIMAGE:
            judged = _judge_reimage(draft, attempt, view)
            if judged is not None:
                return judged
        if attempt.rung is Rung.REBOOT and _never_sent(draft, attempt, view):
            return AttemptOutcome.CANCELLED, "the daemon ended before it was sent"
    if overdue:
        return AttemptOutcome.AMBIGUOUS, "no evidence by its deadline"
    return None


def _never_sent(draft: Draft, attempt: Attempt, view: NodeView) -> bool:
    """The daemon died between writing a reboot down and sending it.

    slurmctld shows a reboot from the moment it takes the request, until a newer boot registers. A node that
    long afterwards shows neither, and still lives in the old boot, never got one. The time is for a request
    that a slurmctld which hung carries out late (measured: also after the client was killed). The verdict
    alone does not tell the boot: after one in which the agent did not start, that of the boot before stands.
    A node that is down may be so by that very reboot; its reason tells, since it was written anew before.
    """
    verdict = draft.verdict(view)
    return (
        not attempt.sent
        and draft.now - attempt.created_at >= UNSENT_AFTER_S
        and not view.state & (REBOOT_TOKENS | {"DOWN", "NOT_RESPONDING"})
        and not tells_of_a_reboot(view.reason)
        and verdict is not None
        and verdict.boot_id == attempt.boot_before
        and (view.boot_time_s is None or view.boot_time_s <= attempt.created_at)
        and is_drained(view, draft.jobs_on(view.name))
    )


def _judge_reimage(draft: Draft, attempt: Attempt, view: NodeView) -> tuple[AttemptOutcome, str] | None:
    status = draft.fleet.observation.provision.get(attempt.op_id)
    if status is None:
        return None
    if status.state is ProvisionState.FAILED:
        return AttemptOutcome.FAILED, status.text or "the provisioner says failed"
    home = draft.fleet.records.homes.get(attempt.op_id)
    if (status.state is not ProvisionState.DONE and home is None) or not came_back(draft, attempt, view):
        return None
    if image_proven(draft, attempt, view):
        return AttemptOutcome.SUCCEEDED, "the image asked for was installed and a new boot was seen"
    booted_at = view.boot_time_s
    if booted_at is not None and draft.now >= booted_at + draft.policy.machine.marker_s:
        return AttemptOutcome.FAILED, f"the provisioner says done, but {marker_text(draft, view)}"
    return None


def image_proven(draft: Draft, attempt: Attempt, view: NodeView) -> bool:
    """Whether what the node runs is what this very reimage left there.

    A new boot alone proves a reboot, the image's name alone passes where the disk held it before. The node
    names both in its verdict; one that phoned home said so with the operation's one-time token.
    """
    if not draft.policy.image_marker:
        return True
    home = draft.fleet.records.homes.get(attempt.op_id)
    if home is not None:
        return home.node == attempt.node and home.image == draft.policy.image
    verdict = draft.verdict(view)
    return (
        verdict is not None
        and verdict.boot_id != attempt.boot_before
        and (verdict.image_op, verdict.image) == (attempt.op_id, draft.policy.image)
    )


def marker_text(draft: Draft, view: NodeView | None) -> str:
    """What the node says of its image, in words."""
    verdict = None if view is None else draft.verdict(view)
    if verdict is None or not verdict.image_op:
        return "the node names no image marker"
    return f"the node's marker names image {verdict.image} of operation {verdict.image_op}"


def came_back(draft: Draft, attempt: Attempt, view: NodeView) -> bool:
    """Whether a boot newer than the attempt has registered: boot ids where known, else Slurm's boot time.

    The boot id on record is that of the verdict that stood then. Where the node had just booted and its agent
    had not spoken yet, it was that of the boot before: Slurm's boot time must be another one as well.
    """
    if reboot_under_way(view) or "NOT_RESPONDING" in view.state:
        return False
    verdict = draft.verdict(view)
    if attempt.boot_before:
        other_id = verdict is not None and verdict.boot_id != attempt.boot_before
        return other_id and not _same_boot_time(attempt, view)
    return view.boot_time_s is not None and view.boot_time_s > attempt.created_at


def _same_boot_time(attempt: Attempt, view: NodeView) -> bool:
    before, now = attempt.boot_time_before_s, view.boot_time_s
    return before is not None and now is not None and now <= before + _BOOT_TIME_JITTER_S


def apply_end(draft: Draft, attempt: Attempt) -> None:
    """What the end of an attempt means for its incident."""
    incident = draft.incidents.get(attempt.node)
    if incident is None or incident.id != attempt.incident_id or incident.step is not Step.REPAIRING:
        return
    # A reboot may have lost the drain (22.05 drops it when it times out): it counts as not confirmed, so
    # that it is issued again and its absence is not taken for a person's decision.
    if attempt.outcome is AttemptOutcome.SUCCEEDED:
        begin_verifying(draft, attempt, f"{attempt.rung.value} proven")
    else:
        draft.put_incident(update(incident, drain_confirmed=False, note=attempt.detail))


def begin_verifying(draft: Draft, attempt: Attempt, why: str) -> None:
    """The node came back from a repair: its checks of the new boot decide."""
    incident = draft.incidents[attempt.node]
    draft.move(
        incident,
        Step.VERIFYING,
        why,
        draft.policy.verify_deadline_s,
        boot_before=attempt.boot_before,
        verify_since=None,
        verify_runs=0,
        drain_confirmed=False,
    )
