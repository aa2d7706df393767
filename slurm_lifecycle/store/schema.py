"""The tables, as SQLAlchemy Core knows them; the migrations create them, a test proves that both agree.

Columns stand in the order of the fields of `core.model`, so that a row is decoded by position.
The database itself enforces what must never be broken by a bug: one open incident a node, one try of a rung
a number, one unresolved attempt a node, and a history that is only added to (triggers of revision 1).
"""

import sqlalchemy as sa

SCHEMA_VERSION = 4

# Literal text, because SQLite uses a partial index only where the query repeats its condition literally.
INCIDENT_OPEN = sa.text("step != 'closed'")
ATTEMPT_UNRESOLVED = sa.text("outcome IS NULL")
FENCE_OPEN = sa.text("closed_at IS NULL")
FINDING_OPEN = sa.text("cleared_at IS NULL")
TRIP_OPEN = sa.text("reset_at IS NULL")
HOLD_OPEN = sa.text("released_at IS NULL")
REQUEST_PENDING = sa.text("done_at IS NULL")

metadata = sa.MetaData()


def _text(name: str, *, primary_key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=primary_key, nullable=False)


def _real(name: str, *, nullable: bool = False, primary_key: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Float, primary_key=primary_key, nullable=nullable)


def _int(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _bool(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


meta = sa.Table("meta", metadata, _text("key", primary_key=True), _text("value"))

incident = sa.Table(
    "incident",
    metadata,
    _text("id", primary_key=True),
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
    sa.Column("verify_boot", sa.Text, nullable=False, server_default=""),
    sa.CheckConstraint("(step = 'closed') = (closed_at IS NOT NULL)", name="incident_closed_has_time"),
    sa.Index("incident_one_open_a_node", "node", unique=True, sqlite_where=INCIDENT_OPEN),
    sa.Index("incident_by_node", "node", "opened_at"),
    sa.Index("incident_by_closed_at", "closed_at", "id"),
    sa.Index("incident_by_opened_at", "opened_at"),
)

attempt = sa.Table(
    "attempt",
    metadata,
    _text("op_id", primary_key=True),
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incident.id"), nullable=False),
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
    sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="attempt_outcome_has_time"),
    sa.Index("attempt_once", "incident_id", "rung", "n", unique=True),
    sa.Index("attempt_one_unresolved_a_node", "node", unique=True, sqlite_where=ATTEMPT_UNRESOLVED),
    sa.Index("attempt_by_created_at", "created_at"),
)

# One row for each command of an attempt that goes step by step, written before it is sent.
attempt_step = sa.Table(
    "attempt_step",
    metadata,
    sa.Column("op_id", sa.Text, sa.ForeignKey("attempt.op_id"), primary_key=True, nullable=False),
    sa.Column("n", sa.Integer, primary_key=True, nullable=False),
    _text("command"),
    _real("created_at"),
    sa.Column("outcome", sa.Text, nullable=True),
    _real("ended_at", nullable=True),
    _text("detail"),
    sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="attempt_step_outcome_has_time"),
)

# No foreign key: a node may phone home for an attempt that a restored store does not know.
phone_home = sa.Table(
    "phone_home",
    metadata,
    _text("op_id", primary_key=True),
    _text("node"),
    _text("image"),
    _real("at"),
)

# No foreign key on the incident of a fence, a hit or an event: a fence that was found in Slurm after the
# store was lost has to be recorded even where its incident is gone.
fence = sa.Table(
    "fence",
    metadata,
    _text("name", primary_key=True),
    _text("node"),
    _text("incident_id"),
    _real("created_at"),
    _real("closed_at", nullable=True),
    sa.Index("fence_open", "name", sqlite_where=FENCE_OPEN),
    sa.Index("fence_by_incident", "incident_id"),
)

finding = sa.Table(
    "finding",
    metadata,
    _text("node", primary_key=True),
    _text("code", primary_key=True),
    _text("component", primary_key=True),
    _text("level"),
    _text("text"),
    _text("boot_id"),
    _real("raised_at", primary_key=True),
    _real("cleared_at", nullable=True),
    _bool("acknowledged"),
    sa.Index("finding_one_open", "node", "code", "component", unique=True, sqlite_where=FINDING_OPEN),
    sa.Index("finding_by_cleared_at", "cleared_at"),
)

trip = sa.Table(
    "trip",
    metadata,
    _text("scope", primary_key=True),
    _real("tripped_at", primary_key=True),
    _text("reason"),
    _real("reset_at", nullable=True),
    sa.Index("trip_one_open_a_scope", "scope", unique=True, sqlite_where=TRIP_OPEN),
)

breaker_hit = sa.Table(
    "breaker_hit",
    metadata,
    _text("node", primary_key=True),
    _real("at", primary_key=True),
    _text("code", primary_key=True),
    _text("incident_id", primary_key=True),
    sa.Index("breaker_hit_by_at", "at"),
)

hold = sa.Table(
    "hold",
    metadata,
    _text("node", primary_key=True),
    _real("at", primary_key=True),
    _text("actor"),
    _text("text"),
    _real("released_at", nullable=True),
    sa.Index("hold_one_open_a_node", "node", unique=True, sqlite_where=HOLD_OPEN),
)

event = sa.Table(
    "event",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _real("at"),
    _text("node"),
    _text("kind"),
    _text("text"),
    _text("actor"),
    _text("incident_id"),
    sa.Index("event_by_node", "node", "id"),
    sa.Index("event_by_incident", "incident_id", "id"),
    sa.Index("event_by_at", "at"),
)

request = sa.Table(
    "request",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _real("at"),
    _text("actor"),
    _text("verb"),
    _text("subject"),
    _text("text"),
    _real("done_at", nullable=True),
    sa.Column("answer", sa.Text, nullable=True),
    sa.Index("request_pending", "id", sqlite_where=REQUEST_PENDING),
    # An id is never given twice, even after old answers were pruned: the CLI waits for its own.
    sqlite_autoincrement=True,
)

node_status = sa.Table(
    "node_status",
    metadata,
    _text("node", primary_key=True),
    _text("phase"),
    _text("why"),
    _real("since"),
)
