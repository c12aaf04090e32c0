"""The initial schema: the tables as the code defines them, until the first release.

A new store therefore has the columns of later revisions already, and these look for them. Numbers
below 5 belong to tables that no release had.
"""

from alembic import context, op

revision = "0005"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata = context.get_context().opts["target_metadata"]
    metadata.create_all(op.get_bind())
