"""The initial schema: the tables as the code defines them, until the first release.

A new store therefore has the columns of later revisions already, and these look for them.
"""

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata = context.get_context().opts["target_metadata"]
    metadata.create_all(op.get_bind())
