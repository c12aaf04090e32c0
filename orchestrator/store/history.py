"""What runs took before, for whoever plans the next ones. Reads only."""

from dataclasses import dataclass

from sqlalchemy import func, select

from orchestrator.plan.estimate import PastRun
from orchestrator.store.database import Database
from orchestrator.store.tables import ACCEPTED, chunk, phone, report, trial

RUNS_MAX = 20_000  # the newest tell the most
BLOBS_MAX = 200


@dataclass(frozen=True)
class Sizes:
    """What a run left behind on average, in bytes; None where nothing is stored yet."""

    report: float | None
    telemetry: float | None


def phones_of(db: Database, sweep: str) -> frozenset[str]:
    """The phones that have trials of a sweep already."""
    with db.read() as connection:
        found = connection.execute(select(trial.c.phone).where(trial.c.sweep == sweep).distinct())
        return frozenset(found.scalars())


def past_runs(db: Database) -> list[PastRun]:
    """How long accepted runs took, the newest first."""
    with db.read() as connection:
        conditions = connection.execute(
            select(trial.c.condition_digest, func.min(trial.c.id)).group_by(
                trial.c.condition_digest
            )
        ).all()
        examples = [each for _, each in conditions]
        asked = connection.execute(
            select(trial.c.condition_digest, trial.c.condition).where(trial.c.id.in_(examples))
        ).all()
        rows = connection.execute(
            select(
                *(report.c.phone, report.c.began_s, report.c.ended_s, report.c.cooled_s),
                *(trial.c.case_digest, trial.c.condition_digest),
            )
            .join(trial, trial.c.id == report.c.trial)
            .where(report.c.status == ACCEPTED, report.c.ended_s.is_not(None))
            .order_by(report.c.id.desc())
            .limit(RUNS_MAX)
        ).all()
        named = connection.execute(select(phone.c.serial, phone.c.facts["model"].as_string())).all()
    models: dict[str, str] = {row.serial: row[1] for row in named}
    protocols = {row.condition_digest: row.condition["protocol"] for row in asked}
    return [
        PastRun(
            phone=row.phone,
            model=models[row.phone],
            cell=(row.case_digest, row.condition_digest),
            protocol=protocols[row.condition_digest],
            took_s=row.ended_s - row.began_s,
            cooled_s=row.cooled_s or 0.0,
        )
        for row in rows
    ]


def sizes(db: Database) -> Sizes:
    """What the newest runs left behind."""
    newest = select(report.c.body, report.c.telemetry).order_by(report.c.id.desc()).limit(BLOBS_MAX)
    with db.read() as connection:
        found = connection.execute(newest).all()
        blobs = {row.telemetry for row in found if row.telemetry is not None}
        stored = connection.execute(
            select(func.sum(func.length(chunk.c.data))).where(chunk.c.digest.in_(blobs))
        ).scalar_one()
    reports = sum(len(row.body) for row in found) / len(found) if found else None
    return Sizes(reports, stored / len(blobs) if blobs and stored else None)
