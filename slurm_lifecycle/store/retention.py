"""What the store forgets, and when."""

from dataclasses import dataclass

import sqlalchemy as sa

from slurm_lifecycle.store import schema
from slurm_lifecycle.store.writes import put_meta

_DAY_S = 86400.0
# Long enough for a warranty question about a node, short enough that the file stays small.
CLOSED_KEPT_S = 180 * _DAY_S
REQUESTS_KEPT_S = 30 * _DAY_S
HITS_KEPT_S = _DAY_S


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows were forgotten."""

    incidents: int
    attempts: int
    events: int
    others: int


def prune(connection: sa.Connection, now: float) -> Pruned:
    """Forget what is older than its retention; nothing of an open incident is touched."""
    limit = now - CLOSED_KEPT_S
    incident, attempt, event = schema.incident, schema.attempt, schema.event
    old = sa.select(incident.c.id).where(incident.c.closed_at < limit).scalar_subquery()
    still_open = sa.select(incident.c.id).where(schema.INCIDENT_OPEN).scalar_subquery()
    step = schema.attempt_step
    ended = sa.select(attempt.c.op_id).where(attempt.c.incident_id.in_(old), attempt.c.outcome.is_not(None))
    connection.execute(sa.delete(step).where(step.c.op_id.in_(ended.scalar_subquery())))
    attempts = connection.execute(
        sa.delete(attempt).where(attempt.c.incident_id.in_(old), attempt.c.outcome.is_not(None))
    ).rowcount
    left = sa.select(attempt.c.incident_id).scalar_subquery()
    incidents = connection.execute(
        sa.delete(incident).where(incident.c.closed_at < limit, incident.c.id.not_in(left))
    ).rowcount
    # The trigger on `event` lets go only of what is older than this mark.
    put_meta(connection, {"events_forgotten": repr(limit)})
    events = connection.execute(
        sa.delete(event).where(event.c.at < limit, event.c.incident_id.not_in(still_open))
    ).rowcount
    others = 0
    for table, ended_at, kept_s in (
        (schema.fence, schema.fence.c.closed_at, CLOSED_KEPT_S),
        (schema.finding, schema.finding.c.cleared_at, CLOSED_KEPT_S),
        (schema.trip, schema.trip.c.reset_at, CLOSED_KEPT_S),
        (schema.hold, schema.hold.c.released_at, CLOSED_KEPT_S),
        (schema.request, schema.request.c.done_at, REQUESTS_KEPT_S),
        (schema.phone_home, schema.phone_home.c.at, CLOSED_KEPT_S),
        (schema.breaker_hit, schema.breaker_hit.c.at, HITS_KEPT_S),
    ):
        others += connection.execute(sa.delete(table).where(ended_at < now - kept_s)).rowcount
    return Pruned(incidents, attempts, events, others)
