"""The database tables.

Columns hold what queries need; the report itself is kept verbatim beside them. Two guarantees are
indexes of the database, so that no bug in the code above can break them: a phone has at most one
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

from orchestrator.store.compressed_text import CompressedText


def _json(default: type[dict[str, Any] | list[Any]] | None = None) -> Any:
    return Column(JSON, nullable=False, default=default)


# Readers continue after the last number that they saw: the number of a removed row is not reused.
_NEVER_REUSED = {"sqlite_autoincrement": True}


def _utc() -> Any:
    return Column(DateTime(timezone=True), nullable=False)


class PhoneRow(SQLModel, table=True):
    """A phone that was announced at least once."""

    __tablename__ = "phone"
    serial: str = Field(primary_key=True)
    host: str
    facts: dict[str, Any] = Field(sa_column=_json())
    facts_digest: str
    last_seen_at: datetime = Field(sa_column=_utc())
    fence: int = 0
    health: str = "good"
    health_reason: str = ""
    strikes: int = 0
    tags: list[str] = Field(default_factory=list, sa_column=_json(list))
    reserved_by: str = ""
    reserved_until: float = 0  # epoch seconds; 0 with a name: until it is unreserved
    reserved_reason: str = ""


class SweepRow(SQLModel, table=True):
    """A sweep as it was submitted, and the operators' decisions about it."""

    __tablename__ = "sweep"
    id: str = Field(primary_key=True)
    name: str
    source: str = Field(sa_column=Column(Text, nullable=False))
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_at: datetime = Field(sa_column=_utc())
    policy: dict[str, Any] = Field(default_factory=dict, sa_column=_json(dict))
    state: str = "active"
    state_reason: str = ""
    paused_by: str | None = None
    owner: str = ""
    priority: int = 50
    deadline: float | None = None
    started_at_s: float | None = None  # epoch seconds; when its first run was leased
    pinned: bool = False  # kept by `farm store prune`, and not removed
    notify: list[str] = Field(default_factory=list, sa_column=_json(list))  # not used any more


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
    stop_rule: str = ""  # which rule ended its repeats early
    stop_reason: str = ""


class RunRow(SQLModel, table=True):
    """One planned run. This row is the job; Celery only carries messages about it."""

    __tablename__ = "run"
    __table_args__ = (
        UniqueConstraint("trial", "repeat", name="run_identity"),
        Index(
            "one_lease_per_phone",
            "phone",
            unique=True,  # guard: one-lease-per-phone
            sqlite_where=text("state = 'leased'"),
            postgresql_where=text("state = 'leased'"),
        ),
        Index("run_queue", "phone", "state", "sweep", "rank"),
        Index("run_of_sweep", "sweep", "state"),
        _NEVER_REUSED,
    )
    id: int | None = Field(default=None, primary_key=True)
    trial: str = Field(foreign_key="trial.id")
    repeat: int
    sweep: str
    phone: str
    block: int
    position: int  # among the runs of its phone
    rank: int  # in the queue of its phone, over all sweeps
    state: str = "queued"
    attempt: int = 0
    host: str = ""
    lease_until: float = 0.0
    not_before: float = 0.0
    tries: dict[str, int] = Field(default_factory=dict, sa_column=_json(dict))  # by blame
    note: str = ""
    cancel_requested: bool = False


class ReportRow(SQLModel, table=True):
    """A report, verbatim; void, fault and stale ones too, marked by their status."""

    __tablename__ = "report"
    __table_args__ = (
        UniqueConstraint("trial", "repeat", "attempt", "host", name="report_identity"),
        Index(
            "one_accepted_report_per_run",
            "trial",
            "repeat",
            unique=True,  # guard: one-accepted-report-per-run
            sqlite_where=text("status = 'accepted'"),
            postgresql_where=text("status = 'accepted'"),
        ),
        _NEVER_REUSED,
    )
    id: int | None = Field(default=None, primary_key=True)
    trial: str
    repeat: int
    attempt: int
    status: str
    validity: str  # as sent
    phone: str
    host: str
    received_at: datetime = Field(sa_column=_utc())
    telemetry: str | None = None  # digest of its blob
    control: str | None = None
    started_at_s: float  # epoch seconds by the clock of its host
    ended_at_s: float
    cooldown_s: float  # of that time, waiting for the start temperature
    # The joint judgement; store/joint_judgements.py writes it.
    judged: str  # whether the run counts beside its siblings; as sent before they are judged
    judged_reasons: list[Any] = Field(default_factory=list, sa_column=_json(list))
    judged_runs: int = 0  # that were judged together; 0: not judged yet
    judged_rules: int = 0  # the version of the rules
    payload: str = Field(sa_column=Column(CompressedText, nullable=False))


class MetricNameRow(SQLModel, table=True):
    """The name of a metric, as a number: a run has about fifty metrics."""

    __tablename__ = "metric_name"
    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)


