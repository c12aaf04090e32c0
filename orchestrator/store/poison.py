"""Decides whether a case is poison: it crashes attempts on two phones and is blocked for review.

Where it is blocked depends on where it has succeeded. Nowhere yet: on all phones, but one run per
further product still tries it. Somewhere: only on the phones, builds or products that crash.

A single crash is not sufficient, because phones, cables and agents fail for other reasons too. A
phone counts when two of its attempts at the case crashed with the phone in mid-run, or three were
lost in other ways, and the case has not succeeded on it since. When attempts at other cases crash
at the same host at the same time, another cause is likely, so such a crash weighs a third or half.
A fault that the runner itself reports (no memory, a crash) is a finding and not counted here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, select, update

from orchestrator.planning.states import RunState
from orchestrator.store.database import as_utc, insert_and_count
from orchestrator.store.finished_sweeps import reopen
from orchestrator.store.next_runs import IS_LEASED
from orchestrator.store.tables import crash, phone, run, trial
from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.messages import Event, EventKind, Report, RunId
from workloads.protocol.stage import Stage
from workloads.text import safe_text
from workloads.units import count_text

HARD_WEIGHT, SOFT_WEIGHT, SHARED_WEIGHT, WEIGHT_MIN = 3, 2, 1, 6
TOGETHER_S = 15.0  # the lanes of a failing host notice it one after the other
PHONES_MIN = 2  # guard: poison
NOTE_MAX, SWEEPS_SHOWN = 600, 3
_HARD_KINDS = frozenset({FaultKind.HUNG, FaultKind.RESTARTED})
_MID_RUN_STAGES = frozenset({Stage.CANARY_BEFORE, Stage.RUN, Stage.CANARY_AFTER, Stage.UNKNOWN})


@dataclass(frozen=True)
class Crash:
    """A crashed attempt: its phone, how much it counts, and the fault as text."""

    phone: str
    weight: int
    text: str
    host: str = ""
    occurred_at_s: float = 0.0


def crash_in(report: Report) -> Crash | None:
    """Return the crash that a report describes; None when nothing crashed in mid-run."""
    fault = report.fault
    if fault is None or fault.stage not in _MID_RUN_STAGES:
        return None
    if fault.blame is not Blame.PHONE and fault.kind is not FaultKind.INTERRUPTED:
        return None
    weight = HARD_WEIGHT if fault.kind in _HARD_KINDS else SOFT_WEIGHT
    return Crash(report.phone, weight, str(fault))


def poison_evidence(crashes: Iterable[Crash], others: Collection[Crash] = ()) -> dict[str, str]:
    """Return why a case is poison, as text by phone; empty while fewer than two phones agree.

    `others` are crashed attempts at other cases.
    """
    by_phone: dict[str, list[Crash]] = {}
    for item in crashes:
        by_phone.setdefault(item.phone, []).append(item)
    evidence = {
        phone: f"{len(group)} attempts crashed, the last: {group[-1].text}"
        for phone, group in sorted(by_phone.items())
        if sum(_weight(item, others) for item in group) >= WEIGHT_MIN
    }
    return evidence if len(evidence) >= PHONES_MIN else {}


def _weight(crashed: Crash, others: Collection[Crash]) -> int:
    together = any(
        other.host == crashed.host and abs(other.occurred_at_s - crashed.occurred_at_s) < TOGETHER_S
        for other in others
    )
    return SHARED_WEIGHT if together else crashed.weight


def record_crash(
    connection: Connection, attempt: RunId, case_digest: str, crashed: Crash
) -> Event | None:
    """Store a crash; if the case is poisoned with it, block the case's runs and return an event."""
    row = {
        "trial": attempt.trial,
        "repeat": attempt.repeat,
        "attempt": attempt.attempt,
        "case_digest": case_digest,
        "phone": crashed.phone,
        "weight": crashed.weight,
        "text": safe_text(crashed.text, 400),
        "occurred_at": datetime.now(UTC),
    }
    if not insert_and_count(connection, crash, [row]):
        return None
    evidence = poison_evidence(*_crashes(connection, case_digest))
    return _block_case(connection, case_digest, evidence) if evidence else None


