"""Notices, their deliveries, and which sweeps ask for them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "sweep", sa.Column("notify", sa.JSON(), nullable=False, server_default=sa.text("'[]'"))
    )
    op.create_table(
        "notice",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("raised_at_s", sa.Float(), nullable=False),
        sa.Column("cleared_at_s", sa.Float(), nullable=True),
        sa.Column("spread", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    still = sa.text("cleared_at_s IS NULL")
    op.create_index(
        "one_open_notice",
        "notice",
        ["kind", "subject"],
        unique=True,
        sqlite_where=still,
        postgresql_where=still,
    )
    op.create_table(
        "notice_delivery",
        sa.Column("notice", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try_s", sa.Float(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["notice"], ["notice.id"]),
        sa.PrimaryKeyConstraint("notice", "target"),
    )
