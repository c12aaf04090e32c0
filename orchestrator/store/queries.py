"""Every read, named for the question it answers. Rows never leave this room."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select

from orchestrator.nouns import (
    Decided,
    KnownPhone,
    MeasuredRun,
    RunOutcome,
    RunState,
    SweepState,
    SweepSummary,
)
from orchestrator.store import tables
from orchestrator.store.database import Database
from orchestrator.store.tables import (
    ACCEPTED,
    STALE,
    VOID,
    chunk,
    host,
    phone,
    report,
    run,
    sweep,
    trial,
)
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.fault import Refused
from workloads.fit import fit_of
from workloads.messages import Report
from workloads.noun import digest_of_bytes
from workloads.phone import PhoneFacts


def known_phones(db: Database) -> list[KnownPhone]:
    """Every phone that was ever seen."""
    with db.read() as connection:
        rows = connection.execute(select(phone).order_by(phone.c.serial)).all()
    return [known_phone(row, PhoneFacts.model_validate(row.facts)) for row in rows]


def known_phone(row: Any, facts: PhoneFacts) -> KnownPhone:
    """A phone's row and facts, without its heartbeat."""
    return KnownPhone(
        serial=row.serial,
        host=row.host,
        facts=facts,
        seen_at=aware(row.seen_at),
        health=row.health,
        health_why=row.health_why,
        tags=tuple(row.tags),
        reserved_by=row.reserved_by,
        reserved_until=row.reserved_until,
        reserved_why=row.reserved_why,
    )


def sweep_summaries(
    db: Database, only: str | None = None, limit: int | None = None
) -> list[SweepSummary]:
    """Sweeps with their counts, newest first."""
    with db.read() as connection:
        chosen = select(sweep).order_by(sweep.c.created_at.desc()).limit(limit)
        if only is not None:
            chosen = chosen.where(sweep.c.id == only)
        rows = connection.execute(chosen).all()
        counts = connection.execute(
            select(run.c.sweep, run.c.state, func.count())
            .where(run.c.sweep.in_([row.id for row in rows]))
            .group_by(run.c.sweep, run.c.state)
        ).all()
        trials = connection.execute(
            select(trial.c.sweep, func.count().label("trials"))
            .where(trial.c.sweep.in_([row.id for row in rows]))
            .group_by(trial.c.sweep)
        ).all()
    trials_of: dict[str, int] = {row.sweep: row.trials for row in trials}
    budgets = {row.id: row.policy.get("budget") or {} for row in rows}
    runs_of: dict[str, dict[RunState, int]] = {}
    for sweep_id, state, count in counts:
        runs_of.setdefault(sweep_id, {})[RunState(state)] = count
    return [
        SweepSummary(
            id=row.id,
            name=row.name,
            created_at=aware(row.created_at),
            trials=trials_of.get(row.id, 0),
            runs=runs_of.get(row.id, {}),
            state=SweepState(row.state),
            state_why=row.state_why,
            owner=row.owner,
            priority=row.priority,
            deadline=row.deadline,
            begun_at=row.begun_at,
            wall_s=budgets[row.id].get("wall_s"),
            failures_max=budgets[row.id].get("failures"),
            failures_share_max=budgets[row.id].get("failures_share"),
        )
        for row in rows
    ]


def find_sweep(db: Database, name: str) -> SweepSummary:
    """Find a sweep by id, by the beginning of its id, or by name (the newest of that name)."""
    summaries = sweep_summaries(db)
    exact = [item for item in summaries if name in (item.id, item.name)]
    begun = [item for item in summaries if item.id.startswith(name)]
    if exact:
        return exact[0]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise Refused(f"'{name}' is the beginning of {len(begun)} sweeps; write more of it")
    raise Refused(f"there is no sweep '{name}'; 'farm sweep list' shows all")


def sweep_source(db: Database, sweep_id: str) -> str:
    """The sweep file as it was submitted."""
    with db.read() as connection:
        found = connection.execute(select(sweep.c.source).where(sweep.c.id == sweep_id))
        return str(found.scalar_one())


def failed_runs(db: Database, sweep_id: str) -> list[tuple[str, int, str, str]]:
    """Runs that were given up: trial, repeat, phone and why."""
    return _runs_in(db, sweep_id, RunState.FAILED)


def _runs_in(db: Database, sweep_id: str, state: RunState) -> list[tuple[str, int, str, str]]:
    with db.read() as connection:
        rows = connection.execute(
            select(run.c.trial, run.c.repeat, run.c.phone, run.c.note)
            .where(run.c.sweep == sweep_id, run.c.state == state)
            .order_by(run.c.id)
        )
        return [(row.trial, row.repeat, row.phone, row.note) for row in rows]


def measured_runs(db: Database, sweep_id: str, void: bool = False) -> list[MeasuredRun]:
    """The accepted runs of a sweep in the order they were planned; void ones too when asked."""
    return list(each_measured_run(db, sweep_id, void))


