"""Peak memory: a process, some copies of the parameters, some of what backward needs."""

from collections.abc import Callable, Sequence

import numpy as np

from agent.virtual.engines import Engine
from agent.virtual.physics.memory import needs_kb
from agent.virtual.twin.bench import job_named
from agent.virtual.twin.measured import Measured, MemoryRow
from agent.virtual.twin.report import Fit, leave_out, mean_error
from agent.virtual.twin.solve import Array, Prior, Values, solve

PRIORS = {
    "memory_base_mb": Prior(60.0, 0.4),
    "parameter_copies": Prior(1.8, 0.5),
    "written_copies": Prior(3.0, 0.6),
    "columns_mb_per_gflop": Prior(5.0, 0.8),
}
_SPREAD = 0.08


def peak_mb(engine: Engine, row: MemoryRow) -> float:
    job = job_named(row.workload, row.batch)
    return needs_kb(engine, job.ops, job.parameter_bytes, job.activation_bytes) / 1024


def fit_memory(engine: Engine, measured: Measured) -> Fit:
    """Fit all rows at once; then without each model."""
    rows = measured.memory

    def solved(kept: Sequence[MemoryRow]) -> Values:
        def residuals(values: Values) -> Array:
            tried = engine.model_copy(update=values)
            ratios = [peak_mb(tried, row) / row.peak_mb for row in kept]
            return np.asarray(np.log(np.array(ratios)) / _SPREAD)

        return solve(residuals, PRIORS)

    def without(kept: Sequence[MemoryRow]) -> Callable[[MemoryRow], float]:
        fitted = engine.model_copy(update=solved(kept))
        return lambda row: peak_mb(fitted, row)

    values = solved(rows)
    best = engine.model_copy(update=values)
    return Fit(
        "peak memory",
        "memory",
        len(rows),
        mean_error([peak_mb(best, row) for row in rows], [row.peak_mb for row in rows]),
        {"model": leave_out(rows, lambda row: row.workload, without, lambda row: row.peak_mb)},
        engine=values,
    )
