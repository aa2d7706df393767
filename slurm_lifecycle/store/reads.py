"""What a load reads, as statements that are built once: building them costs more than running them."""

import sqlalchemy as sa

from slurm_lifecycle.core.machine import AttemptStep, PhoneHome
from slurm_lifecycle.core.model import (
    Attempt,
    BreakerHit,
    Fence,
    Finding,
    Hold,
    Incident,
    Request,
    Trip,
)
from slurm_lifecycle.core.policy import ATTEMPTS_KEPT_S, CLOSED_KEPT_S, DAY_S, HITS_KEPT_S
from slurm_lifecycle.store import rows, schema

# A day of trips that were reset: longer than any window that a policy may set for the breaker.
_TRIPS_S = DAY_S
# SQLite takes a limited number of parameters in a statement.
_FEW = 500

_SINCE: sa.BindParameter[float] = sa.bindparam("since")
_OP_ID = sa.select(schema.attempt.c.op_id)
_OPEN_IDS = sa.select(schema.incident.c.id).where(schema.INCIDENT_OPEN)
# A union, since SQLite reads the whole table where the same three conditions are joined by OR.
_WANTED = sa.union(
    _OP_ID.where(schema.ATTEMPT_UNRESOLVED),
    _OP_ID.where(schema.attempt.c.created_at >= _SINCE),
    _OP_ID.where(schema.attempt.c.incident_id.in_(_OPEN_IDS)),
)
_INCIDENTS = rows.INCIDENT.select.where(schema.INCIDENT_OPEN)
_ATTEMPTS = rows.ATTEMPT.select.where(schema.attempt.c.op_id.in_(_WANTED))
_STEP_OF = sa.union(
    _OP_ID.where(schema.ATTEMPT_UNRESOLVED), _OP_ID.where(schema.attempt.c.incident_id.in_(_OPEN_IDS))
)
_STEPS = rows.STEP.select.where(schema.attempt_step.c.op_id.in_(_STEP_OF)).order_by(
    schema.attempt_step.c.op_id, schema.attempt_step.c.n
)
_HOMES = rows.HOME.select.where(schema.phone_home.c.op_id.in_(_OP_ID.where(schema.ATTEMPT_UNRESOLVED)))
_FINDINGS = rows.FINDING.select.where(schema.FINDING_OPEN)
_FENCES = rows.FENCE.select.where(schema.FENCE_OPEN)
_TRIPS = rows.TRIP.select.where(sa.or_(schema.TRIP_OPEN, schema.trip.c.reset_at >= _SINCE))
_HITS = rows.HIT.select.where(schema.breaker_hit.c.at >= _SINCE)
_HOLDS = rows.HOLD.select.where(schema.HOLD_OPEN)
_REQUESTS = rows.REQUEST.select.where(schema.REQUEST_PENDING)
_CLOSED = rows.INCIDENT.select.where(schema.incident.c.closed_at >= _SINCE)
# In the order of the index, which holds both columns.
_CLOSED_IDS = (
    sa.select(schema.incident.c.id)
    .where(schema.incident.c.closed_at >= _SINCE)
    .order_by(schema.incident.c.closed_at, schema.incident.c.id)
)


def open_incidents(connection: sa.Connection) -> tuple[Incident, ...]:
    """Those that are open."""
    return rows.INCIDENT.fetch(connection, _INCIDENTS)


def attempts(connection: sa.Connection, now: float) -> tuple[Attempt, ...]:
    """Those without an end, those of open incidents, and all of the last days."""
    return rows.ATTEMPT.fetch(connection, _ATTEMPTS, {"since": now - ATTEMPTS_KEPT_S})


def steps(connection: sa.Connection) -> tuple[AttemptStep, ...]:
    """Those of attempts without an end and of open incidents, in order."""
    return rows.STEP.fetch(connection, _STEPS)


def phoned_home(connection: sa.Connection) -> tuple[PhoneHome, ...]:
    """Nodes that told of an attempt without an end."""
    return rows.HOME.fetch(connection, _HOMES)


def open_findings(connection: sa.Connection) -> tuple[Finding, ...]:
    """Those that stand."""
    return rows.FINDING.fetch(connection, _FINDINGS)


def open_fences(connection: sa.Connection) -> tuple[Fence, ...]:
    """Those that stand."""
    return rows.FENCE.fetch(connection, _FENCES)


def trips(connection: sa.Connection, now: float) -> tuple[Trip, ...]:
    """Those that hold, and those that were reset lately."""
    return rows.TRIP.fetch(connection, _TRIPS, {"since": now - _TRIPS_S})


def hits(connection: sa.Connection, now: float) -> tuple[BreakerHit, ...]:
    """Those that a breaker may still count."""
    return rows.HIT.fetch(connection, _HITS, {"since": now - HITS_KEPT_S})


def holds(connection: sa.Connection) -> tuple[Hold, ...]:
    """Those in force."""
    return rows.HOLD.fetch(connection, _HOLDS)


def pending_requests(connection: sa.Connection) -> tuple[Request, ...]:
    """Those without an answer."""
    return rows.REQUEST.fetch(connection, _REQUESTS)


class ClosedIncidents:
    """Closed incidents, decoded once: a tick reads them all, and only the acting store changes them."""

    def __init__(self, *, keep: bool) -> None:
        """Keep what was decoded, or not."""
        self._keep = keep
        self._known: dict[str, Incident] = {}

    def forget(self, incident_id: str) -> None:
        """It was written: what is known of it may be wrong."""
        self._known.pop(incident_id, None)

    def read(self, connection: sa.Connection, now: float) -> tuple[Incident, ...]:
        """Those of the last weeks, in the order in which they were closed."""
        since = {"since": now - CLOSED_KEPT_S}
        ids = connection.execute(_CLOSED_IDS, since).scalars().all()
        missing = [item for item in ids if item not in self._known]
        known = self._known
        if missing:
            if len(missing) <= _FEW:
                found = rows.INCIDENT.read(connection, schema.incident.c.id.in_(missing))
            else:
                found = rows.INCIDENT.fetch(connection, _CLOSED, since)
            known = {**known, **{one.id: one for one in found}}
        closed = {item: known[item] for item in ids}
        if self._keep:
            self._known = closed
        return tuple(closed.values())
