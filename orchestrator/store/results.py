"""The results of runs: what comparisons, exports and studies are computed from."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from orchestrator.analysis.measurements import NOTHING_APPLIED, MeasuredRun, RunOutcome
from orchestrator.planning.states import ReportStatus, RunState
from orchestrator.store.database import Database
from orchestrator.store.joint_judgements import JUDGED, stored_judgement
from orchestrator.store.tables import chunk, phone, report, run, trial
from workloads.catalogue import Case
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.condition import Condition
from workloads.protocol.faults import Fault
from workloads.protocol.memory_outcome import memory_outcome
from workloads.protocol.messages import Report
from workloads.protocol.phone_facts import PhoneFacts
from workloads.protocol.verdict import Validity


def measured_runs(
    db: Database, sweep_id: str, include_void: bool = False, metrics: Collection[str] = ()
) -> list[MeasuredRun]:
    """Return the accepted runs of a sweep in the planned order, with the void ones if requested."""
    return list(iterate_measured_runs(db, sweep_id, include_void, metrics))


def iterate_measured_runs(
    db: Database, sweep_id: str, include_void: bool = False, metrics: Collection[str] = ()
) -> Iterator[MeasuredRun]:
    """Yield the runs of `measured_runs` one by one, so that only a few are in memory.

    With names of metrics, runs that have some of them have only these: a run has about fifty.
    """
    wanted = [ReportStatus.ACCEPTED, *([ReportStatus.VOID] if include_void else [])]
    query = (
        select(report.c.payload, run.c.block, run.c.position, run.c.trial, run.c.phone, *JUDGED)
        .join(run, (run.c.trial == report.c.trial) & (run.c.repeat == report.c.repeat))
        .where(run.c.sweep == sweep_id, report.c.status.in_(wanted))
        .order_by(run.c.phone, run.c.block, run.c.position, run.c.trial, run.c.repeat)
    )
    with db.read(in_transaction=True) as connection:
        known = _KnownTrials(connection, sweep_id)
        rows = connection.execution_options(yield_per=200).execute(query)
        yield from _to_measured_runs(sweep_id, rows, known, metrics)


class _KnownTrials:
    """The trials and phones of a sweep; many runs share them, so each is read once."""

    def __init__(self, connection: Connection, sweep_id: str) -> None:
        own = select(trial.c.phone).where(trial.c.sweep == sweep_id)
        phones = select(phone.c.serial, phone.c.facts).where(phone.c.serial.in_(own))
        self.facts = {
            serial: PhoneFacts.model_validate(facts) for serial, facts in connection.execute(phones)
        }
        columns = (trial.c.id, trial.c.case_digest, trial.c.condition_digest)
        rows = connection.execute(
            select(*columns, trial.c.case, trial.c.condition).where(trial.c.sweep == sweep_id)
        )
        cases: dict[str, Case] = {}
        conditions: dict[str, Condition] = {}
        self.trials: dict[str, tuple[Case, Condition]] = {}
        for trial_id, case_digest, condition_digest, case, condition in rows:
            if case_digest not in cases:
                cases[case_digest] = Case.model_validate(case)
            if condition_digest not in conditions:
                conditions[condition_digest] = Condition.model_validate(condition)
            self.trials[trial_id] = (cases[case_digest], conditions[condition_digest])


def _to_measured_runs(
    sweep_id: str, rows: Iterable[Any], known: _KnownTrials, metrics: Collection[str]
) -> Iterator[MeasuredRun]:
    for row in rows:
        message = Report.model_validate_json(row.payload)
        if message.verdict is None:
            continue
        case, condition = known.trials[row.trial]
        judgement = stored_judgement(row)
        found = [metric for metric in message.metrics if metric.name in metrics]
        yield MeasuredRun(
            sweep=sweep_id,
            trial=message.run.trial,
            repeat=message.run.repeat,
            attempt=message.run.attempt,
            block=row.block,
            position=row.position,
            phone=message.phone,
            host=message.host,
            facts=known.facts[row.phone],
            case=case,
            condition=condition,
            control=message.control,
            verdict=judgement.applied_to(message.verdict),
            judged_runs=judgement.runs,
            metrics={metric.name: metric for metric in found or message.metrics},
            started_at=message.started_at,
            ended_at=message.ended_at,
            boot_id=message.boot_id,
            telemetry=message.telemetry,
            step_time_curve=message.step_time_curve,
            applied=message.applied,
            programs=message.programs,
        )


def stored_reports(
    db: Database, sweep_id: str
) -> Iterator[tuple[Report, Case, Condition, bytes | None]]:
    """Yield every report of a sweep that was not stale, with its case, condition and telemetry."""
    query = (
        select(report.c.payload, report.c.trial)
        .join(trial, trial.c.id == report.c.trial)
        .where(trial.c.sweep == sweep_id, report.c.status != ReportStatus.STALE)
        .order_by(trial.c.phone, report.c.trial, report.c.repeat, report.c.attempt)
    )
    with db.read(in_transaction=True) as connection:
        known = _KnownTrials(connection, sweep_id)
        rows = connection.execution_options(yield_per=200).execute(query)
        for payload, trial_id in rows:
            message = Report.model_validate_json(payload)
            blob = telemetry_blob(db, message.telemetry) if message.telemetry else None
            yield message, *known.trials[trial_id], blob


def run_outcomes(
    db: Database, sweep_id: str, states: Sequence[RunState] = tuple(RunState)
) -> list[RunOutcome]:
    """Return the outcome of the runs of a sweep in some states, from reports that are not stale."""
    runs = (
        select(run.c.trial, run.c.repeat, run.c.phone, run.c.state, run.c.note)
        .add_columns(run.c.block, run.c.position, trial.c.case, trial.c.condition)
        .join(trial, trial.c.id == run.c.trial)
        .where(run.c.sweep == sweep_id, run.c.state.in_(states))
        .order_by(run.c.phone, run.c.block, run.c.position)
    )
    same = (run.c.trial == report.c.trial) & (run.c.repeat == report.c.repeat)
    reports = (
        select(report.c.trial, report.c.repeat, report.c.payload, *JUDGED)
        .join(run, same)
        .where(run.c.sweep == sweep_id, run.c.state.in_(states))
        .where(report.c.status != ReportStatus.STALE)
        .order_by(report.c.attempt)
    )
    with db.read() as connection:
        last = {(row.trial, row.repeat): row for row in connection.execute(reports)}
        return [
            _outcome(row, last.get((row.trial, row.repeat))) for row in connection.execute(runs)
        ]


def _outcome(row: Any, reported: Any | None) -> RunOutcome:
    message = Report.model_validate_json(reported.payload) if reported else None
    metrics = {metric.name: metric for metric in message.metrics} if message else {}
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
        validity=Validity(reported.judged) if reported and message and message.verdict else None,
        memory_outcome=memory_outcome(message.fault, metrics) if message else None,
        peak_rss_mb=peak.value if peak else None,
        fault=message.fault if message else None,
        note=row.note or "",
        applied=message.applied if message else NOTHING_APPLIED,
        peak_rss_source=str(peak.provenance) if peak else "",
    )


def faults_by_trial(db: Database, sweep_id: str) -> dict[str, list[Fault]]:
    """Return the faults of all attempts of a sweep, by trial."""
    failed = (
        select(report.c.trial, report.c.payload)
        .join(trial, trial.c.id == report.c.trial)
        .where(trial.c.sweep == sweep_id, report.c.status == ReportStatus.FAULT)
        .order_by(report.c.id)
    )
    faults: dict[str, list[Fault]] = {}
    for row in db.rows(failed):
        fault = Report.model_validate_json(row.payload).fault
        if fault is not None:
            faults.setdefault(row.trial, []).append(fault)
    return faults


def cases_of_sweep(db: Database, sweep_id: str) -> list[Case]:
    """Return the different cases of a sweep."""
    examples = select(func.min(trial.c.id)).where(trial.c.sweep == sweep_id)
    query = select(trial.c.case).where(trial.c.id.in_(examples.group_by(trial.c.case_digest)))
    return [Case.model_validate(case) for case in db.values(query)]


def telemetry_blob(db: Database, digest: str) -> bytes | None:
    """Return a blob by its digest; None if a piece is missing or the checksum does not match."""
    rows = db.rows(select(chunk).where(chunk.c.digest == digest).order_by(chunk.c.part))
    if not rows or len(rows) != rows[0].parts:
        return None
    blob = b"".join(row.data for row in rows)
    return blob if digest_of_bytes(blob) == digest else None
