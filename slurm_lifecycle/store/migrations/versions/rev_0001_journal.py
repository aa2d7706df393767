"""The journal: incidents, attempts, fences, findings, breaker, holds and the history.

Written out in full and never changed after a release: a revision describes the past, `schema.py` the present.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _real(name: str, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Float, nullable=nullable)


def _int(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _bool(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


def upgrade() -> None:
    """Create the tables, what the database enforces, and the triggers."""
    op.create_table("meta", _text("key"), _text("value"), sa.PrimaryKeyConstraint("key"))
    _create_incident()
    _create_attempt()
    _create_fence_and_finding()
    _create_breaker_and_hold()
    _create_event()


def _create_incident() -> None:
    op.create_table(
        "incident",
        _text("id"),
        _text("node"),
        _text("fault_class"),
        _text("code"),
        _text("component"),
        _text("step"),
        _real("opened_at"),
        _real("step_since"),
        _real("deadline", nullable=True),
        _int("path_index"),
        sa.Column("rung", sa.Text, nullable=True),
        _bool("drain_confirmed"),
        _text("boot_before"),
        _real("verify_since", nullable=True),
        _int("verify_runs"),
        _int("service_ticks"),
        _text("hold"),
        _text("note"),
        _bool("lifted"),
        _int("revision"),
        _text("outcome"),
        _text("cured_by"),
        _real("closed_at", nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("(step = 'closed') = (closed_at IS NOT NULL)", name="incident_closed_has_time"),
    )
    is_open = sa.text("step != 'closed'")
    op.create_index("incident_one_open_a_node", "incident", ["node"], unique=True, sqlite_where=is_open)
    op.create_index("incident_by_node", "incident", ["node", "opened_at"])
    op.create_index("incident_by_closed_at", "incident", ["closed_at", "id"])
    op.create_index("incident_by_opened_at", "incident", ["opened_at"])


def _create_attempt() -> None:
    op.create_table(
        "attempt",
        _text("op_id"),
        _text("incident_id"),
        _text("node"),
        _text("rung"),
        _int("n"),
        _real("created_at"),
        _real("deadline"),
        _text("boot_before"),
        _real("boot_time_before_s", nullable=True),
        _bool("sent"),
        sa.Column("outcome", sa.Text, nullable=True),
        _real("ended_at", nullable=True),
        _text("detail"),
        sa.PrimaryKeyConstraint("op_id"),
        sa.ForeignKeyConstraint(["incident_id"], ["incident.id"]),
        sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="attempt_outcome_has_time"),
    )
    unresolved = sa.text("outcome IS NULL")
    op.create_index("attempt_once", "attempt", ["incident_id", "rung", "n"], unique=True)
    op.create_index(
        "attempt_one_unresolved_a_node", "attempt", ["node"], unique=True, sqlite_where=unresolved
    )
    op.create_index("attempt_by_created_at", "attempt", ["created_at"])


def _create_fence_and_finding() -> None:
    op.create_table(
        "fence",
        _text("name"),
        _text("node"),
        _text("incident_id"),
        _real("created_at"),
        _real("closed_at", nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("fence_open", "fence", ["name"], sqlite_where=sa.text("closed_at IS NULL"))
    op.create_index("fence_by_incident", "fence", ["incident_id"])
    op.create_table(
        "finding",
        _text("node"),
        _text("code"),
        _text("component"),
        _text("level"),
        _text("text"),
        _text("boot_id"),
        _real("raised_at"),
        _real("cleared_at", nullable=True),
        _bool("acknowledged"),
        sa.PrimaryKeyConstraint("node", "code", "component", "raised_at"),
    )
    op.create_index(
        "finding_one_open",
        "finding",
        ["node", "code", "component"],
        unique=True,
        sqlite_where=sa.text("cleared_at IS NULL"),
    )
    op.create_index("finding_by_cleared_at", "finding", ["cleared_at"])


def _create_breaker_and_hold() -> None:
    op.create_table(
        "trip",
        _text("scope"),
        _real("tripped_at"),
        _text("reason"),
        _real("reset_at", nullable=True),
        sa.PrimaryKeyConstraint("scope", "tripped_at"),
    )
    op.create_index(
        "trip_one_open_a_scope", "trip", ["scope"], unique=True, sqlite_where=sa.text("reset_at IS NULL")
    )
    op.create_table(
        "breaker_hit",
        _text("node"),
        _real("at"),
        _text("code"),
        _text("incident_id"),
        sa.PrimaryKeyConstraint("node", "at", "code", "incident_id"),
    )
    op.create_index("breaker_hit_by_at", "breaker_hit", ["at"])
    op.create_table(
        "hold",
        _text("node"),
        _real("at"),
        _text("actor"),
        _text("text"),
        _real("released_at", nullable=True),
        sa.PrimaryKeyConstraint("node", "at"),
    )
    op.create_index(
        "hold_one_open_a_node", "hold", ["node"], unique=True, sqlite_where=sa.text("released_at IS NULL")
    )


def _create_event() -> None:
    op.create_table(
        "event",
        sa.Column("id", sa.Integer, nullable=False),
        _real("at"),
        _text("node"),
        _text("kind"),
        _text("text"),
        _text("actor"),
        _text("incident_id"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("event_by_node", "event", ["node", "id"])
    op.create_index("event_by_incident", "event", ["incident_id", "id"])
    op.create_index("event_by_at", "event", ["at"])
    op.execute(
        "CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event "
        "BEGIN SELECT RAISE(ABORT, 'the history is only added to'); END"
    )
    # REPLACE deletes without asking the trigger below.
    op.execute(
        "CREATE TRIGGER event_is_never_replaced BEFORE INSERT ON event "
        "WHEN EXISTS (SELECT 1 FROM event WHERE id = NEW.id) "
        "BEGIN SELECT RAISE(ABORT, 'the history is only added to'); END"
    )
    # Retention has to say in `meta` up to when it forgets, before it may delete: a stray DELETE cannot.
    op.execute(
        "CREATE TRIGGER event_is_kept BEFORE DELETE ON event "
        "WHEN OLD.at >= coalesce((SELECT CAST(value AS REAL) FROM meta WHERE key = 'events_forgotten'), "
        "OLD.at) BEGIN SELECT RAISE(ABORT, 'the history is only added to'); END"
    )
