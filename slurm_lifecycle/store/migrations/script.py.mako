"""${message}.

Revision ${up_revision}, after ${down_revision}.
"""

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Move the schema one revision on."""
    ${upgrades if upgrades else "pass"}