def _crashes(connection: Connection, case_digest: str) -> list[list[Crash]]:
    """Return a case's crashes that are not cleared, and other cases' crashes since the first."""
    query = (
        select(crash, phone.c.host)
        .join(phone, phone.c.serial == crash.c.phone)
        .order_by(crash.c.occurred_at)
    )
    of_case = (crash.c.case_digest == case_digest, ~crash.c.cleared)
    own = connection.execute(query.where(*of_case)).all()
    if not own:
        return [[], []]
    since = own[0].occurred_at - timedelta(seconds=TOGETHER_S)
    others = (crash.c.case_digest != case_digest, crash.c.occurred_at >= since)
    return [
        [
            Crash(row.phone, row.weight, row.text, row.host, as_utc(row.occurred_at).timestamp())
            for row in rows
        ]
        for rows in (own, connection.execute(query.where(*others)).all())
    ]


class Build(NamedTuple):
    """The product and the Android version of a phone."""

    product: str
    android: str


@dataclass(frozen=True)
class PoisonScope:
    """The phones on which a case is blocked, and those of them that still try it once."""

    blocked: frozenset[str]
    tries: frozenset[str] = frozenset()
    text: str = ""


def poison_scope(
    builds: Mapping[str, Build], crashed: Collection[str], succeeded: Collection[str]
) -> PoisonScope:
    """Return where a case is blocked; `builds` has every phone that has runs of it."""
    if not succeeded:
        first: dict[str, str] = {}
        for serial, build in sorted(builds.items()):
            first.setdefault(build.product, serial)
        known = {builds[serial].product for serial in crashed if serial in builds}
        tries = frozenset(serial for product, serial in first.items() if product not in known)
        text = "it has succeeded nowhere, so it is blocked on all phones"
        if tries:
            text += f", but one run tries it on each further product ({', '.join(sorted(tries))})"
        return PoisonScope(frozenset(builds), tries, text)
    blocked, named = set(crashed), [f"phone {serial}" for serial in sorted(crashed)]
    for groups in (
        {serial: f"Android {build.android} of {build.product}" for serial, build in builds.items()},
        {serial: build.product for serial, build in builds.items()},
    ):
        good = {groups[serial] for serial in succeeded if serial in groups}
        bad = Counter(groups[serial] for serial in crashed if serial in groups)
        for group in sorted(
            name for name, n in bad.items() if n >= PHONES_MIN and name not in good
        ):
            blocked |= {serial for serial, name in groups.items() if name == group}
            named = [*(item for item in named if item not in groups.values()), group]
    text = f"it succeeds on {count_text(len(succeeded), 'phone')}, so it is blocked only on "
    return PoisonScope(frozenset(blocked), text=text + ", ".join(named))


def _scope(connection: Connection, case_digest: str, crashed: Collection[str]) -> PoisonScope:
    of_case = trial.c.case_digest == case_digest
    runs = select(run.c.phone).join(trial, trial.c.id == run.c.trial).where(of_case).distinct()
    succeeded = connection.execute(runs.where(run.c.state == RunState.DONE)).scalars()
    facts = (phone.c.facts["model"].as_string(), phone.c.facts["android"].as_string())
    rows = connection.execute(select(phone.c.serial, *facts).where(phone.c.serial.in_(runs)))
    builds = {row[0]: Build(str(row[1]), str(row[2])) for row in rows}
    return poison_scope(builds, crashed, set(succeeded))


