"""What the command line needs beside the journal: people's requests and the nodes in words."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the inbox and the status table."""
    op.create_table(
        "request",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("verb", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("done_at", sa.Float, nullable=True),
        sa.Column("answer", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("request_pending", "request", ["id"], sqlite_where=sa.text("done_at IS NULL"))
    op.create_table(
        "node_status",
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