class MetricOriginRow(SQLModel, table=True):
    """Where values come from, as a number; no column is empty, so that the key is unique."""

    __tablename__ = "metric_origin"
    __table_args__ = (
        UniqueConstraint("source", "model", "error_rel", "grade", name="origin_identity"),
    )
    id: int | None = Field(default=None, primary_key=True)
    source: str
    model: str  # empty: none
    error_rel: float  # negative: unknown
    grade: str


class MetricValueRow(SQLModel, table=True):
    """One metric of an accepted report, with its provenance; store/metric_codes.py writes it."""

    __tablename__ = "metric_value"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    name: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    value: float
    origin: int


class ChunkRow(SQLModel, table=True):
    """A piece of a telemetry blob."""

    __tablename__ = "chunk"
    digest: str = Field(primary_key=True)
    part: int = Field(primary_key=True)
    parts: int
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    received_at_s: float = 0  # epoch seconds


class CommandResultRow(SQLModel, table=True):
    """The result of a check, a restore or a tune that was sent to a phone's host."""

    __tablename__ = "command_result"
    id: str = Field(primary_key=True)
    phone: str
    host: str
    command: str
    succeeded: bool
    text: str = Field(sa_column=Column(Text, nullable=False))
    file: str | None = None  # digest of a file that came with the result
    received_at_s: float = 0  # epoch seconds


class CrashRow(SQLModel, table=True):
    """An attempt that crashed; a case whose attempts crash on two phones is poisoned."""

    __tablename__ = "crash"
    trial: str = Field(primary_key=True)
    repeat: int = Field(primary_key=True)
    attempt: int = Field(primary_key=True)
    case_digest: str = Field(index=True)
    phone: str
    weight: int
    text: str = Field(sa_column=Column(Text, nullable=False))
    occurred_at: datetime = Field(sa_column=_utc())
    cleared: bool = False


class HostRow(SQLModel, table=True):
    """A host that an operator has drained at least once."""

    __tablename__ = "host"
    name: str = Field(primary_key=True)
    drained: bool = False
    reason: str = ""


class EnrolmentRow(SQLModel, table=True):
    """A host that was added to the lab; of its secrets only digests are kept."""

    __tablename__ = "enrolment"
    host: str = Field(primary_key=True)
    offer_digest: str = Field(default="", index=True)  # of the secret to join with, until it joins
    offer_until_s: float = 0  # epoch seconds
    password_digest: str = ""  # of its user at the broker; empty before it joined
    enrolled_at_s: float = 0
    certificate_until_s: float = 0
    revoked: bool = False


class AuditRow(SQLModel, table=True):
    """Who changed what, when, the values before and after, and the command that undoes it."""

    __tablename__ = "audit"
    id: int | None = Field(default=None, primary_key=True)
    occurred_at: datetime = Field(sa_column=_utc())
    actor: str
    action: str
    target: str = Field(index=True)
    before: dict[str, Any] = Field(sa_column=_json())
    after: dict[str, Any] = Field(sa_column=_json())
    undo: str | None


class TokenRow(SQLModel, table=True):
    """A token of the API; of the secret itself only the digest is kept."""

    __tablename__ = "token"
    id: str = Field(primary_key=True)
    digest: str = Field(unique=True)
    person: str
    role: str
    created_at: datetime = Field(sa_column=_utc())
    expires_at: datetime = Field(sa_column=_utc())
    revoked: bool = False
    once: bool = False  # a code that is exchanged for a session of the page, and then revoked


class NoticeRow(SQLModel, table=True):
    """Something that is reported to people; a condition that still holds has no end."""

    __tablename__ = "notice"
    __table_args__ = (
        Index(
            "one_open_notice",
            "kind",
            "subject",
            unique=True,
            sqlite_where=text("cleared_at_s IS NULL"),
            postgresql_where=text("cleared_at_s IS NULL"),
        ),
        _NEVER_REUSED,
    )
    id: int | None = Field(default=None, primary_key=True)
    kind: str
    subject: str
    text: str = Field(sa_column=Column(Text, nullable=False))
    raised_at_s: float
    cleared_at_s: float | None = None
    spread: bool = False  # whether it has its deliveries


class NoticeDeliveryRow(SQLModel, table=True):
    """The delivery of a notice to one target: the spool."""

    __tablename__ = "notice_delivery"
    notice: int = Field(foreign_key="notice.id", primary_key=True)
    target: str = Field(primary_key=True)
    state: str
    tries: int = 0
    next_try_s: float = 0.0
    error: str = ""


# Statements are written on the tables themselves: building row objects costs 25 times the insert.
_tables = SQLModel.metadata.tables
phone, sweep, trial, run = (_tables[name] for name in ("phone", "sweep", "trial", "run"))
report, chunk = (_tables[name] for name in ("report", "chunk"))
metric_name, metric_origin, metric_value = (
    _tables[name] for name in ("metric_name", "metric_origin", "metric_value")
)
command_result, crash, host, audit, token = (
    _tables[name] for name in ("command_result", "crash", "host", "audit", "token")
)
notice, notice_delivery = (_tables[name] for name in ("notice", "notice_delivery"))
enrolment = _tables["enrolment"]
