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

# What became of a report.
ACCEPTED, VOID, FAULT, STALE = "accepted", "void", "fault", "stale"


def _json() -> Any:
    return Column(JSON, nullable=False)


def _json_or(empty: str) -> Any:
    return Column(JSON, nullable=False, server_default=empty)


def _utc() -> Any:
    return Column(DateTime(timezone=True), nullable=False)


def _or(default: Any) -> Any:
    """A column that rows of before have a value for: the database's own default."""
    return Field(default=default, sa_column_kwargs={"server_default": str(default)})


class PhoneRow(SQLModel, table=True):
    """A phone that was seen at least once."""

    __tablename__ = "phone"
    serial: str = Field(primary_key=True)
    host: str
    facts: dict[str, Any] = Field(sa_column=_json())
    facts_digest: str
    seen_at: datetime = Field(sa_column=_utc())
    fence: int = 0
    health: str = _or("good")
    health_why: str = _or("")
    strikes: int = _or(0)
    tags: list[str] = Field(default_factory=list, sa_column=_json_or("[]"))
    reserved_by: str = _or("")
    reserved_until: float = _or(0)  # 0 with a name: until it is given back
    reserved_why: str = _or("")


class SweepRow(SQLModel, table=True):
    """A sweep, as it was submitted, and what was decided about it since."""

    __tablename__ = "sweep"
    id: str = Field(primary_key=True)
    name: str
    source: str = Field(sa_column=Column(Text, nullable=False))
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_at: datetime = Field(sa_column=_utc())
    policy: dict[str, Any] = Field(default_factory=dict, sa_column=_json_or("{}"))
    state: str = _or("active")
    state_why: str = _or("")
    owner: str = _or("")
    priority: int = _or(50)
    deadline: float | None = None
    begun_at: float | None = None  # when its first run was leased


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
    stopped: str = _or("")  # the rule that said: it is known, or it is not worth more
    stopped_why: str = _or("")


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
        Index("run_line", "phone", "state", "sweep", "rank"),
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
    places: list[int] = Field(default_factory=list, sa_column=_json_or("[]"))
    chosen: int | None = None  # which of the drawn orders of its block is followed
    unwanted: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})


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
    control: str | None = None
    began_s: float | None = None  # by its host's clock, as the next two
    ended_s: float | None = None
    cooled_s: float | None = None  # of that, waiting for the start temperature
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
    grade: str = _or("")


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


class CasualtyRow(SQLModel, table=True):
    """An attempt that was killed, and what its case was: two phones of it poison the case."""

    __tablename__ = "casualty"
    trial: str = Field(primary_key=True)
    repeat: int = Field(primary_key=True)
    attempt: int = Field(primary_key=True)
    case_digest: str = Field(index=True)
    phone: str
    weight: int
    what: str = Field(sa_column=Column(Text, nullable=False))
    at: datetime = Field(sa_column=_utc())
    forgiven: bool = False


class HostRow(SQLModel, table=True):
    """A host that somebody decided something about."""

    __tablename__ = "host"
    name: str = Field(primary_key=True)
    drained: bool = False
    why: str = ""


class AuditRow(SQLModel, table=True):
    """Who changed what, when, from what to what, and how it is taken back."""

    __tablename__ = "audit"
    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_column=_utc())
    who: str
    verb: str
    object: str = Field(index=True)
    before: dict[str, Any] = Field(sa_column=_json())
    after: dict[str, Any] = Field(sa_column=_json())
    undo: str


# Statements are written on the tables themselves: building row objects costs 25 times the insert.
_tables = SQLModel.metadata.tables
phone, sweep, trial, run = (_tables[name] for name in ("phone", "sweep", "trial", "run"))
report, metric, chunk = (_tables[name] for name in ("report", "metric", "chunk"))
checkup, casualty, host, audit = (
    _tables[name] for name in ("checkup", "casualty", "host", "audit")
)
