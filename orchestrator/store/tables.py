"""The tables. Columns stand for what is asked of them; the report itself is kept verbatim.

Two promises are the database's own, so that no bug above can break them: a phone has at most one
lease, and a run has at most one accepted report.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Index,
    LargeBinary,
    Text,
    UniqueConstraint,
    text,
)
from sqlmodel import Field, SQLModel


def _json() -> Any:
    return Column(JSON, nullable=False)


def _utc() -> Any:
    return Column(DateTime(timezone=True), nullable=False)


class PhoneRow(SQLModel, table=True):
    """A phone that was seen at least once."""

    __tablename__ = "phone"
    serial: str = Field(primary_key=True)
    host: str
    facts: dict[str, Any] = Field(sa_column=_json())
    facts_digest: str
    seen_at: datetime = Field(sa_column=_utc())
    fence: int = 0
    health: str = Field(default="good", sa_column_kwargs={"server_default": "good"})
    health_why: str = Field(default="", sa_column_kwargs={"server_default": ""})
    strikes: int = Field(default=0, sa_column_kwargs={"server_default": "0"})


class SweepRow(SQLModel, table=True):
    """A sweep, as it was submitted."""

    __tablename__ = "sweep"
    id: str = Field(primary_key=True)
    name: str
    source: str = Field(sa_column=Column(Text, nullable=False))
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_at: datetime = Field(sa_column=_utc())


class TrialRow(SQLModel, table=True):
    """One case, under one condition, on one phone."""

    __tablename__ = "trial"
    id: str = Field(primary_key=True)
    sweep: str = Field(foreign_key="sweep.id", index=True)
    phone: str = Field(foreign_key="phone.serial")
    case: dict[str, Any] = Field(sa_column=_json())
    case_digest: str = Field(index=True)
    condition: dict[str, Any] = Field(sa_column=_json())
    condition_digest: str


class RunRow(SQLModel, table=True):
    """One planned run: the job itself. Celery only carries news of it."""

    __tablename__ = "run"
    __table_args__ = (
        UniqueConstraint("trial", "repeat", name="run_identity"),
        Index(
            "one_lease_per_phone",
            "phone",
            unique=True,
            sqlite_where=text("state = 'leased'"),
            postgresql_where=text("state = 'leased'"),
        ),
        Index("run_backlog", "phone", "state", "rank"),
        Index("run_of_sweep", "sweep", "state"),
    )
    id: int | None = Field(default=None, primary_key=True)
    trial: str = Field(foreign_key="trial.id")
    repeat: int
    sweep: str
    phone: str
    block: int
    position: int
    rank: int
    state: str = "queued"
    attempt: int = 0
    host: str = ""
    lease_until: float = 0.0
    not_before: float = 0.0
    tries: dict[str, int] = Field(default_factory=dict, sa_column=_json())
    note: str = ""


class ReportRow(SQLModel, table=True):
    """A report, verbatim; void, faulty and stale ones too, marked as what they are."""

    __tablename__ = "report"
    __table_args__ = (
        UniqueConstraint("trial", "repeat", "attempt", name="report_identity"),
        Index(
            "one_accepted_report_per_run",
            "trial",
            "repeat",
            unique=True,
            sqlite_where=text("status = 'accepted'"),
            postgresql_where=text("status = 'accepted'"),
        ),
    )
    id: int | None = Field(default=None, primary_key=True)
    trial: str
    repeat: int
    attempt: int
    status: str
    standing: str
    host: str
    phone: str
    received_at: datetime = Field(sa_column=_utc())
    telemetry: str | None = None
    body: str = Field(sa_column=Column(Text, nullable=False))


class MetricRow(SQLModel, table=True):
    """One figure of an accepted report, with its provenance, for whoever asks in SQL."""

    __tablename__ = "metric"
    trial: str = Field(primary_key=True)
    repeat: int = Field(primary_key=True)
    name: str = Field(primary_key=True)
    value: float
    unit: str
    source: str
    model: str | None = None
    error_rel: float | None = None


class ChunkRow(SQLModel, table=True):
    """A piece of a telemetry blob."""

    __tablename__ = "chunk"
    digest: str = Field(primary_key=True)
    part: int = Field(primary_key=True)
    parts: int
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class CheckupRow(SQLModel, table=True):
    """What a phone was found to be when somebody asked: a check or a restore by hand."""

    __tablename__ = "checkup"
    id: str = Field(primary_key=True)
    phone: str = Field(index=True)
    host: str
    verb: str
    good: bool
    text: str = Field(sa_column=Column(Text, nullable=False))
    at: datetime = Field(sa_column=_utc())


# Statements are written on the tables themselves: building row objects costs 25 times the insert.
_tables = SQLModel.metadata.tables
phone, sweep, trial, run = (_tables[name] for name in ("phone", "sweep", "trial", "run"))
report, metric, chunk = (_tables[name] for name in ("report", "metric", "chunk"))
checkup = _tables["checkup"]
