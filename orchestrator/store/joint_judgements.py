"""Stores what the runs of the same work show together, beside each report.

The runs of a trial are judged when it is complete. A run that arrives later, also in another sweep
with the same case and condition on this phone, lets all of them be judged again. Reports and their
verdicts stay as they were sent.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, exists, select, tuple_, update

from orchestrator.analysis.expected_ranges import outside_of_peers
from orchestrator.analysis.joint_rules import (
    RULES,
    JointJudgement,
    RunNumbers,
    judge_together,
)
from orchestrator.planning.states import ReportStatus, RunState
from orchestrator.store.database import Database
from orchestrator.store.tables import phone, report, run, trial
from workloads.protocol.verdict import Reason, Validity

RUNS_READ = 200  # the newest ones of a cell on a phone
PEER_RUNS_READ = 30  # the newest ones of the same cell on other phones
TOGETHER_MAX = 40  # a phone changes over the months
_TRIALS_AT_ONCE = 500

_ACCEPTED = report.c.status == ReportStatus.ACCEPTED
_LEFT = run.c.state.in_((RunState.QUEUED, RunState.LEASED))
JUDGED = (report.c.judged, report.c.judged_reasons, report.c.judged_runs, report.c.judged_rules)


class _Cell(NamedTuple):
    """A case under a condition on a phone."""

    phone: str
    case: str
    condition: str


class _StoredRun(NamedTuple):
    """A report with the numbers that are judged, and what they may be compared with."""

    id: int
    before: tuple[Any, ...]
    kind: tuple[str, ...]
    numbers: RunNumbers


def stored_judgement(row: Any) -> JointJudgement:
    """Return the joint judgement of a row of `report`."""
    reasons = tuple(Reason.model_validate(each) for each in row.judged_reasons)
    return JointJudgement(Validity(row.judged), reasons, row.judged_runs, row.judged_rules)


def judge_trials(connection: Connection, trials: Collection[str]) -> None:
    """Judge the runs of those of these trials that have no run left."""
    left = exists().where(run.c.trial == trial.c.id, _LEFT)
    columns = (trial.c.phone, trial.c.case_digest, trial.c.condition_digest)
    complete = select(*columns).where(trial.c.id.in_(trials), ~left).distinct().order_by(*columns)
    for cell in connection.execute(complete).all():
        _judge_cell(connection, _Cell(*cell))


def judge_outdated(db: Database) -> int:
    """Judge again what other rules judged; return how many trials these are."""
    outdated = select(report.c.trial).where(_ACCEPTED, report.c.judged_rules != RULES).distinct()
    trials = sorted(db.values(outdated))
    for start in range(0, len(trials), _TRIALS_AT_ONCE):
        with db.write() as connection:
            judge_trials(connection, trials[start : start + _TRIALS_AT_ONCE])
    return len(trials)


def _judge_cell(connection: Connection, cell: _Cell) -> None:
    by_kind: dict[tuple[str, ...], list[_StoredRun]] = {}
    for stored in _read_runs(connection, cell):
        by_kind.setdefault(stored.kind, []).append(stored)
    for kind, members in by_kind.items():
        peers = _read_peers(connection, cell, kind)
        for part in _parts(members):
            numbers = [stored.numbers for stored in part]
            remarks = [outside_of_peers(each, peers) for each in numbers] if peers else []
            for index, found in enumerate(remarks):
                numbers[index] = replace(numbers[index], remarks=found)
            judgements = judge_together(numbers)
            for stored, judgement in zip(part, judgements, strict=True):
                _write(connection, stored, judgement)


def _parts(members: Sequence[_StoredRun]) -> Iterator[Sequence[_StoredRun]]:
    """Split many runs into equal parts of runs that were made one after another."""
    count = -(-len(members) // TOGETHER_MAX)
    for part in range(count):
        yield members[part * len(members) // count : (part + 1) * len(members) // count]


def _read_runs(connection: Connection, cell: _Cell) -> list[_StoredRun]:
    """Return the newest runs of a cell on a phone, oldest first."""
    same = tuple_(trial.c.phone, trial.c.case_digest, trial.c.condition_digest) == tuple(cell)
    query = (
        select(report.c.id, report.c.payload, trial.c.condition, *JUDGED)
        .join(trial, trial.c.id == report.c.trial)
        .where(same, _ACCEPTED)
        .order_by(report.c.started_at_s.desc(), report.c.id.desc())
        .limit(RUNS_READ)
    )
    return [_stored_run(row) for row in reversed(connection.execute(query).all())]


def _read_peers(
    connection: Connection, cell: _Cell, kind: tuple[str, ...]
) -> list[list[RunNumbers]]:
    """Return the good runs of the same cell on each other phone of the same product."""
    model = phone.c.facts["model"].as_string()
    own = select(model).where(phone.c.serial == cell.phone).scalar_subquery()
    same = tuple_(trial.c.case_digest, trial.c.condition_digest) == (cell.case, cell.condition)
    query = (
        select(report.c.id, report.c.payload, trial.c.condition, *JUDGED, trial.c.phone)
        .join(trial, trial.c.id == report.c.trial)
        .join(phone, phone.c.serial == trial.c.phone)
        .where(same, _ACCEPTED, model == own, trial.c.phone != cell.phone)
        .where(report.c.judged == Validity.VALID)
        .order_by(report.c.started_at_s.desc(), report.c.id.desc())
        .limit(PEER_RUNS_READ)
    )
    peers: dict[str, list[RunNumbers]] = {}
    for row in connection.execute(query):
        stored = _stored_run(row)
        if stored.kind == kind:
            peers.setdefault(row.phone, []).append(stored.numbers)
    return list(peers.values())


def _stored_run(row: Any) -> _StoredRun:
    content = json.loads(row.payload)
    numbers = RunNumbers.of_report(content, row.condition["protocol"])
    kind = (numbers.source, content.get("control") or "", content.get("runner") or "")
    return _StoredRun(row.id, tuple(row[3:]), kind, numbers)


def _write(connection: Connection, stored: _StoredRun, judgement: JointJudgement) -> None:
    reasons = [reason.model_dump(mode="json") for reason in judgement.reasons]
    after = (str(judgement.validity), reasons, judgement.runs, judgement.rules)
    if after != stored.before:
        values: Mapping[Any, Any] = dict(zip(JUDGED, after, strict=True))
        connection.execute(update(report).where(report.c.id == stored.id).values(values))
