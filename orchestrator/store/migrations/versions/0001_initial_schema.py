"""The initial schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("after", sa.JSON(), nullable=False),
        sa.Column("undo", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_audit_target"), "audit", ["target"], unique=False)
    op.create_table(
        "chunk",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("parts", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "part"),
    )
    op.create_table(
        "command_result",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("command", sa.String(), nullable=False),
        sa.Column("succeeded", sa.Boolean(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("file", sa.String(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "crash",
        sa.Column("trial", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("case_digest", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cleared", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("trial", "repeat", "attempt"),
    )
    op.create_index(op.f("ix_crash_case_digest"), "crash", ["case_digest"], unique=False)
    op.create_table(
        "host",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
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
        sa.Column("grade", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("trial", "repeat", "name"),
    )
    op.create_table(
        "phone",
        sa.Column("serial", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("facts_digest", sa.String(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("health", sa.String(), nullable=False),
        sa.Column("health_reason", sa.String(), nullable=False),
        sa.Column("strikes", sa.Integer(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("reserved_by", sa.String(), nullable=False),
        sa.Column("reserved_until", sa.Float(), nullable=False),
        sa.Column("reserved_reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("serial"),
    )
    op.create_table(
        "report",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("validity", sa.String(), nullable=False),
        sa.Column("phone", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("telemetry", sa.String(), nullable=True),
        sa.Column("control", sa.String(), nullable=True),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("ended_at_s", sa.Float(), nullable=False),
        sa.Column("cooldown_s", sa.Float(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("trial", "repeat", "attempt", "host", name="report_identity"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "one_accepted_report_per_run",
        "report",
        ["trial", "repeat"],
        unique=True,  # guard: one-accepted-report-per-run
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
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_reason", sa.String(), nullable=False),
        sa.Column("paused_by", sa.String(), nullable=True),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("deadline", sa.Float(), nullable=True),
        sa.Column("started_at_s", sa.Float(), nullable=True),
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
        sa.Column("stop_rule", sa.String(), nullable=False),
        sa.Column("stop_reason", sa.String(), nullable=False),
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
    op.create_index(op.f("ix_trial_case_digest"), "trial", ["case_digest"], unique=False)
    op.create_index(op.f("ix_trial_sweep"), "trial", ["sweep"], unique=False)
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
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial"],
            ["trial.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("trial", "repeat", name="run_identity"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "one_lease_per_phone",
        "run",
        ["phone"],
        unique=True,  # guard: one-lease-per-phone
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.create_index("run_of_sweep", "run", ["sweep", "state"], unique=False)
    op.create_index("run_queue", "run", ["phone", "state", "sweep", "rank"], unique=False)
