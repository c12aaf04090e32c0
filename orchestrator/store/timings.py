"""The durations of finished runs: for the scheduler, for plans and for the live view."""

import json
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import bindparam, func, select

from orchestrator.planning.estimate import ProfiledStep
from orchestrator.planning.run_durations import RunTiming, phone_speed
from orchestrator.planning.states import ReportStatus
from orchestrator.store.database import Database
from orchestrator.store.metric_codes import name_code
from orchestrator.store.tables import chunk, metric_value, report, run, trial

BATCH = 2000
SIZED_REPORTS = 200
FINISHED = (ReportStatus.ACCEPTED, ReportStatus.VOID)

_SAME_RUN = (run.c.trial == report.c.trial) & (run.c.repeat == report.c.repeat)
_START_TEMP = (metric_value.c.run == run.c.id) & (metric_value.c.name == name_code("start_temp_c"))
_TIMINGS = (
    select(
        *(report.c.phone, trial.c.case_digest, trial.c.condition_digest),
        *(report.c.started_at_s, report.c.ended_at_s, trial.c.sweep),
        *(report.c.cooldown_s, metric_value.c.value, report.c.id),
    )
    .join(trial, trial.c.id == report.c.trial)
    .join(run, _SAME_RUN)
    .join(metric_value, _START_TEMP, isouter=True)
)
# Built once, because the scheduler executes it in every tick.
_SINCE = (
    _TIMINGS.where(report.c.status.in_(FINISHED), report.c.id > bindparam("cursor"))
    .order_by(report.c.id)
    .limit(BATCH)
)


def timings_since(db: Database, cursor: int | None) -> list[RunTiming]:
    """Return accepted and void runs after the cursor, oldest first; without one, the newest."""
    with db.read() as connection:
        if cursor is None:
            newest = connection.execute(select(func.max(report.c.id))).scalar() or 0
            cursor = newest - BATCH
        return [RunTiming(*row) for row in connection.execute(_SINCE, {"cursor": cursor})]


def newest_timings(
    db: Database,
    limit: int,
    statuses: Collection[ReportStatus] = (ReportStatus.ACCEPTED,),
    after: int = 0,
) -> list[RunTiming]:
    """Return the newest runs with these statuses, newest first."""
    query = _TIMINGS.where(report.c.status.in_(statuses), report.c.id > after)
    rows = db.rows(query.order_by(report.c.id.desc()).limit(limit))
    return [RunTiming(*row) for row in rows]


def protocols_by_condition(db: Database) -> dict[str, str]:
    """Return the protocol of every stored condition, by the condition's digest."""
    examples = db.values(select(func.min(trial.c.id)).group_by(trial.c.condition_digest))
    columns = (trial.c.condition_digest, trial.c.condition)
    rows = db.rows(select(*columns).where(trial.c.id.in_(examples)))
    return {row.condition_digest: row.condition["protocol"] for row in rows}


def profiled_steps(db: Database, phones: Collection[str]) -> list[ProfiledStep]:
    """Return the mean step time of every case, core set and clock that phones have measured."""
    cores, freq = trial.c.condition["cores"].as_string(), trial.c.condition["freq"].as_string()
    key = (trial.c.phone, trial.c.case_digest, cores, freq)
    query = (
        select(*key, func.avg(metric_value.c.value))
        .join(run, run.c.trial == trial.c.id)
        .join(metric_value, metric_value.c.run == run.c.id)
        .where(trial.c.phone.in_(phones), metric_value.c.name == name_code("step_ms"))
        .group_by(*key)
    )
    return [ProfiledStep(*row) for row in db.rows(query)]


def phone_speeds(db: Database) -> dict[str, float]:
    """Return how fast the clock of each phone was in its newest run, in host seconds."""
    newest = db.values(
        select(func.max(report.c.id)).where(report.c.status.in_(FINISHED)).group_by(report.c.phone)
    )
    columns = (report.c.phone, report.c.started_at_s, report.c.ended_at_s, report.c.payload)
    return {
        phone: phone_speed(json.loads(payload)["stage_seconds"].values(), ended_s - started_s)
        for phone, started_s, ended_s, payload in db.rows(
            select(*columns).where(report.c.id.in_(newest))
        )
    }


@dataclass(frozen=True)
class ReportSizes:
    """The mean size of recent reports and of their telemetry in bytes; None if there is none."""

    report: float | None
    telemetry: float | None


def report_sizes(db: Database) -> ReportSizes:
    """Return the mean sizes of the newest reports."""
    newest = (
        select(func.length(report.c.payload).label("size"), report.c.telemetry)
        .order_by(report.c.id.desc())
        .limit(SIZED_REPORTS)
    )
    with db.read() as connection:
        rows = connection.execute(newest).all()
        blobs = {row.telemetry for row in rows if row.telemetry is not None}
        stored = connection.execute(
            select(func.sum(func.length(chunk.c.data))).where(chunk.c.digest.in_(blobs))
        ).scalar_one()
    mean = sum(row.size for row in rows) / len(rows) if rows else None
    return ReportSizes(mean, stored / len(blobs) if blobs and stored else None)
