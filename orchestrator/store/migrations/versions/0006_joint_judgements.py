"""Reports have the joint judgement of their trial beside the verdict that was sent.

0005 creates the tables as the code defines them, so a new store has these columns already.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("report")}
    if "judged" in present:
        return
    op.add_column("report", sa.Column("judged", sa.String, nullable=False, server_default=""))
    for column in (
        sa.Column("judged_reasons", sa.JSON, nullable=False, server_default="[]"),
        sa.Column("judged_runs", sa.Integer, nullable=False, server_default="0"),
        sa.Column("judged_rules", sa.Integer, nullable=False, server_default="0"),
    ):
        op.add_column("report", column)
    op.execute("UPDATE report SET judged = validity")
