"""The initial schema: the tables as the code defines them, until the first release.

A revision 0002 writes them out here first: a later change of the code must not change this one.
"""

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata = context.get_context().opts["target_metadata"]
    metadata.create_all(op.get_bind())
