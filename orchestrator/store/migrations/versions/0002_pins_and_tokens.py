"""Pinned sweeps, the tokens of the API, and enrolled hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "sweep", sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column(
        "chunk", sa.Column("received_at_s", sa.Float(), nullable=False, server_default="0")
    )
    op.create_table(
        "token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.Column("once", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "enrolment",
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("offer_digest", sa.String(), nullable=False),
        sa.Column("offer_until_s", sa.Float(), nullable=False),
        sa.Column("password_digest", sa.String(), nullable=False),
        sa.Column("enrolled_at_s", sa.Float(), nullable=False),
        sa.Column("certificate_until_s", sa.Float(), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
    )
    op.create_index("ix_enrolment_offer_digest", "enrolment", ["offer_digest"])
