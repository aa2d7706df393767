"""Which boot's verdict settles, so that none of a boot that is over passes for a check."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; a settling time under way begins anew once, which costs a minute and a half."""
    op.add_column("incident", sa.Column("verify_boot", sa.Text, nullable=False, server_default=""))
