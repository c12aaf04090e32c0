"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chunk",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("parts", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "part"),
    )
    op.create_table(
        "metric",
        sa.Column("trial", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("error_rel", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("trial", "repeat", "name"),
    )
    op.create_table(
        "phone",
        sa.Column("serial", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("facts_digest", sa.String(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("serial"),
    )
    op.create_table(
        "report",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("standing", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("telemetry", sa.String(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("trial", "repeat", "attempt", name="report_identity"),
    )
    with op.batch_alter_table("report", schema=None) as batch_op:
        batch_op.create_index(
            "one_accepted_report_per_run",
            ["trial", "repeat"],
            unique=True,
            sqlite_where=sa.text("status = 'accepted'"),
            postgresql_where=sa.text("status = 'accepted'"),
        )

    op.create_table(
        "sweep",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "trial",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("sweep", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("case", sa.JSON(), nullable=False),
        sa.Column("case_digest", sa.String(), nullable=False),
        sa.Column("condition", sa.JSON(), nullable=False),
        sa.Column("condition_digest", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["phone"],
            ["phone.serial"],
        ),
        sa.ForeignKeyConstraint(
            ["sweep"],
            ["sweep.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("trial", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_trial_case_digest"), ["case_digest"], unique=False)
        batch_op.create_index(batch_op.f("ix_trial_sweep"), ["sweep"], unique=False)

    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("sweep", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=False),
        sa.Column("not_before", sa.Float(), nullable=False),
        sa.Column("tries", sa.JSON(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial"],
            ["trial.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("trial", "repeat", name="run_identity"),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index(
            "one_lease_per_phone",
            ["phone"],
            unique=True,
            sqlite_where=sa.text("state = 'leased'"),
            postgresql_where=sa.text("state = 'leased'"),
        )
        batch_op.create_index("run_backlog", ["phone", "state", "rank"], unique=False)
        batch_op.create_index("run_of_sweep", ["sweep", "state"], unique=False)


def downgrade() -> None:
    for table in ("run", "trial", "sweep", "report", "phone", "metric", "chunk"):
        op.drop_table(table)
