"""Parcels become rows, exactly once: the only translator from messages to tables.

A batch is one transaction. A parcel that was stored before changes nothing and is confirmed again,
so agents may resend as often as they like.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, bindparam, func, select, tuple_, update

from orchestrator.nouns import RunState
from orchestrator.plan.health import Standing as HealthStanding
from orchestrator.plan.poison import casualty_of
from orchestrator.plan.retry import NO_WISHES, Decision, Next, decide
from orchestrator.store import casualties, health, stopping, tables
from orchestrator.store.database import Database
from orchestrator.store.tables import ACCEPTED, FAULT, STALE, VOID, phone, run, trial
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.measure import Standing
from workloads.messages import AnyParcel, Checkup, Chunk, Event, Report, Sighting
from workloads.units import format_ms

_OF_TRIAL = (
    *(trial.c.case, trial.c.case_digest, trial.c.condition, trial.c.condition_digest),
    *(trial.c.stopped, trial.c.stopped_why),
)
# Statements of the busy path are built once; building one costs as much as running it.
_NAMED: BindParameter[Any] = bindparam("runs", expanding=True)
_RUNS = (
    select(run, *_OF_TRIAL)
    .join(trial, trial.c.id == run.c.trial)
    .where(tuple_(run.c.trial, run.c.repeat).in_(_NAMED))
    .order_by(run.c.id)
    .with_for_update(of=run)  # nobody may lease or expire them until they are settled
)
_TOLD = select(tables.report.c.trial, tables.report.c.repeat, tables.report.c.attempt).where(
    tuple_(tables.report.c.trial, tables.report.c.repeat).in_(_NAMED)
)
_DONE = (
    update(run)
    .where(run.c.id == bindparam("run_id"))
    .values(state=RunState.DONE, note="", lease_until=0.0)
)


@dataclass
class Stored:
    """What a batch led to: ids to confirm, and lines for whoever watches."""

    confirmed: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def store_parcels(db: Database, host: str, parcels: Sequence[AnyParcel]) -> Stored:
    """Store what a host sent."""
    stored = Stored(confirmed=[parcel.parcel for parcel in parcels])
    with db.write() as connection:
        _store_chunks(db, connection, [item for item in parcels if isinstance(item, Chunk)])
        for parcel in parcels:
            if isinstance(parcel, Sighting):
                _store_sighting(db, connection, parcel)
        reports = {str(item.run): item for item in parcels if isinstance(item, Report)}
        stored.events += _store_reports(db, connection, host, list(reports.values()))
        for parcel in parcels:
            if isinstance(parcel, Checkup):
                standing = health.store_checkup(db, connection, parcel)
                if standing is not None:
                    stored.events.append(health_event(parcel.phone, host, standing))
    return stored


def _store_chunks(db: Database, connection: Connection, chunks: Sequence[Chunk]) -> None:
    rows = [
        {"digest": item.digest, "part": item.index, "parts": item.count, "data": item.content}
        for item in chunks
    ]
    db.insert_new(connection, tables.chunk, rows)


def _store_sighting(db: Database, connection: Connection, sighting: Sighting) -> None:
    facts = sighting.facts
    known = {
        "host": sighting.host,
        "facts": facts.model_dump(mode="json"),
        "facts_digest": sighting.facts_digest,
        "seen_at": datetime.now(UTC),
    }
    same = phone.c.serial == facts.serial
    if connection.execute(update(phone).where(same).values(**known)).rowcount:
        return
    # A phone remembers the highest fence it has seen. Beginning with the time, a store that is made
    # anew is ahead of the one before it, because no phone is leased every second for good.
    new = {"serial": facts.serial, "fence": int(time()), **known}
    db.insert_new(connection, phone, [new])


def _store_reports(
    db: Database, connection: Connection, host: str, reports: Sequence[Report]
) -> list[Event]:
    if not reports:
        return []
    named = {"runs": list({(report.run.trial, report.run.repeat) for report in reports})}
    # Locked in the order in which leases lock: phones, then runs.
    standings = health.locked_standings(connection, {report.phone for report in reports})
    rows = connection.execute(_RUNS, named).all()
    run_of = {(row.trial, row.repeat): row for row in rows}
    seen = connection.execute(_TOLD, named).all()
    known = {tuple(row) for row in seen}
    policy_of = stopping.policies(connection, {row.sweep for row in rows})
    new_reports, new_metrics, events = [], [], []
    heard: list[Report] = []
    done: list[dict[str, int]] = []
    accepted: list[Row[Any]] = []
    for report in reports:
        key = report.run
        row = run_of.get((key.trial, key.repeat))
        if (key.trial, key.repeat, key.attempt) in known:
            continue
        current = row is not None and _is_current(row, report, host)
        limits = policy_of[row.sweep].retry if row is not None else NO_WISHES
        decision = decide(report, row.tries, limits) if row is not None and current else None
        status = _status(report, decision)
        new_reports.append(_report_row(report, status))
        events.append(_event(report, row, status, decision))
        if row is None or decision is None:
            continue
        if status == ACCEPTED:
            new_metrics += _metric_rows(report)
            accepted.append(row)
        heard.append(report)
        if decision.next is Next.DONE:
            done.append({"run_id": row.id})
        else:
            _settle(connection, row, decision)
        events += _note_death(db, connection, row, report)
    if done:
        connection.execute(_DONE, done)
    changed = health.note_reports(connection, standings, heard)
    events += [health_event(serial, host, found) for serial, found in changed.items()]
    db.insert_new(connection, tables.report, new_reports)
    db.insert_new(connection, tables.metric, new_metrics)
    if accepted:
        casualties.absolve(connection, {(row.case_digest, row.phone) for row in accepted})
        events += stopping.spare_known(connection, accepted, policy_of)
    return events


def _note_death(db: Database, connection: Connection, row: Row[Any], report: Report) -> list[Event]:
    dead = casualty_of(report)
    if dead is None:
        return []
    event = casualties.note_death(db, connection, report.run, row.case_digest, dead)
    return [event] if event is not None else []


def _is_current(row: Row[Any], report: Report, host: str) -> bool:
    """Whether the report answers the newest attempt: same question, phone and host.

    A lease that ran out without a newer attempt still counts: nothing else has been started.
    """
    open_ = row.state in (RunState.LEASED, RunState.QUEUED, RunState.HELD)
    asked = (row.attempt, row.phone, row.host, row.case_digest, row.condition_digest)
    told = (report.run.attempt, report.phone, report.host, report.case_digest)
    return bool(open_ and report.host == host and asked == (*told, report.condition_digest))


def _status(report: Report, decision: Decision | None) -> str:
    if decision is None:
        return STALE
    if report.fault is not None:
        return FAULT
    return ACCEPTED if decision.next is Next.DONE else VOID


def _settle(connection: Connection, row: Row[Any], decision: Decision) -> None:
    """What becomes of a run that is not done."""
    changes: dict[str, object] = {"note": decision.why, "lease_until": 0.0}
    if decision.blame is not None:
        changes["tries"] = {**row.tries, decision.blame: row.tries.get(decision.blame, 0) + 1}
    if row.unwanted:
        changes |= {"state": RunState.CANCELLED, "note": "cancelled", "unwanted": False}
    elif row.stopped:
        changes |= {"state": RunState.SPARED, "note": row.stopped_why}
    elif decision.next is Next.NEVER:
        changes["state"] = RunState.FAILED
    else:
        changes["state"] = RunState.QUEUED
        changes["not_before"] = time() + decision.pause_s
    if decision.next is Next.LATER and changes["state"] is RunState.QUEUED:
        last = select(func.max(run.c.rank)).where(run.c.phone == row.phone).scalar_subquery()
        changes["rank"] = last + 1
    connection.execute(update(run).where(run.c.id == row.id).values(**changes))


def _report_row(report: Report, status: str) -> dict[str, object]:
    return {
        "trial": report.run.trial,
        "repeat": report.run.repeat,
        "attempt": report.run.attempt,
        "status": status,
        "standing": report.verdict.standing if report.verdict else Standing.VOID,
        "host": report.host,
        "phone": report.phone,
        "received_at": datetime.now(UTC),
        "telemetry": report.telemetry,
        "control": report.control,
        "began_s": report.started_at.timestamp(),
        "ended_s": report.ended_at.timestamp(),
        "cooled_s": report.stage_s.get("cool", 0.0),
        "body": report.model_dump_json(),
    }


def _metric_rows(report: Report) -> list[dict[str, object]]:
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


def _event(report: Report, row: Row[Any] | None, status: str, decision: Decision | None) -> Event:
    label = label_of(row.case, row.condition) if row else report.run.trial
    text = f"{label}, block {report.run.repeat + 1}"
    wanted = Condition.model_validate(row.condition).headline if row else "step_ms"
    step = next((metric for metric in report.metrics if metric.name == wanted), None)
    if status == ACCEPTED and step is not None:
        text = f"{format_ms(step.value)} ms/step ({step.provenance}): {text}"
    elif decision is not None and decision.why:
        following = "" if decision.next is Next.NEVER else f"; {decision.next}"
        text += f": {decision.why}{following}"
    elif status == STALE:
        text += f": attempt {report.run.attempt} came too late and does not count"
    return Event(
        at=report.ended_at,
        kind=status,
        text=text,
        sweep=row.sweep if row else "",
        phone=report.phone,
        host=report.host,
    )


def health_event(serial: str, host: str, standing: HealthStanding) -> Event:
    """A line that says how a phone stands now."""
    why = f": {standing.why}" if standing.why else ""
    text = f"{serial} is {standing.health}{why}"
    return Event(at=datetime.now(UTC), kind="health", text=text, phone=serial, host=host)


def label_of(case: Any, condition: Any) -> str:
    """A trial's short name, from its stored parts."""
    return f"{Case.model_validate(case).label} {Condition.model_validate(condition).label}"
