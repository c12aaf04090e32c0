"""The runs of sweeps that do not count: how many are suspect or void, and why most of them are."""

import json
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import and_, case, func, or_, select

from orchestrator.analysis.verdict_counts import LeftOutRuns, count_reasons
from orchestrator.planning.states import ReportStatus
from orchestrator.store.database import Database
from orchestrator.store.joint_judgements import JUDGED, stored_judgement
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.store.tables import report, trial
from workloads.protocol.verdict import Validity, Verdict

REASONS_READ = 100  # of the newest runs of a sweep that do not count

_VOID = report.c.status == ReportStatus.VOID
_LEFT_OUT = or_(
    _VOID, and_(report.c.status == ReportStatus.ACCEPTED, report.c.judged != Validity.VALID)
)


def with_left_out(db: Database, sweeps: Sequence[SweepSummary]) -> list[SweepSummary]:
    """Return the sweeps with their suspect and void runs counted."""
    return [replace(item, left_out=_left_out(db, item.id)) for item in sweeps]


def _left_out(db: Database, sweep: str) -> LeftOutRuns:
    """Count them sweep by sweep: for several at once, PostgreSQL reads all reports."""
    of_sweep = select(trial.c.id).where(trial.c.sweep == sweep)
    left_out = (report.c.trial.in_(of_sweep), _LEFT_OUT)
    void = func.sum(case((_VOID, 1), else_=0))
    with db.read() as connection:
        total, n_void = connection.execute(select(func.count(), void).where(*left_out)).one()
    if not total:
        return LeftOutRuns()
    newest = (
        select(report.c.payload, *JUDGED)
        .where(*left_out)
        .order_by(report.c.id.desc())
        .limit(REASONS_READ)
    )
    rows = [(row, json.loads(row.payload).get("verdict")) for row in db.rows(newest)]
    reasons = count_reasons(
        stored_judgement(row).applied_to(Verdict.model_validate(sent)) for row, sent in rows if sent
    )
    first = reasons[0] if reasons else None
    return LeftOutRuns(
        *(total - n_void, n_void, first.code if first else None, first.text if first else "")
    )
