"""Stores what agents send: the only module that turns messages into rows.

Deliveries are stored in one transaction. A parcel that is stored already changes nothing and is
confirmed again, so agents may resend at any time. A host can report only its own runs and phones;
reports about those of other hosts are refused.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, select, update

from orchestrator.planning.run_durations import phone_speed
from orchestrator.planning.states import ReportStatus, RunState
from orchestrator.store import phone_health, poison, stop_rule, tables
from orchestrator.store.audit_log import AuditEntry, record_automatic
from orchestrator.store.chunk_quota import ChunkQuota
from orchestrator.store.database import Database, count_rows, insert_new, is_of_runs, run_keys
from orchestrator.store.joint_judgements import judge_trials
from orchestrator.store.metric_checks import metric_objection
from orchestrator.store.metric_codes import insert_metrics
from orchestrator.store.next_runs import IS_LEASED
from orchestrator.store.phone_health import HealthState
from orchestrator.store.phone_queries import MOVED
from orchestrator.store.poison import crash_in
from orchestrator.store.retry import RetryAction, RetryDecision, decide_retry, set_next_state
from orchestrator.store.tables import phone, run, sweep, trial
from orchestrator.store.trial_queries import CellTexts, cell_of
from orchestrator.sweepfile.policy import Policy
from workloads.protocol.faults import Blame, Fault, FaultKind
from workloads.protocol.limits import HOST_PHONES_MAX
from workloads.protocol.messages import (
    AnyParcel,
    Chunk,
    CommandResult,
    Event,
    EventKind,
    PhoneAnnouncement,
    Report,
    RunId,
)
from workloads.protocol.phone_facts import PhoneFacts
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Validity
from workloads.units import count_text, step_time_text

_TRIAL_COLUMNS = (
    *(trial.c.case_digest, trial.c.condition_digest, trial.c.stop_rule, trial.c.stop_reason),
)
# Statements of the busy path are built once; building one costs as much as running it.
_RUNS = (
    select(run, *_TRIAL_COLUMNS, sweep.c.policy)
    .join(trial, trial.c.id == run.c.trial)
    .join(sweep, sweep.c.id == run.c.sweep)
    .where(is_of_runs(run))
    .order_by(run.c.id)
    .with_for_update(of=run)  # no lease and no expiry before this transaction ends
)
_STORED_REPORTS = select(
    tables.report.c.trial, tables.report.c.repeat, tables.report.c.attempt, tables.report.c.host
).where(is_of_runs(tables.report))
_DONE = (
    update(run)
    .where(run.c.id.in_(bindparam("run_ids", expanding=True)))
    .values(state=RunState.DONE, note="", lease_until=0.0)
)


# Return why a phone, given by its serial, has not left its host, also given; nothing if it has.
Objection = Callable[[str, str], str]


class Delivery(NamedTuple):
    """The parcels that came out of the queue of a host."""

    host: str
    parcels: Sequence[AnyParcel]


@dataclass
class IngestResult:
    """What followed: ids to confirm, events to publish, reports by status, refusals by host."""

    confirmed: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    reports: Counter[ReportStatus] = field(default_factory=Counter)
    refused: list[tuple[str, str]] = field(default_factory=list)
    deferred: set[str] = field(default_factory=set)  # parcels that the host has to send again
    named: list[tuple[str, str]] = field(default_factory=list)  # hosts with digests of telemetry


def store_parcels(db: Database, host: str, parcels: Sequence[AnyParcel]) -> IngestResult:
    """Store what one host sent."""
    return store_deliveries(db, [Delivery(host, parcels)])


def store_deliveries(
    db: Database,
    deliveries: Sequence[Delivery],
    objection: Objection = lambda serial, owner: "",
    quota: ChunkQuota | None = None,
) -> IngestResult:
    """Store what hosts sent, in one transaction; `quota` limits chunks that no report names."""
    sent = [(item.host, parcel) for item in deliveries for parcel in item.parcels]
    result = IngestResult(confirmed=[parcel.parcel_id for _, parcel in sent])
    with db.write() as connection:
        chunks = [(host, parcel) for host, parcel in sent if isinstance(parcel, Chunk)]
        if chunks:
            _store_chunks(connection, chunks, result, quota)
        for host, parcel in sent:
            if isinstance(parcel, PhoneAnnouncement):
                _store_announcement(connection, host, parcel, result, objection)
        reports = {(host, item.run): item for host, item in sent if isinstance(item, Report)}
        if reports:
            _ReportBatch(db, connection, reports, result).store()
        results = [(host, item) for host, item in sent if isinstance(item, CommandResult)]
        for host, command in results:
            _store_command_result(connection, host, command, result)
        for host in sorted({host for host, _ in results}):
            phone_health.forget_old_results(connection, host)
    if quota is not None:
        for host, digest in result.named:
            quota.forget(host, [digest])
    return result


def _store_chunks(
    connection: Connection,
    chunks: Sequence[tuple[str, Chunk]],
    result: IngestResult,
    quota: ChunkQuota | None,
) -> None:
    admitted = []
    for host, item in chunks:
        if quota is None or quota.admits(connection, host, item):
            admitted.append(item)
        else:
            result.refused.append((host, "no report names its telemetry"))
            result.deferred.add(item.parcel_id)
    rows = [
        {
            "digest": item.digest,
            "part": item.index,
            "parts": item.count,
            "data": item.content,
            "received_at_s": time(),
        }
        for item in admitted
    ]
    insert_new(connection, tables.chunk, rows)


def _store_announcement(
    connection: Connection,
    host: str,
    announcement: PhoneAnnouncement,
    result: IngestResult,
    objection: Objection,
) -> None:
    facts = announcement.facts
    same = phone.c.serial == facts.serial
    columns = (phone.c.host, phone.c.facts_digest, phone.c.facts)
    known = connection.execute(select(*columns).where(same)).first()
    if known is not None and (known.host, known.facts_digest) == (host, announcement.facts_digest):
        seen = {"last_seen_at": datetime.now(UTC)}  # hosts repeat what is not confirmed
        connection.execute(update(phone).where(same).values(**seen))
        return
    owner = known.host if known is not None else host
    refusal = "" if known is None else _move_refusal(connection, host, facts, known, objection)
    if refusal:
        # It may have just moved: the new host repeats this until the phone has left the old one.
        result.refused.append((host, refusal))
        result.deferred.add(announcement.parcel_id)
        return
    values = {
        "host": host,
        "facts": facts.model_dump(mode="json"),
        "facts_digest": announcement.facts_digest,
        "last_seen_at": datetime.now(UTC),
    }
    if connection.execute(update(phone).where(same).values(**values)).rowcount:
        if owner != host:
            where = ({"host": owner}, {"host": host})
            undo = f"farm phone move {facts.serial} {owner}"
            entry = AuditEntry(datetime.now(UTC), host, MOVED, facts.serial, *where, undo)
            record_automatic(connection, entry)
        return
    if count_rows(connection, phone, phone.c.host == host) >= HOST_PHONES_MAX:
        result.refused.append((host, f"it has announced more than {HOST_PHONES_MAX} phones"))
        return
    # A phone remembers the highest fence it has seen. The first fence is the time, so a new store
    # starts above the one before it, because no phone is leased every second of its life.
    new = {"serial": facts.serial, "fence": int(time()), **values}
    insert_new(connection, phone, [new])


def _move_refusal(
    connection: Connection, host: str, facts: PhoneFacts, known: Any, objection: Objection
) -> str:
    """Return why a phone that the store knows does not belong to this host, or nothing."""
    serial, owner = facts.serial, known.host
    elsewhere = (run.c.phone == serial, run.c.state == IS_LEASED, run.c.host != host)
    if connection.execute(select(run.c.id).where(*elsewhere)).first() is not None:
        return f"{serial} is leased to another host"
    if owner == host:
        return ""
    stored, told = PhoneFacts.model_validate(known.facts).provenance, facts.provenance
    before, after = (item.sources if item else frozenset() for item in (stored, told))
    if not after <= before:  # guard: moved-phone-keeps-its-sources
        return (
            f"{serial} of {owner} has another source of its numbers, so it is another phone; "
            f"if it is not, forget it: farm phone retire {serial} --forget"
        )
    return objection(serial, owner)


def _store_command_result(
    connection: Connection, host: str, command: CommandResult, result: IngestResult
) -> None:
    of_others = (phone.c.serial == command.phone, phone.c.host != host)
    if connection.execute(select(phone.c.serial).where(*of_others)).first() is not None:
        result.refused.append((host, f"{command.phone} is not one of its phones"))
        return
    changed = phone_health.store_command_result(connection, command)
    if changed is not None:
        result.events.append(phone_health.health_event(command.phone, host, changed))


class _ReportBatch:
    """The reports of some hosts, and the rows and events that they lead to."""

    def __init__(
        self,
        db: Database,
        connection: Connection,
        reports: Mapping[tuple[str, RunId], Report],
        result: IngestResult,
    ) -> None:
        self._db = db
        self._connection = connection
        self._reports = reports
        self._result = result
        self._report_rows: list[dict[str, object]] = []
        self._measured: list[tuple[int, Report]] = []  # accepted reports with the ids of their runs
        self._done: list[int] = []
        self._current: list[Report] = []
        self._accepted: list[Row[Any]] = []

    def store(self) -> None:
        """Judge every new report, and store its consequences."""
        connection = self._connection
        named = run_keys((key.trial, key.repeat) for _, key in self._reports)
        # Locked in the same order as leases: phones, then runs.
        serials = {item.phone for item in self._reports.values()}
        phones = phone_health.lock_phones(connection, serials)
        rows = connection.execute(_RUNS, named).all()
        run_of = {(row.trial, row.repeat): row for row in rows}
        known = {tuple(row) for row in connection.execute(_STORED_REPORTS, named)}
        stored = {row.sweep: row.policy for row in rows}
        policy_of = {name: Policy.model_validate(policy) for name, policy in stored.items()}
        for (host, key), report in self._reports.items():
            if (key.trial, key.repeat, key.attempt, host) in known:  # guard: doubled-report
                continue
            row = run_of.get((key.trial, key.repeat))
            known_phone = phones.get(report.phone)
            refusal = _refusal(row, report, host, known_phone.host if known_phone else "")
            if row is None or refusal:
                self._result.refused.append((host, refusal))
                continue
            objection = metric_objection(
                report.metrics, known_phone.announced if known_phone else None
            )
            if objection:
                self._result.refused.append((host, objection))
            kept = _without_metrics(report, objection) if objection else report
            self._add(host, kept, row, policy_of)
        self._write({serial: item.health for serial, item in phones.items()}, policy_of)

    def _add(
        self, host: str, report: Report, row: Row[Any], policy_of: Mapping[str, Policy]
    ) -> None:
        """Judge one report against the row of its run."""
        decision = None
        if _is_current(row, report, host):
            policy = policy_of[row.sweep]
            accept_timing = policy.accept == "timing"
            decision = decide_retry(report, row.tries, policy.retry, accept_timing)
        status = _status(report, decision)
        self._result.reports[status] += 1
        self._report_rows.append(report_row(report, status))
        if report.telemetry is not None:
            self._result.named.append((host, report.telemetry))
        cell = cell_of(self._connection, row)
        self._result.events.append(_event(report, row, status, decision, cell))
        if decision is None:
            return
        self._current.append(report)
        if status == ReportStatus.ACCEPTED:
            self._measured.append((row.id, report))
            self._accepted.append(row)
        if decision.action is RetryAction.ACCEPT:
            self._done.append(row.id)
        else:
            set_next_state(self._connection, row, decision)
        crash = crash_in(report)
        if crash is not None:
            poisoned = poison.record_crash(self._connection, report.run, row.case_digest, crash)
            self._result.events += [poisoned] if poisoned is not None else []

    def _write(self, health: Mapping[str, HealthState], policy_of: Mapping[str, Policy]) -> None:
        """Write all rows, with one statement per table."""
        connection, events = self._connection, self._result.events
        if self._done:
            connection.execute(_DONE, {"run_ids": self._done})
        changed = phone_health.update_from_reports(connection, health, self._current)
        host_of = {report.phone: report.host for report in self._current}
        events += [
            phone_health.health_event(serial, host_of[serial], state)
            for serial, state in changed.items()
        ]
        insert_new(connection, tables.report, self._report_rows)
        insert_metrics(self._db, connection, self._measured)
        if self._accepted:
            succeeded = {(row.case_digest, row.phone) for row in self._accepted}
            poison.clear_for_phone(connection, succeeded)
            events += stop_rule.skip_converged(connection, self._accepted, policy_of)
            judge_trials(connection, {row.trial for row in self._accepted})


def _refusal(row: Row[Any] | None, report: Report, host: str, owner: str) -> str:
    """Return why a report is not even kept, or nothing: it must be about a lease of its host.

    Of an attempt before the newest one the store does not know the host any more. Such a report is
    kept as stale if it comes from the host of the newest attempt, or from the owner of the phone.
    """
    if row is None or report.run.attempt > row.attempt or report.phone != row.phone:
        return f"{report.run} was never leased for {report.phone}"
    if report.run.attempt == row.attempt and host != row.host:  # guard: host-reports-for-itself
        return f"{report.run} was leased to another host"
    if host not in (row.host, owner):  # guard: late-report-of-a-stranger
        return f"{report.run} and {report.phone} are not its own"
    return ""


def _without_metrics(report: Report, objection: str) -> Report:
    """Return the report as a fault: the run is tried again, and after some tries it has failed."""
    fault = Fault(
        blame=Blame.PHONE, kind=FaultKind.BAD_MESSAGE, stage=Stage.UNKNOWN, text=objection
    )
    return report.model_copy(update={"metrics": (), "verdict": None, "fault": fault})


def _is_current(row: Row[Any], report: Report, host: str) -> bool:
    """Return whether the report is about the newest attempt: same cell, phone and host.

    A fault measures nothing, and an agent that does not know the workload cannot compute the
    digest of the case. An expired lease still counts while there is no newer attempt: nothing else
    was started.
    """
    unfinished = row.state in (RunState.LEASED, RunState.QUEUED, RunState.BLOCKED)
    expected = (
        row.attempt,  # guard: older-attempt
        row.phone,
        row.host,
        row.case_digest,
        row.condition_digest,
    )
    reported = (report.run.attempt, report.phone, host, report.case_digest)
    compared = len(expected) if report.fault is None else 3
    is_same = expected[:compared] == (*reported, report.condition_digest)[:compared]
    return bool(unfinished and is_same)


def _status(report: Report, decision: RetryDecision | None) -> ReportStatus:
    if decision is None:
        return ReportStatus.STALE
    if report.fault is not None:
        return ReportStatus.FAULT
    return ReportStatus.ACCEPTED if decision.action is RetryAction.ACCEPT else ReportStatus.VOID


def _retry_text(decision: RetryDecision) -> str:
    if decision.action is not RetryAction.RETRY:
        return ""
    runs = decision.place.after_runs
    after = f" after at most {count_text(runs, 'other run')} of this phone" if runs else ""
    return f"; will be retried{after}"


def report_row(report: Report, status: ReportStatus) -> dict[str, object]:
    """Return the row of a report with this status."""
    host_s = (report.ended_at - report.started_at).total_seconds()
    speed = phone_speed(report.stage_seconds.values(), host_s)
    validity = report.verdict.validity if report.verdict else Validity.VOID
    return {
        "trial": report.run.trial,
        "repeat": report.run.repeat,
        "attempt": report.run.attempt,
        "status": status,
        "validity": validity,
        "judged": validity,
        "phone": report.phone,
        "host": report.host,
        "received_at": datetime.now(UTC),
        "telemetry": report.telemetry,
        "control": report.control,
        "started_at_s": report.started_at.timestamp(),
        "ended_at_s": report.ended_at.timestamp(),
        "cooldown_s": report.stage_seconds.get(Stage.COOL, 0.0) / speed,
        "payload": report.model_dump_json(),
    }


def _event(
    report: Report,
    row: Row[Any],
    status: ReportStatus,
    decision: RetryDecision | None,
    cell: CellTexts,
) -> Event:
    label, headline = cell
    is_suspect = report.verdict is not None and report.verdict.validity is Validity.SUSPECT
    text = f"{label}, block {row.block + 1}"
    step = next((metric for metric in report.metrics if metric.name == headline), None)
    if status == ReportStatus.ACCEPTED and step is not None:
        text = f"{step_time_text(headline, step.value)} ({step.provenance}): {text}"
        if is_suspect and report.verdict is not None:
            text = f"{report.verdict.text}: {text}"
    elif decision is not None and decision.reason:
        text += f": {decision.reason}{_retry_text(decision)}"
    elif status == ReportStatus.STALE:
        text += f": attempt {report.run.attempt} was reported too late and does not count"
    return Event(
        occurred_at=report.ended_at,
        kind=EventKind.SUSPECT
        if is_suspect and status == ReportStatus.ACCEPTED
        else EventKind(status),
        text=text,
        sweep=row.sweep,
        phone=report.phone,
        host=report.host,
    )
