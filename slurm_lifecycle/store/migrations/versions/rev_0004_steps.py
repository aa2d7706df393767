"""Repairs that go step by step through a BMC, and nodes that phone home after a reimage."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add two tables; nothing that is there changes."""
    op.create_table(
        "attempt_step",
        sa.Column("op_id", sa.Text, sa.ForeignKey("attempt.op_id"), primary_key=True, nullable=False),
        sa.Column("n", sa.Integer, primary_key=True, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.Column("ended_at", sa.Float, nullable=True),
        sa.Column("detail", sa.Text, nullable=False),
        sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="attempt_step_outcome_has_time"),
    )
    op.create_table(
        "phone_home",
        sa.Column("op_id", sa.Text, primary_key=True, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
