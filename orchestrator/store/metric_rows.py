"""One metric of many runs, read from columns: a hundred thousand runs in about a second.

Nothing is judged here: void runs and runs without the metric are included and marked.
"""

import functools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, func, select

from orchestrator.analysis.failure_rates import TrialOutcomes
from orchestrator.analysis.measurements import MeasuredTrial, MetricValue
from orchestrator.planning.states import ReportStatus
from orchestrator.store.database import Database
from orchestrator.store.joint_judgements import JUDGED, stored_judgement
from orchestrator.store.tables import metric_name, phone, report, run, trial
from orchestrator.store.tables import metric_origin as origins
from orchestrator.store.tables import metric_value as values
from workloads.catalogue import Case
from workloads.protocol.condition import HEADLINES, Condition
from workloads.protocol.faults import Blame, InvalidRequest
from workloads.protocol.metrics import Provenance, metric_kind
from workloads.protocol.verdict import FAMILIES, Validity, Verdict
from workloads.text import safe_text

BATCH = 500  # reports of one query


def metric_values(db: Database, metric: str = "", sweep: str | None = None) -> list[MetricValue]:
    """Return one metric of every accepted or void run, of a sweep or of all.

    Without a name it is the headline metric of each run's condition.
    """
    if metric and metric_kind(metric) is None:
        raise InvalidRequest(
            f"there is no metric '{safe_text(metric)}'; 'farm help metrics' shows all"
        )
    with db.read() as connection:
        trials = _trials(connection, sweep)
        rows = connection.execute(_query(metric, sweep)).all()
        return list(_values(connection, trials, rows, metric))


def attempt_outcomes(db: Database, sweep: str) -> list[TrialOutcomes]:
    """Count the attempts at every trial of a sweep, and those that its program or phone failed.

    Faults of the farm, of the request and of conditions say nothing about what was measured.
    """
    counts: Counter[tuple[str, bool]] = Counter()
    ended = (ReportStatus.ACCEPTED, ReportStatus.VOID)
    with db.read() as connection:
        trials = _trials(connection, sweep)
        own = report.c.trial.in_(select(trial.c.id).where(trial.c.sweep == sweep))
        good = select(report.c.trial, func.count()).where(own, report.c.status.in_(ended))
        for name, number in connection.execute(good.group_by(report.c.trial)):
            counts[name, False] += number
        bad = select(report.c.trial, report.c.payload)
        for name, payload in connection.execute(
            bad.where(own, report.c.status == ReportStatus.FAULT)
        ):
            if json.loads(payload)["fault"]["blame"] in (Blame.RUNNER, Blame.PHONE):
                counts[name, True] += 1
    return [
        TrialOutcomes(known, counts[name, True], counts[name, True] + counts[name, False])
        for name, known in trials.items()
    ]


def _trials(connection: Connection, sweep: str | None) -> dict[str, MeasuredTrial]:
    query = select(trial, phone.c.facts).join(phone, phone.c.serial == trial.c.phone)
    if sweep is not None:
        query = query.where(trial.c.sweep == sweep)
    cases: dict[str, Case] = {}
    conditions: dict[str, Condition] = {}
    trials = {}
    for row in connection.execute(query):
        if row.case_digest not in cases:
            cases[row.case_digest] = Case.model_validate(row.case)
        if row.condition_digest not in conditions:
            conditions[row.condition_digest] = Condition.model_validate(row.condition)
        trials[row.id] = MeasuredTrial(
            sweep=row.sweep,
            trial=row.id,
            phone=row.phone,
            model=str(row.facts.get("model", "")),
            soc=str(row.facts.get("soc", "")),
            case=cases[row.case_digest],
            condition=conditions[row.condition_digest],
        )
    return trials


def _query(metric: str, sweep: str | None) -> Select[Any]:
    names = [metric] if metric else sorted(set(HEADLINES.values()))
    codes = select(metric_name.c.id).where(metric_name.c.name.in_(names))
    query = (
        select(
            *(report.c.id, report.c.trial, run.c.block, report.c.started_at_s, report.c.status),
            *(report.c.judged, report.c.control, metric_name.c.name, values.c.value),
            *(origins.c.grade, origins.c.source, origins.c.model, origins.c.error_rel),
        )
        .join(run, and_(run.c.trial == report.c.trial, run.c.repeat == report.c.repeat))
        .outerjoin(values, and_(values.c.run == run.c.id, values.c.name.in_(codes)))
        .outerjoin(metric_name, metric_name.c.id == values.c.name)
        .outerjoin(origins, origins.c.id == values.c.origin)
        .where(report.c.status.in_((ReportStatus.ACCEPTED, ReportStatus.VOID)))
    )
    return query if sweep is None else query.where(run.c.sweep == sweep)


def doubted_families(connection: Connection, reports: list[int]) -> dict[int, frozenset[str]]:
    """The families of metrics that do not count, of some reports; few runs are not valid."""
    found: dict[int, frozenset[str]] = {}
    for first in range(0, len(reports), BATCH):
        some = select(report.c.id, report.c.payload, *JUDGED).where(
            report.c.id.in_(reports[first : first + BATCH])
        )
        for row in connection.execute(some):
            sent = json.loads(row.payload).get("verdict")
            judgement = stored_judgement(row)
            verdict = sent and judgement.applied_to(Verdict.model_validate(sent))
            found[row.id] = verdict.doubted if verdict else FAMILIES
    return found


def _values(
    connection: Connection, trials: dict[str, MeasuredTrial], rows: Any, metric: str
) -> Iterator[MetricValue]:
    # A run may have the headline metrics of several protocols; the one of its protocol counts.
    row_of: dict[int, Any] = {}
    for row in rows:
        report_id, trial_id, name = row[0], row[1], row[7]
        if report_id not in row_of or name == (metric or trials[trial_id].condition.headline):
            row_of[report_id] = row
    odd = [row[0] for row in row_of.values() if row[5] != Validity.VALID and row[7] is not None]
    doubted = doubted_families(connection, odd)
    for row in row_of.values():
        report_id, trial_id, block, started_at_s, status, validity, *more = row
        control, name, value, *rest = more
        measured = trials[trial_id]
        wanted = metric or measured.condition.headline
        void = status == ReportStatus.VOID
        has_value = name == wanted and value is not None and not void
        grade, *provenance = rest
        kind = metric_kind(wanted)
        if has_value and kind is not None and kind.family not in doubted.get(report_id, FAMILIES):
            validity = Validity.VALID
        yield MetricValue(
            trial=measured,
            metric=wanted,
            block=block,
            started_at=datetime.fromtimestamp(started_at_s, UTC),
            validity=Validity.VOID if void else Validity(validity),
            control=control or "unknown",
            grade=grade if has_value else "",
            value=value if has_value else None,
            provenance=_provenance(*provenance) if has_value else None,
        )


@functools.lru_cache(maxsize=1024)
def _provenance(source: str, model: str, error_rel: float) -> Provenance:
    known = {"model": model or None, "error_rel": None if error_rel < 0 else error_rel}
    return Provenance.model_validate({"source": source, **known})
