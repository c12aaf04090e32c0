"""Stores what agents send: the only module that turns messages into rows.

A delivery is one transaction. A parcel that is stored already changes nothing and is confirmed
again, so agents may resend as often as they like.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, bindparam, func, select, tuple_, update

from orchestrator.decisions.health import HealthState
from orchestrator.decisions.poison import crash_in
from orchestrator.decisions.retry import RetryAction, RetryDecision, decide_retry
from orchestrator.decisions.states import ReportStatus, RunState
from orchestrator.store import convergence, crashes, phone_health, tables
from orchestrator.store.database import Database
from orchestrator.store.tables import phone, run, trial
from orchestrator.store.trial_queries import trial_label
from orchestrator.sweepfile.policy import Policy
from workloads.protocol.condition import Condition
from workloads.protocol.messages import (
    AnyParcel,
    Chunk,
    CommandResult,
    Event,
    EventKind,
    PhoneAnnouncement,
    Report,
)
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Validity
from workloads.units import format_ms

_TRIAL_COLUMNS = (
    *(trial.c.case, trial.c.case_digest, trial.c.condition, trial.c.condition_digest),
    *(trial.c.stop_rule, trial.c.stop_reason),
)
# Statements of the busy path are built once; building one costs as much as running it.
_REPORTED: BindParameter[Any] = bindparam("runs", expanding=True)
_RUNS = (
    select(run, *_TRIAL_COLUMNS)
    .join(trial, trial.c.id == run.c.trial)
    .where(tuple_(run.c.trial, run.c.repeat).in_(_REPORTED))
    .order_by(run.c.id)
    .with_for_update(of=run)  # no lease and no expiry before this transaction ends
)
_STORED_REPORTS = select(
    tables.report.c.trial, tables.report.c.repeat, tables.report.c.attempt
).where(tuple_(tables.report.c.trial, tables.report.c.repeat).in_(_REPORTED))
_RETRY_TEXTS = {
    RetryAction.RETRY: "; will be retried",
    RetryAction.RETRY_LATER: "; will be retried after the other runs of this phone",
}
_DONE = (
    update(run)
    .where(run.c.id == bindparam("run_id"))
    .values(state=RunState.DONE, note="", lease_until=0.0)
)


@dataclass
class IngestResult:
    """The result of a delivery: ids to confirm, events to publish, and reports by status."""

    confirmed: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    reports: Counter[ReportStatus] = field(default_factory=Counter)


def store_parcels(db: Database, host: str, parcels: Sequence[AnyParcel]) -> IngestResult:
    """Store what a host sent."""
    result = IngestResult(confirmed=[parcel.parcel_id for parcel in parcels])
    with db.write() as connection:
        _store_chunks(db, connection, [item for item in parcels if isinstance(item, Chunk)])
        for parcel in parcels:
            if isinstance(parcel, PhoneAnnouncement):
                _store_announcement(db, connection, parcel)
        reports = {str(item.run): item for item in parcels if isinstance(item, Report)}
        if reports:
            batch = _ReportBatch(db, connection, host, list(reports.values()))
            batch.store()
            result.events += batch.events
            result.reports = batch.statuses
        for parcel in parcels:
            if isinstance(parcel, CommandResult):
                changed = phone_health.store_command_result(db, connection, parcel)
                if changed is not None:
                    result.events.append(phone_health.health_event(parcel.phone, host, changed))
    return result


def _store_chunks(db: Database, connection: Connection, chunks: Sequence[Chunk]) -> None:
    rows = [
        {"digest": item.digest, "part": item.index, "parts": item.count, "data": item.content}
        for item in chunks
    ]
    db.insert_new(connection, tables.chunk, rows)


def _store_announcement(
    db: Database, connection: Connection, announcement: PhoneAnnouncement
) -> None:
    facts = announcement.facts
    values = {
        "host": announcement.host,
        "facts": facts.model_dump(mode="json"),
        "facts_digest": announcement.facts_digest,
        "last_seen_at": datetime.now(UTC),
    }
    same = phone.c.serial == facts.serial
    if connection.execute(update(phone).where(same).values(**values)).rowcount:
        return
    # A phone remembers the highest fence it has seen. The first fence is the time, so a new store
    # starts above the one before it, because no phone is leased every second of its life.
    new = {"serial": facts.serial, "fence": int(time()), **values}
    db.insert_new(connection, phone, [new])


class _ReportBatch:
    """The reports of one delivery, and the rows and events that they lead to."""

    def __init__(
        self, db: Database, connection: Connection, host: str, reports: Sequence[Report]
    ) -> None:
        self._db = db
        self._connection = connection
        self._host = host
        self._reports = reports
        self._report_rows: list[dict[str, object]] = []
        self._metric_rows: list[dict[str, object]] = []
        self._done: list[dict[str, int]] = []
        self._current: list[Report] = []
        self._accepted: list[Row[Any]] = []
        self.events: list[Event] = []
        self.statuses: Counter[ReportStatus] = Counter()

    def store(self) -> None:
        """Judge every new report, and store its consequences."""
        connection = self._connection
        named = {"runs": list({(item.run.trial, item.run.repeat) for item in self._reports})}
        # Locked in the same order as leases: phones, then runs.
        health = phone_health.lock_health(connection, {item.phone for item in self._reports})
        rows = connection.execute(_RUNS, named).all()
        run_of = {(row.trial, row.repeat): row for row in rows}
        known = {tuple(row) for row in connection.execute(_STORED_REPORTS, named)}
        policy_of = convergence.sweep_policies(connection, {row.sweep for row in rows})
        for report in self._reports:
            key = report.run
            if (key.trial, key.repeat, key.attempt) in known:  # guard: doubled-report
                continue
            self._add(report, run_of.get((key.trial, key.repeat)), policy_of)
        self._write(health, policy_of)

    def _add(self, report: Report, row: Row[Any] | None, policy_of: Mapping[str, Policy]) -> None:
        """Judge one report against the row of its run."""
        decision = None
        if row is not None and _is_current(row, report, self._host):
            decision = decide_retry(report, row.tries, policy_of[row.sweep].retry)
        status = _status(report, decision)
        self.statuses[status] += 1
        self._report_rows.append(report_row(report, status))
        self.events.append(_event(report, row, status, decision))
        if row is None or decision is None:
            return
        self._current.append(report)
        if status == ReportStatus.ACCEPTED:
            self._metric_rows += metric_rows(report)
            self._accepted.append(row)
        if decision.action is RetryAction.ACCEPT:
            self._done.append({"run_id": row.id})
        else:
            _set_next_state(self._connection, row, decision)
        crash = crash_in(report)
        if crash is not None:
            poisoned = crashes.record_crash(
                self._db, self._connection, report.run, row.case_digest, crash
            )
            self.events += [poisoned] if poisoned is not None else []

    def _write(self, health: Mapping[str, HealthState], policy_of: Mapping[str, Policy]) -> None:
        """Write all rows, with one statement per table."""
        connection = self._connection
        if self._done:
            connection.execute(_DONE, self._done)
        changed = phone_health.update_from_reports(connection, health, self._current)
        self.events += [
            phone_health.health_event(serial, self._host, state)
            for serial, state in changed.items()
        ]
        self._db.insert_new(connection, tables.report, self._report_rows)
        self._db.insert_new(connection, tables.metric, self._metric_rows)
        if self._accepted:
            succeeded = {(row.case_digest, row.phone) for row in self._accepted}
            crashes.clear_for_phone(connection, succeeded)
            self.events += convergence.skip_converged(connection, self._accepted, policy_of)


def _is_current(row: Row[Any], report: Report, host: str) -> bool:
    """Return whether the report is about the newest attempt: same cell, phone and host.

    An expired lease still counts while there is no newer attempt: nothing else was started.
    """
    unfinished = row.state in (RunState.LEASED, RunState.QUEUED, RunState.BLOCKED)
    expected = (
        row.attempt,  # guard: older-attempt
        row.phone,
        row.host,  # guard: host-reports-for-itself
        row.case_digest,
        row.condition_digest,
    )
    reported = (report.run.attempt, report.phone, report.host, report.case_digest)
    return bool(
        unfinished and report.host == host and expected == (*reported, report.condition_digest)
    )


def _status(report: Report, decision: RetryDecision | None) -> ReportStatus:
    if decision is None:
        return ReportStatus.STALE
    if report.fault is not None:
        return ReportStatus.FAULT
    return ReportStatus.ACCEPTED if decision.action is RetryAction.ACCEPT else ReportStatus.VOID


def _set_next_state(connection: Connection, row: Row[Any], decision: RetryDecision) -> None:
    """Set the next state of a run that is not done."""
    changes: dict[str, object] = {"note": decision.reason, "lease_until": 0.0}
    if decision.blame is not None:
        changes["tries"] = {**row.tries, decision.blame: row.tries.get(decision.blame, 0) + 1}
    if row.cancel_requested:
        changes |= {"state": RunState.CANCELLED, "note": "cancelled", "cancel_requested": False}
    elif row.stop_rule:
        changes |= {"state": RunState.SKIPPED, "note": row.stop_reason}
    elif decision.action is RetryAction.GIVE_UP:
        changes["state"] = RunState.FAILED
    else:
        changes["state"] = RunState.QUEUED
        changes["not_before"] = time() + decision.pause_s
    if decision.action is RetryAction.RETRY_LATER and changes["state"] is RunState.QUEUED:
        last = select(func.max(run.c.rank)).where(run.c.phone == row.phone).scalar_subquery()
        changes["rank"] = last + 1
    connection.execute(update(run).where(run.c.id == row.id).values(**changes))


def report_row(report: Report, status: ReportStatus) -> dict[str, object]:
    """Return the row of a report with this status."""
    return {
        "trial": report.run.trial,
        "repeat": report.run.repeat,
        "attempt": report.run.attempt,
        "status": status,
        "validity": report.verdict.validity if report.verdict else Validity.VOID,
        "phone": report.phone,
        "received_at": datetime.now(UTC),
        "telemetry": report.telemetry,
        "control": report.control,
        "started_at_s": report.started_at.timestamp(),
        "ended_at_s": report.ended_at.timestamp(),
        "cooldown_s": report.stage_seconds.get(Stage.COOL, 0.0),
        "payload": report.model_dump_json(),
    }


def metric_rows(report: Report) -> list[dict[str, object]]:
    """Return the rows of the metrics of a report."""
    return [
        {
            "trial": report.run.trial,
            "repeat": report.run.repeat,
            "name": metric.name,
            "value": metric.value,
            "unit": metric.unit,
            "source": metric.provenance.source,
            "model": metric.provenance.model,
            "error_rel": metric.provenance.error_rel,
            "grade": metric.grade,
        }
        for metric in report.metrics
    ]


def _event(
    report: Report, row: Row[Any] | None, status: ReportStatus, decision: RetryDecision | None
) -> Event:
    label = trial_label(row.case, row.condition) if row else report.run.trial
    block = row.block if row else report.run.repeat
    text = f"{label}, block {block + 1}"
    headline = Condition.model_validate(row.condition).headline if row else "step_ms"
    step = next((metric for metric in report.metrics if metric.name == headline), None)
    if status == ReportStatus.ACCEPTED and step is not None:
        text = f"{format_ms(step.value)} ms/step ({step.provenance}): {text}"
    elif decision is not None and decision.reason:
        text += f": {decision.reason}{_RETRY_TEXTS.get(decision.action, '')}"
    elif status == ReportStatus.STALE:
        text += f": attempt {report.run.attempt} was reported too late and does not count"
    return Event(
        occurred_at=report.ended_at,
        kind=EventKind(status),
        text=text,
        sweep=row.sweep if row else "",
        phone=report.phone,
        host=report.host,
    )
