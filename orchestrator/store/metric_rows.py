"""One metric of many runs, straight from the columns: a hundred thousand in about a second.

Nothing is judged here: what is void or has no such figure comes along, and says so.
"""

import functools
import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, Select, and_, cast, func, select

from orchestrator.nouns import Figure, MeasuredTrial
from orchestrator.store.database import Database
from orchestrator.store.queries import aware
from orchestrator.store.tables import ACCEPTED, VOID, phone, report, run, trial
from orchestrator.store.tables import metric as metrics
from workloads.catalogue import Case
from workloads.condition import HEADLINES, Condition
from workloads.fault import Refused
from workloads.measure import Provenance, Standing, kind_of


def figures(db: Database, metric: str = "", sweep: str | None = None) -> list[Figure]:
    """One metric of every accepted or void run, of a sweep or of all.

    Without a name it is what each run's condition asks for.
    """
    kind = kind_of(metric) if metric else None
    if metric and kind is None:
        raise Refused(f"there is no metric '{metric}'; 'farm metrics' shows all")
    graded = kind is not None and kind.family == "energy"
    with db.read() as connection:
        trials = _trials(connection, sweep)
        found = connection.execute(_question(connection, metric, sweep, graded)).all()
        return list(_figures(trials, found, metric, graded))


def _trials(connection: Connection, sweep: str | None) -> dict[str, MeasuredTrial]:
    question = select(trial, phone.c.facts).join(phone, phone.c.serial == trial.c.phone)
    if sweep is not None:
        question = question.where(trial.c.sweep == sweep)
    cases: dict[str, Case] = {}
    conditions: dict[str, Condition] = {}
    found = {}
    for row in connection.execute(question):
        if row.case_digest not in cases:
            cases[row.case_digest] = Case.model_validate(row.case)
        if row.condition_digest not in conditions:
            conditions[row.condition_digest] = Condition.model_validate(row.condition)
        found[row.id] = MeasuredTrial(
            sweep=row.sweep,
            trial=row.id,
            phone=row.phone,
            model=str(row.facts.get("model", "")),
            soc=str(row.facts.get("soc", "")),
            case=cases[row.case_digest],
            condition=conditions[row.condition_digest],
        )
    return found


def _question(connection: Connection, metric: str, sweep: str | None, graded: bool) -> Select[Any]:
    names = [metric] if metric else sorted(set(HEADLINES.values()))
    question = (
        select(
            report.c.id,
            report.c.trial,
            run.c.block,
            report.c.received_at,
            report.c.status,
            report.c.standing,
            metrics.c.name,
            metrics.c.value,
            metrics.c.source,
            metrics.c.model,
            metrics.c.error_rel,
            _control(connection).label("control"),
            *([report.c.body] if graded else []),
        )
        .join(run, and_(run.c.trial == report.c.trial, run.c.repeat == report.c.repeat))
        .outerjoin(
            metrics,
            and_(
                metrics.c.trial == report.c.trial,
                metrics.c.repeat == report.c.repeat,
                metrics.c.name.in_(names),
            ),
        )
        .where(report.c.status.in_((ACCEPTED, VOID)))
    )
    return question if sweep is None else question.where(run.c.sweep == sweep)


def _control(connection: Connection) -> ColumnElement[Any]:
    """The control level, which only the report itself names."""
    control: ColumnElement[Any] = func.json_extract(report.c.body, "$.control")
    if connection.dialect.name == "postgresql":
        control = cast(report.c.body, JSON)["control"].as_string()
    return control


def _figures(
    trials: dict[str, MeasuredTrial], rows: Any, metric: str, graded: bool
) -> Iterator[Figure]:
    # A run may have the headlines of several protocols: only that of its own is asked for.
    best: dict[int, Any] = {}
    for row in rows:
        number, of, name = row[0], row[1], row[6]
        if number not in best or name == (metric or trials[of].condition.headline):
            best[number] = row
    for row in best.values():
        _, trial_id, block, at, status, standing, name, value, *making = row
        of = trials[trial_id]
        wanted = metric or of.condition.headline
        void = status == VOID
        known = name == wanted and value is not None and not void
        source, model, error_rel, control = making[:4]
        yield Figure(
            of=of,
            metric=wanted,
            block=block,
            at=aware(at),
            standing=Standing.VOID if void else Standing(standing),
            control=control or "unknown",
            grade=_grade(making[4], wanted) if graded and known else "",
            value=value if known else None,
            provenance=_provenance(source, model, error_rel) if known else None,
        )


@functools.lru_cache(maxsize=1024)
def _provenance(source: str, model: str | None, error_rel: float | None) -> Provenance:
    return Provenance.model_validate({"source": source, "model": model, "error_rel": error_rel})


def _grade(body: str, name: str) -> str:
    found = [each for each in json.loads(body)["metrics"] if each["name"] == name]
    return str(found[0].get("grade", "")) if found else ""
