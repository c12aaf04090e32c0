"""Reports compressed, and metrics as numbers: a third of the size before."""

import sqlalchemy as sa
from alembic import op

from orchestrator.store.compressed_text import compress_text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BATCH = 500


def upgrade() -> None:
    _compress_reports()
    _create_tables()
    for statement in (
        "INSERT INTO metric_name (name) SELECT DISTINCT name FROM metric",
        "INSERT INTO metric_origin (source, model, error_rel, grade) SELECT DISTINCT "
        "source, COALESCE(model, ''), COALESCE(error_rel, -1.0), grade FROM metric",
        "INSERT INTO metric_value (run, name, value, origin) "
        "SELECT r.id, n.id, m.value, o.id FROM metric m "
        "JOIN run r ON r.trial = m.trial AND r.repeat = m.repeat "
        "JOIN metric_name n ON n.name = m.name "
        "JOIN metric_origin o ON o.source = m.source AND o.model = COALESCE(m.model, '') "
        "AND o.error_rel = COALESCE(m.error_rel, -1.0) AND o.grade = m.grade",
    ):
        op.execute(statement)
    op.drop_table("metric")


def _compress_reports() -> None:
    op.execute("ALTER TABLE report RENAME COLUMN payload TO plain")
    op.add_column(
        "report",
        sa.Column("payload", sa.LargeBinary(), nullable=False, server_default=sa.text("''")),
    )
    report = sa.table("report", sa.column("id"), sa.column("plain"), sa.column("payload"))
    connection, last = op.get_bind(), 0
    while rows := connection.execute(
        sa.select(report.c.id, report.c.plain)
        .where(report.c.id > last)
        .order_by(report.c.id)
        .limit(BATCH)
    ).all():
        values = [{"key": row.id, "packed": compress_text(row.plain)} for row in rows]
        connection.execute(
            sa.update(report)
            .where(report.c.id == sa.bindparam("key"))
            .values(payload=sa.bindparam("packed", type_=sa.LargeBinary())),
            values,
        )
        last = rows[-1].id
    op.drop_column("report", "plain")


def _create_tables() -> None:
    op.create_table(
        "metric_name",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "metric_origin",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("error_rel", sa.Float(), nullable=False),
        sa.Column("grade", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("source", "model", "error_rel", "grade", name="origin_identity"),
    )
    op.create_table(
        "metric_value",
        sa.Column("run", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("origin", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run", "name"),
        sqlite_with_rowid=False,
    )
