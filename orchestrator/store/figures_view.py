"""The view `figures` of the database: one row per accepted run and metric, for SQL and notebooks.

Every parameter and option of the built-in workloads has a column. The view is created again with
every migration, so a new parameter appears in it.
"""

from typing import Any

from sqlalchemy import Connection, func, select

from orchestrator.decisions.states import ReportStatus
from orchestrator.store.metric_codes import NO_ERROR
from orchestrator.store.tables import (
    metric_name,
    metric_origin,
    metric_value,
    phone,
    report,
    run,
    sweep,
    trial,
)
from workloads.catalogue import CATALOGUE
from workloads.run_options import RUN_OPTIONS

NAME = "figures"
PARAMETERS = sorted({p.name for workload in CATALOGUE.values() for p in workload.parameters})


def drop_view(connection: Connection) -> None:
    """Remove the view, so that its tables can be changed."""
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {NAME}")


def create_view(connection: Connection) -> None:
    text = str(
        _figures().compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    )
    connection.exec_driver_sql(f"CREATE VIEW {NAME} AS {text}".replace("%%", "%"))


def _figures() -> Any:
    case, condition, facts = trial.c.case, trial.c.condition, phone.c.facts
    columns = {
        "sweep": sweep.c.name,
        "sweep_id": sweep.c.id,
        "trial": run.c.trial,
        "repeat": run.c.repeat,
        "block": run.c.block,
        "position": run.c.position,
        "phone": run.c.phone,
        "model": facts["model"].as_string(),
        "soc": facts["soc"].as_string(),
        "host": report.c.host,
        "workload": func.coalesce(
            case[("manifest", "name")].as_string(), case["workload"].as_string()
        ),
        "backend": case["backend"].as_string(),
        "protocol": condition["protocol"].as_string(),
        "cores": condition["cores"].as_string(),
        "freq": condition["freq"].as_string(),
        **{name: case[("parameters", name)].as_integer() for name in PARAMETERS},
        **{name: case[("options", name)].as_string() for name in RUN_OPTIONS},
        "control": report.c.control,
        "verdict": report.c.validity,
        "started_at_s": report.c.started_at_s,
        "ended_at_s": report.c.ended_at_s,
        "metric": metric_name.c.name,
        "value": metric_value.c.value,
        "source": metric_origin.c.source,
        "model_kind": metric_origin.c.model,
        "error_rel": func.nullif(metric_origin.c.error_rel, NO_ERROR),
        "grade": metric_origin.c.grade,
    }
    accepted = (
        (report.c.trial == run.c.trial)
        & (report.c.repeat == run.c.repeat)
        & (report.c.status == ReportStatus.ACCEPTED.value)
    )
    return (
        select(*(column.label(name) for name, column in columns.items()))
        .select_from(metric_value)
        .join(run, run.c.id == metric_value.c.run)
        .join(trial, trial.c.id == run.c.trial)
        .join(sweep, sweep.c.id == trial.c.sweep)
        .join(phone, phone.c.serial == run.c.phone)
        .join(report, accepted)
        .join(metric_name, metric_name.c.id == metric_value.c.name)
        .join(metric_origin, metric_origin.c.id == metric_value.c.origin)
    )
