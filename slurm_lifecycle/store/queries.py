"""What the command line asks of a store. A query is one consistent read and never waits for the daemon."""

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from slurm_lifecycle.core.model import Attempt, Finding, Hold, Incident, Request, Trip
from slurm_lifecycle.core.plan import Event, NodeStatus
from slurm_lifecycle.store import rows, schema
from slurm_lifecycle.store.engine import reading


@dataclass(frozen=True, slots=True)
class Tick:
    """The daemon's last tick that was written down."""

    at: float
    mode: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: `done_at` is None while the daemon has not looked at it."""

    done_at: float | None
    text: str


class StoreQueries:
    """The reading half of `SqlStore`."""

    def __init__(self, engine: sa.Engine, path: Path) -> None:
        """Bind to an open engine."""
        self._engine = engine
        self.path = path

    def node_statuses(self) -> tuple[NodeStatus, ...]:
        """All nodes in words, by name."""
        with reading(self._engine, self.path) as connection:
            statement = sa.select(*rows.STATUS.columns).order_by(schema.node_status.c.node)
            return tuple(rows.STATUS.decode(row) for row in connection.execute(statement))

    def node_status(self, node: str) -> tuple[NodeStatus, float] | None:
        """One node in words and since when, None where the daemon has not seen it."""
        table = schema.node_status
        with reading(self._engine, self.path) as connection:
            row = connection.execute(
                sa.select(*rows.STATUS.columns, table.c.since).where(table.c.node == node)
            ).one_or_none()
        return None if row is None else (rows.STATUS.decode(row[:-1]), float(row[-1]))

    def watched_since(self) -> float | None:
        """The oldest moment since which a node has the status that it has; None where no node was seen."""
        with reading(self._engine, self.path) as connection:
            since: float | None = connection.execute(
                sa.select(sa.func.min(schema.node_status.c.since))
            ).scalar_one()
        return since

    def incidents(
        self, limit: int = 100, node: str | None = None, open_only: bool = False
    ) -> tuple[Incident, ...]:
        """Incidents, newest first."""
        table = schema.incident
        statement = (
            sa.select(*rows.INCIDENT.columns).order_by(table.c.opened_at.desc(), table.c.id).limit(limit)
        )
        if node is not None:
            statement = statement.where(table.c.node == node)
        if open_only:
            statement = statement.where(schema.INCIDENT_OPEN)
        with reading(self._engine, self.path) as connection:
            return tuple(rows.INCIDENT.decode(row) for row in connection.execute(statement))

    def incident(self, incident_id: str) -> Incident | None:
        """One incident by its id."""
        with reading(self._engine, self.path) as connection:
            found = rows.INCIDENT.read(connection, schema.incident.c.id == incident_id)
        return found[0] if found else None

    def attempts(self, incident_id: str) -> tuple[Attempt, ...]:
        """The attempts of an incident, oldest first."""
        with reading(self._engine, self.path) as connection:
            found = rows.ATTEMPT.read(connection, schema.attempt.c.incident_id == incident_id)
        return tuple(sorted(found, key=lambda attempt: (attempt.created_at, attempt.op_id)))

    def findings(self, node: str, limit: int = 100) -> tuple[Finding, ...]:
        """A node's findings, open ones first, then the newest."""
        table = schema.finding
        order = (table.c.cleared_at.is_not(None), table.c.raised_at.desc())
        statement = sa.select(*rows.FINDING.columns).where(table.c.node == node).order_by(*order).limit(limit)
        with reading(self._engine, self.path) as connection:
            return tuple(rows.FINDING.decode(row) for row in connection.execute(statement))

    def events(
        self, *, incident: str | None = None, node: str | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        """The newest events of an incident, of a node or of all, oldest of them first."""
        table = schema.event
        wanted: list[Any] = []
        if incident is not None:
            wanted.append(table.c.incident_id == incident)
        if node is not None:
            wanted.append(table.c.node == node)
        statement = sa.select(*rows.EVENT.columns).where(*wanted).order_by(table.c.id.desc()).limit(limit)
        with reading(self._engine, self.path) as connection:
            found = [rows.EVENT.decode(row) for row in connection.execute(statement)]
        return tuple(reversed(found))

    def history(self, incident_id: str, limit: int = 200) -> tuple[str, ...]:
        """An incident's events as lines for people, as an RMA ticket quotes them; times are UTC."""
        return tuple(
            f"{_stamp(event.at)} {event.kind}: {event.text} ({event.actor})"
            for event in self.events(incident=incident_id, limit=limit)
        )

    def trips(self, open_only: bool = True) -> tuple[Trip, ...]:
        """The breaker's trips, newest first."""
        with reading(self._engine, self.path) as connection:
            where = (schema.TRIP_OPEN,) if open_only else ()
            found = rows.TRIP.read(connection, *where)
        return tuple(sorted(found, key=lambda trip: (-trip.tripped_at, trip.scope)))

    def holds(self) -> tuple[Hold, ...]:
        """The holds in force, by node."""
        with reading(self._engine, self.path) as connection:
            found = rows.HOLD.read(connection, schema.HOLD_OPEN)
        return tuple(sorted(found, key=lambda hold: hold.node))

    def pending_requests(self) -> tuple[Request, ...]:
        """Requests without an answer, oldest first."""
        with reading(self._engine, self.path) as connection:
            found = rows.REQUEST.read(connection, schema.REQUEST_PENDING)
        return tuple(sorted(found, key=lambda request: request.id))

    def answer(self, request_id: int) -> Answer | None:
        """What became of a request; None where there is none of that id."""
        table = schema.request
        with reading(self._engine, self.path) as connection:
            row = connection.execute(
                sa.select(table.c.done_at, table.c.answer).where(table.c.id == request_id)
            ).one_or_none()
        return None if row is None else Answer(row[0], row[1] or "")

    def last_tick(self) -> Tick | None:
        """When the daemon last finished a tick and in which mode; None before the first."""
        keys = ("tick_at", "tick_mode")
        with reading(self._engine, self.path) as connection:
            statement = sa.select(schema.meta).where(schema.meta.c.key.in_(keys))
            found = {str(key): str(value) for key, value in connection.execute(statement)}
        return Tick(float(found["tick_at"]), found.get("tick_mode", "")) if "tick_at" in found else None


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