def each_measured_run(db: Database, sweep_id: str, void: bool = False) -> Iterator[MeasuredRun]:
    """The same runs, one after the other: however many there are, few are in memory."""
    wanted = (ACCEPTED, VOID) if void else (ACCEPTED,)
    question = (
        select(
            report.c.body,
            run.c.block,
            run.c.position,
            trial.c.case,
            trial.c.condition,
            phone.c.facts,
        )
        .join(trial, trial.c.id == report.c.trial)
        .join(run, (run.c.trial == report.c.trial) & (run.c.repeat == report.c.repeat))
        .join(phone, phone.c.serial == report.c.phone)
        .where(trial.c.sweep == sweep_id, report.c.status.in_(wanted))
        .order_by(run.c.phone, run.c.block, run.c.position)
    )
    with db.read() as connection:
        rows = connection.execution_options(yield_per=200).execute(question)
        yield from _measured(sweep_id, rows)


def _measured(sweep_id: str, rows: Iterable[Any]) -> Iterator[MeasuredRun]:
    for body, block, position, case, condition, facts in rows:
        said = Report.model_validate_json(body)
        if said.verdict is None:
            continue
        yield MeasuredRun(
            sweep=sweep_id,
            trial=said.run.trial,
            repeat=said.run.repeat,
            attempt=said.run.attempt,
            block=block,
            position=position,
            phone=said.phone,
            host=said.host,
            facts=PhoneFacts.model_validate(facts),
            case=Case.model_validate(case),
            condition=Condition.model_validate(condition),
            control=said.control,
            verdict=said.verdict,
            metrics={metric.name: metric for metric in said.metrics},
            started_at=said.started_at,
            ended_at=said.ended_at,
            telemetry=said.telemetry,
            curve=said.curve,
        )


def run_outcomes(db: Database, sweep_id: str) -> list[RunOutcome]:
    """What became of every run of a sweep: the last report that counts for it, if there is one."""
    runs = (
        select(run.c.trial, run.c.repeat, run.c.phone, run.c.state, run.c.note)
        .add_columns(run.c.block, run.c.position, trial.c.case, trial.c.condition)
        .join(trial, trial.c.id == run.c.trial)
        .where(run.c.sweep == sweep_id)
        .order_by(run.c.phone, run.c.block, run.c.position)
    )
    reports = (
        select(report.c.trial, report.c.repeat, report.c.body)
        .join(trial, trial.c.id == report.c.trial)
        .where(trial.c.sweep == sweep_id, report.c.status != STALE)
        .order_by(report.c.attempt)
    )
    with db.read() as connection:
        last = {(row.trial, row.repeat): row.body for row in connection.execute(reports)}
        return [
            _outcome(row, last.get((row.trial, row.repeat))) for row in connection.execute(runs)
        ]


def _outcome(row: Any, body: str | None) -> RunOutcome:
    said = Report.model_validate_json(body) if body else None
    metrics = {metric.name: metric for metric in said.metrics} if said else {}
    peak = metrics.get("peak_rss_mb")
    return RunOutcome(
        trial=row.trial,
        repeat=row.repeat,
        block=row.block,
        position=row.position,
        phone=row.phone,
        case=Case.model_validate(row.case),
        condition=Condition.model_validate(row.condition),
        state=RunState(row.state),
        verdict=said.verdict.standing if said and said.verdict else None,
        fit=fit_of(said.fault, metrics) if said else None,
        peak_rss_mb=peak.value if peak else None,
        why=row.note or "",
    )


def telemetry(db: Database, digest: str) -> bytes | None:
    """A run's telemetry blob, if all of it has arrived, and as it was sent."""
    with db.read() as connection:
        rows = connection.execute(
            select(chunk).where(chunk.c.digest == digest).order_by(chunk.c.part)
        ).all()
    if not rows or len(rows) != rows[0].parts:
        return None
    blob = b"".join(row.data for row in rows)
    return blob if digest_of_bytes(blob) == digest else None


def aware(moment: datetime) -> datetime:
    """SQLite forgets the time zone; everything is stored in UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def phone_tags(db: Database) -> dict[str, frozenset[str]]:
    """The labels on every phone."""
    with db.read() as connection:
        rows = connection.execute(select(phone.c.serial, phone.c.tags)).all()
    return {row.serial: frozenset(row.tags) for row in rows}


def hosts_closed(db: Database) -> dict[str, str]:
    """Hosts that were drained, and why."""
    with db.read() as connection:
        rows = connection.execute(select(host.c.name, host.c.why).where(host.c.drained)).all()
    return {row.name: row.why for row in rows}


def audit(db: Database, of: str | None = None, limit: int = 100) -> list[Decided]:
    """What people (and budgets) have decided, newest first; about one sweep, phone or host."""
    question = select(tables.audit).order_by(tables.audit.c.id.desc()).limit(limit)
    if of is not None:
        question = question.where(tables.audit.c.object == of)
    with db.read() as connection:
        rows = connection.execute(question).all()
    return [
        Decided(aware(row.at), row.who, row.verb, row.object, row.before, row.after, row.undo)
        for row in rows
    ]


def stopped_trials(db: Database, sweep_id: str) -> dict[str, str]:
    """Trials that a rule has stopped, and which rule, in words."""
    known = (trial.c.sweep == sweep_id, trial.c.stopped != "")
    with db.read() as connection:
        rows = connection.execute(select(trial.c.id, trial.c.stopped_why).where(*known)).all()
    return {row.id: row.stopped_why for row in rows}


def held_runs(db: Database, sweep_id: str) -> list[tuple[str, int, str, str]]:
    """Runs of poisoned cases: trial, repeat, phone, and the evidence."""
    return _runs_in(db, sweep_id, RunState.HELD)
