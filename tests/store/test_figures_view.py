"""The view `figures`: the same values as the export, in SQL, on both databases."""

from sqlalchemy import text

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.store.database import Database
from orchestrator.store.figures_view import PARAMETERS
from tests.analysis.builders import FITTED, a_trial_of, measured
from tests.stored_runs import store_runs
from workloads.protocol.verdict import Validity


def test_a_row_per_run_and_metric_with_a_column_per_parameter(store: Database) -> None:
    runs: list[MeasuredRun] = [
        *a_trial_of(10.0, 3, serial="a", energy_per_step_mj=3.0),
        measured("b", 20.0, parameters={"batch_size": 64}, provenance=FITTED),
        measured("b", 21.0, parameters={"batch_size": 8}, validity=Validity.SUSPECT),
    ]
    store_runs(store, runs, "small")
    store.migrate()  # the view survives a migration
    columns = "phone, model, workload, backend, cores, batch_size, verdict, source, error_rel"
    query = f"SELECT {columns}, value FROM figures WHERE sweep = 'small' AND metric = 'step_ms'"
    with store.read() as connection:
        rows = connection.execute(text(f"{query} ORDER BY phone, batch_size, value")).all()
    cells = [(row.phone, row.batch_size, row.verdict, row.source) for row in rows]
    assert cells == [
        *[("a", 32, "valid", "phone")] * 3,
        ("b", 8, "suspect", "phone"),
        ("b", 64, "valid", "simulated"),
    ]
    assert {(row.model, row.workload, row.backend, row.cores) for row in rows} == {
        ("Model a", "mlp-4", "cpu", "big4"),
        ("Model b", "mlp-4", "cpu", "big4"),
    }
    assert [row.error_rel for row in rows][-1] == FITTED.error_rel
    assert rows[0].error_rel is None
    assert "batch_size" in PARAMETERS
