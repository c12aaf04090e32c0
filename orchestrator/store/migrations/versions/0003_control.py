"""Policies, control and its audit, drawn orders, casualties."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _new() -> dict[str, tuple[sa.Column[Any], ...]]:
    return {
        "phone": (
            sa.Column("tags", sa.JSON(), server_default="[]", nullable=False),
            sa.Column("reserved_by", sa.String(), server_default="", nullable=False),
            sa.Column("reserved_until", sa.Float(), server_default="0", nullable=False),
            sa.Column("reserved_why", sa.String(), server_default="", nullable=False),
        ),
        "sweep": (
            sa.Column("policy", sa.JSON(), server_default="{}", nullable=False),
            sa.Column("state", sa.String(), server_default="active", nullable=False),
            sa.Column("state_why", sa.String(), server_default="", nullable=False),
            sa.Column("owner", sa.String(), server_default="", nullable=False),
            sa.Column("priority", sa.Integer(), server_default="50", nullable=False),
            sa.Column("deadline", sa.Float(), nullable=True),
            sa.Column("begun_at", sa.Float(), nullable=True),
        ),
        "trial": (
            sa.Column("stopped", sa.String(), server_default="", nullable=False),
            sa.Column("stopped_why", sa.String(), server_default="", nullable=False),
        ),
        "report": (
            sa.Column("control", sa.String(), nullable=True),
            sa.Column("began_s", sa.Float(), nullable=True),
            sa.Column("ended_s", sa.Float(), nullable=True),
            sa.Column("cooled_s", sa.Float(), nullable=True),
        ),
        "metric": (sa.Column("grade", sa.String(), server_default="", nullable=False),),
        "run": (
            sa.Column("places", sa.JSON(), server_default="[]", nullable=False),
            sa.Column("chosen", sa.Integer(), nullable=True),
            sa.Column("unwanted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        ),
    }


def upgrade() -> None:
    for table, columns in _new().items():
        for column in columns:
            op.add_column(table, column)
    op.drop_index("run_backlog", table_name="run")
    op.create_index("run_line", "run", ["phone", "state", "sweep", "rank"])
    op.create_table(
        "casualty",
        sa.Column("trial", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("case_digest", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("forgiven", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("trial", "repeat", "attempt"),
    )
    op.create_index("ix_casualty_case_digest", "casualty", ["case_digest"])
    op.create_table(
        "host",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("verb", sa.String(), nullable=False),
        sa.Column("object", sa.String(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("after", sa.JSON(), nullable=False),
        sa.Column("undo", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_audit_object", "audit", ["object"])


def downgrade() -> None:
    for table in ("audit", "host", "casualty"):
        op.drop_table(table)
    op.drop_index("run_line", table_name="run")
    op.create_index("run_backlog", "run", ["phone", "state", "rank"])
    for name, columns in _new().items():
        with op.batch_alter_table(name, schema=None) as batch_op:
            for column in columns:
                batch_op.drop_column(column.name)
