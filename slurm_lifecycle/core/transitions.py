"""The only place that names legal moves of an incident, each with its reason; everything else asks here."""

from dataclasses import replace
from typing import Any

from slurm_lifecycle.core.model import Incident, Step

MOVES: dict[tuple[Step, Step], str] = {
    (Step.DRAINING, Step.REPAIRING): "drained, and a working place is free",
    (Step.DRAINING, Step.VERIFYING): "drained, and the first rung is a check",
    (Step.DRAINING, Step.HELD): "a person's drain, or not drained by the deadline",
    (Step.DRAINING, Step.RETURNING): "a person let it go",
    (Step.DRAINING, Step.AWAITING_PERSON): "nothing on the ladder can be done without a person",
    (Step.DRAINING, Step.CLOSED): "the drain was taken away, or the fault is gone before it was drained",
    (Step.REPAIRING, Step.VERIFYING): "the repair is proven",
    (Step.REPAIRING, Step.AWAITING_PERSON): "the ladder ends with a person",
    (Step.REPAIRING, Step.DRAINING): "the node is not drained any more",
    (Step.REPAIRING, Step.HELD): "a person's drain",
    (Step.REPAIRING, Step.RETURNING): "a person let it go",
    (Step.REPAIRING, Step.CLOSED): "the drain was taken away",
    (Step.VERIFYING, Step.RETURNING): "checks of this boot passed",
    (Step.VERIFYING, Step.REPAIRING): "checks failed, next rung",
    (Step.VERIFYING, Step.DRAINING): "checks failed, and every working place is taken",
    (Step.VERIFYING, Step.HELD): "no verdict by the deadline, or a person's drain",
    (Step.VERIFYING, Step.CLOSED): "the drain was taken away",
    (Step.RETURNING, Step.CLOSED): "in service",
    (Step.RETURNING, Step.DRAINING): "the fault came back before it was in service",
    (Step.RETURNING, Step.VERIFYING): "Slurm itself took the node out again",
    (Step.RETURNING, Step.HELD): "not in service by the deadline, or a person's drain",
    (Step.AWAITING_PERSON, Step.VERIFYING): "a person says it is repaired",
    (Step.AWAITING_PERSON, Step.HELD): "a person's drain",
    (Step.AWAITING_PERSON, Step.RETURNING): "a person let it go",
    (Step.AWAITING_PERSON, Step.CLOSED): "the drain was taken away",
    (Step.HELD, Step.DRAINING): "released, or the person's drain is gone and the fault is not",
    (Step.HELD, Step.VERIFYING): "released",
    (Step.HELD, Step.RETURNING): "a person let it go",
    (Step.HELD, Step.CLOSED): "the fault is gone, or the drain was taken away",
}

# Steps that end by themselves: each has a deadline, and missing it pages somebody.
TRANSIENT_STEPS = frozenset({Step.DRAINING, Step.REPAIRING, Step.VERIFYING, Step.RETURNING})
# Steps in which the node counts as being worked on.
WORKING_STEPS = frozenset({Step.REPAIRING, Step.VERIFYING, Step.RETURNING})


def move(incident: Incident, to: Step, now: float, deadline: float | None, **changes: Any) -> Incident:
    """The incident in its next step.

    Args:
        deadline: when the new step must have ended; needed for transient steps, None for others.
        changes: further fields that change with the move.

    Raises:
        ValueError: the table has no such move, or the deadline is missing.
    """
    if (incident.step, to) not in MOVES:
        raise ValueError(f"incident {incident.id}: no move from {incident.step.value} to {to.value}")
    if (deadline is None) == (to in TRANSIENT_STEPS):
        raise ValueError(
            f"incident {incident.id}: {to.value} needs a deadline if and only if it is transient"
        )
    changes.setdefault("hold", "")
    return replace(
        incident,
        step=to,
        step_since=now,
        deadline=deadline,
        revision=incident.revision + 1,
        closed_at=now if to is Step.CLOSED else None,
        **changes,
    )


def update(incident: Incident, **changes: Any) -> Incident:
    """The incident in the same step with other fields; counts as a revision."""
    return replace(incident, revision=incident.revision + 1, **changes)
