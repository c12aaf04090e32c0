"""Fits peak memory: the process, copies of the parameters and of the operations' outputs."""

from collections.abc import Callable, Sequence

import numpy as np

from agent.virtual.engines import EngineModel
from agent.virtual.physics.memory_pressure import peak_memory_kb
from agent.virtual.twin.fit_result import FitResult, leave_out, mean_error
from agent.virtual.twin.least_squares import Array, Prior, Values, solve_least_squares
from agent.virtual.twin.offline_model import bind_workload
from benchmarks.phone_fits.measurements import MemoryRow, PhoneMeasurements

PRIORS = {
    "memory_base_mb": Prior(60.0, 0.4),
    "parameter_copies": Prior(1.8, 0.5),
    "output_copies": Prior(3.0, 0.6),
    "im2col_mb_per_gflop": Prior(5.0, 0.8),
}
_SPREAD = 0.08


def peak_mb(engine: EngineModel, row: MemoryRow) -> float:
    step = bind_workload(row.workload, row.batch)
    return peak_memory_kb(engine, step.ops, step.parameter_bytes, step.activation_bytes) / 1024


def fit_memory(engine: EngineModel, measured: PhoneMeasurements) -> FitResult:
    """Fit all rows at once; then once without each model."""
    rows = measured.memory

    def fit_rows(fitted_rows: Sequence[MemoryRow]) -> Values:
        def residuals(values: Values) -> Array:
            candidate = engine.model_copy(update=values)
            ratios = [peak_mb(candidate, row) / row.peak_mb for row in fitted_rows]
            return np.asarray(np.log(np.array(ratios)) / _SPREAD)

        return solve_least_squares(residuals, PRIORS)

    def predictor_without(fitted_rows: Sequence[MemoryRow]) -> Callable[[MemoryRow], float]:
        fitted = engine.model_copy(update=fit_rows(fitted_rows))
        return lambda row: peak_mb(fitted, row)

    values = fit_rows(rows)
    best = engine.model_copy(update=values)
    return FitResult(
        "peak memory",
        "memory",
        len(rows),
        mean_error([peak_mb(best, row) for row in rows], [row.peak_mb for row in rows]),
        {
            "model": leave_out(
                rows, lambda row: row.workload, predictor_without, lambda row: row.peak_mb
            )
        },
        engine=values,
    )
