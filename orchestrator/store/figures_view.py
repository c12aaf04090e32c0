"""Two views of the database, for SQL and notebooks: one row per run and metric.

`figures` has the valid runs. `all_figures` has the suspect ones too. Void runs have no metrics in
the database. Every parameter and option of the built-in workloads has a column. The views are
created again at every start of a lab, so a new parameter appears in them.
"""

from typing import Any

from sqlalchemy import Connection, func, select

from orchestrator.planning.states import ReportStatus
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
from workloads.protocol.verdict import Validity
from workloads.run_options import RUN_OPTIONS

ALL, VALID = "all_figures", "figures"
PARAMETERS = sorted({p.name for workload in CATALOGUE.values() for p in workload.parameters})


def drop_views(connection: Connection) -> None:
    """Remove the views, so that their tables can be changed."""
    for name in (VALID, ALL):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def create_views(connection: Connection) -> None:
    """Create the views; a plain query on `figures` gives only runs that count."""
    text = str(
        _figures().compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    )
    connection.exec_driver_sql(f"CREATE VIEW {ALL} AS {text}".replace("%%", "%"))
    valid = f"SELECT * FROM {ALL} WHERE verdict = '{Validity.VALID.value}'"
    connection.exec_driver_sql(f"CREATE VIEW {VALID} AS {valid}")


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
        "verdict": report.c.judged,
        "judged_runs": report.c.judged_runs,
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
