"""The views `figures` and `all_figures`: the values of the export, in SQL, on both databases."""

from typing import Any

import pytest
from sqlalchemy import text

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.store.database import Database
from orchestrator.store.figures_view import PARAMETERS, drop_views
from tests.analysis.builders import FITTED, a_trial_of, measured
from tests.stored_runs import store_runs
from workloads.protocol.verdict import Validity

COLUMNS = "phone, model, workload, backend, cores, batch_size, verdict, source, error_rel, value"
ORDER = "phone, batch_size, value"


def rows_of(store: Database, view: str) -> list[Any]:
    query = f"SELECT {COLUMNS} FROM {view} WHERE sweep = 'small' AND metric = 'step_ms'"
    with store.read() as connection:
        return list(connection.execute(text(f"{query} ORDER BY {ORDER}")).all())


def cells_of(store: Database, view: str) -> list[tuple[object, ...]]:
    return [(row.phone, row.batch_size, row.verdict, row.source) for row in rows_of(store, view)]


@pytest.fixture
def small(store: Database) -> Database:
    """A store with a sweep whose runs have every verdict."""
    runs: list[MeasuredRun] = [
        *a_trial_of(10.0, 3, serial="a", energy_per_step_mj=3.0),
        measured("b", 20.0, parameters={"batch_size": 64}, provenance=FITTED),
        measured("b", 21.0, parameters={"batch_size": 8}, validity=Validity.SUSPECT),
        measured("b", 22.0, parameters={"batch_size": 16}, validity=Validity.VOID),
    ]
    store_runs(store, runs, "small")
    return store


def test_a_row_per_run_and_metric_with_a_column_per_parameter(small: Database) -> None:
    small.migrate()  # the view survives a migration
    rows = rows_of(small, "figures")
    assert {(row.model, row.workload, row.backend, row.cores) for row in rows} == {
        ("Model a", "mlp-4", "cpu", "big4"),
        ("Model b", "mlp-4", "cpu", "big4"),
    }
    assert [row.error_rel for row in rows] == [None, None, None, FITTED.error_rel]
    assert "batch_size" in PARAMETERS


def test_a_plain_query_gives_only_runs_that_count(small: Database) -> None:
    valid = [*[("a", 32, "valid", "phone")] * 3, ("b", 64, "valid", "simulated")]
    assert cells_of(small, "figures") == valid
    assert cells_of(small, "all_figures") == [
        *valid[:3],
        ("b", 8, "suspect", "phone"),
        valid[-1],
    ]


def test_a_store_of_an_older_version_gets_the_views(small: Database) -> None:
    views = {name: cells_of(small, name) for name in ("figures", "all_figures")}
    with small.write() as connection:
        drop_views(connection)
        connection.exec_driver_sql("CREATE VIEW figures AS SELECT value FROM metric_value")
    small.migrate()
    assert {name: cells_of(small, name) for name in views} == views
