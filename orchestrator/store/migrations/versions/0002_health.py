"""The health of phones, and what checks have found."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("phone", schema=None) as batch_op:
        batch_op.add_column(sa.Column("health", sa.String(), server_default="good", nullable=False))
        batch_op.add_column(sa.Column("health_why", sa.String(), server_default="", nullable=False))
        batch_op.add_column(sa.Column("strikes", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "checkup",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("verb", sa.String(), nullable=False),
        sa.Column("good", sa.Boolean(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("checkup", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_checkup_phone"), ["phone"], unique=False)


def downgrade() -> None:
    op.drop_table("checkup")
    with op.batch_alter_table("phone", schema=None) as batch_op:
        for column in ("strikes", "health_why", "health"):
            batch_op.drop_column(column)