def _block_case(connection: Connection, case_digest: str, evidence: dict[str, str]) -> Event:
    scope = _scope(connection, case_digest, evidence.keys())
    phones = "; ".join(f"{serial}: {text}" for serial, text in evidence.items())
    note = f"blocked: attempts crashed on {len(evidence)} phones ({phones}); {scope.text}"
    trials = select(trial.c.id).where(trial.c.case_digest == case_digest)
    waiting = (run.c.state == RunState.QUEUED, run.c.trial.in_(trials))
    tried = [_first_waiting(connection, serial, waiting) for serial in scope.tries]
    blocked = connection.execute(
        update(run)
        .where(*waiting, run.c.phone.in_(scope.blocked), run.c.id.not_in(tried))
        .values(state=RunState.BLOCKED, note=note[:NOTE_MAX])
        .returning(run.c.sweep)
    ).all()
    sweeps = " or ".join(
        sorted({f"farm sweep retry {row.sweep}" for row in blocked})[:SWEEPS_SHOWN]
    )
    release = f"; {count_text(len(blocked), 'run')} wait; release them with: {sweeps}"
    text = f"case {case_digest[:12]} {note}{release if blocked else ''}"
    return Event(occurred_at=datetime.now(UTC), kind=EventKind.POISONED, text=text)


def _first_waiting(connection: Connection, serial: str, waiting: tuple[Any, ...]) -> int:
    """Return the run that tries a case on a phone; 0 if one is under way already."""
    of_phone = run.c.phone == serial
    leased = select(run.c.id).where(of_phone, run.c.state == IS_LEASED, waiting[1])
    if connection.execute(leased).first() is not None:
        return 0
    first = select(run.c.id).where(*waiting, of_phone).order_by(run.c.rank, run.c.id).limit(1)
    return int(connection.execute(first).scalar() or 0)


def _narrow(connection: Connection, case_digest: str) -> None:
    """Queue blocked runs of a case again where it need not be blocked, now that it succeeds."""
    own, others = _crashes(connection, case_digest)
    crashed = poison_evidence(own, others).keys()
    failed = run.alias("failed")
    has_failed = select(failed.c.id).where(  # its other runs were blocked for that
        failed.c.trial == run.c.trial, failed.c.state == RunState.FAILED
    )
    trials = select(trial.c.id).where(trial.c.case_digest == case_digest)
    scope = _scope(connection, case_digest, crashed) if crashed else PoisonScope(frozenset())
    released = connection.execute(
        update(run)
        .where(run.c.state == RunState.BLOCKED, run.c.trial.in_(trials))
        .where(run.c.phone.not_in(scope.blocked), ~has_failed.exists())
        .values(state=RunState.QUEUED, note="")
        .returning(run.c.sweep)
    ).all()
    for sweep_id in {row.sweep for row in released}:
        reopen(connection, sweep_id)


def clear_for_phone(connection: Connection, succeeded: Collection[tuple[str, str]]) -> None:
    """Clear the crashes of cases that have now succeeded on the same phone (case, phone).

    Of a case that has crashed elsewhere, block only what its success leaves in doubt.
    """
    digests = {case_digest for case_digest, _ in succeeded}
    pending = connection.execute(
        select(crash.c.case_digest, crash.c.phone)
        .where(crash.c.case_digest.in_(digests), ~crash.c.cleared)
        .distinct()
    ).all()
    for case_digest, serial in pending:
        if (case_digest, serial) in succeeded:
            same = (crash.c.case_digest == case_digest, crash.c.phone == serial)
            connection.execute(update(crash).where(*same).values(cleared=True))
    for case_digest in {row.case_digest for row in pending}:
        _narrow(connection, case_digest)


def clear_for_sweep(connection: Connection, sweep_id: str) -> None:
    """Clear the crashes of every case with blocked or failed runs in a sweep."""
    given_up = (
        select(trial.c.case_digest)
        .join(run, run.c.trial == trial.c.id)
        .where(run.c.sweep == sweep_id, run.c.state.in_((RunState.BLOCKED, RunState.FAILED)))
    )
    connection.execute(update(crash).where(crash.c.case_digest.in_(given_up)).values(cleared=True))
