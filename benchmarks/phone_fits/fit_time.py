"""Fits the step times of the Meizu 16T: one engine and one memory system for all models and core
sets.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from agent.virtual.engines import EngineModel
from agent.virtual.physics.step_timing import OpTable, StepTiming, time_step
from agent.virtual.profiles import PhoneProfile
from agent.virtual.twin.fit_result import FitResult, leave_out_each, mean_error
from agent.virtual.twin.least_squares import Array, Prior, Values, solve_least_squares
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from benchmarks.phone_fits.core_set_errors import leave_out_sets
from benchmarks.phone_fits.measurements import CoreSetRow, PhoneMeasurements, StepRow

_CORE_SET_WORKLOAD = "emdl-cpuconf"
_ENGINE = "engine."  # prefix of the paths of engine figures
# Priors: half of a good matrix product's rate, some passes for packing, a tenth of a millisecond
# per operation, and caches as in data sheets.
PRIORS = {
    "engine.gemm_share": Prior(0.55, 0.4),
    "engine.traffic": Prior(7.0, 0.5),
    "engine.update_traffic": Prior(3.0, 0.6),
    "engine.launch_kcycles": Prior(310.0, 0.8),
    "engine.sync_kcycles": Prior(250.0, 0.8),
    "engine.panel_bytes_per_kflop": Prior(300.0, 1.0),
    "engine.serial_share": Prior(0.1, 1.0),
    "engine.kind_share.pointwise": Prior(1.0, 0.15),
    "engine.kind_share.matmul": Prior(1.0, 0.15),
    "cluster.little.flops_per_cycle": Prior(4.0, 0.4),
    "memory.cache_kb": Prior(4096.0, 0.4),
    "memory.cache_gbs": Prior(35.0, 0.4),
    "memory.bandwidth_gbs": Prior(12.0, 0.5),
    "memory.core_gbs": Prior(9.0, 0.5),
}
_TIME_SPREAD, _BUSY_SPREAD, _SET_SPREAD = 0.05, 0.05, 0.07


def with_values(
    profile: PhoneProfile, engine: EngineModel, values: Values
) -> tuple[PhoneProfile, EngineModel]:
    """Return phone and engine with some figures replaced."""
    shares = dict(engine.kind_share)
    engine_values: dict[str, object] = {}
    for path, value in values.items():
        if path.startswith("engine.kind_share."):
            shares[path.rpartition(".")[2]] = value
        elif path.startswith(_ENGINE):
            engine_values[path.removeprefix(_ENGINE)] = value
    changed_engine = engine.model_copy(update={**engine_values, "kind_share": shares})
    return profile.with_values(_profile_values(values)), changed_engine


def step_timings(
    profile: PhoneProfile, engine: EngineModel, rows: Sequence[StepRow]
) -> list[StepTiming]:
    """Time each row's step on four big cores under the default governor."""
    if not rows:
        return []
    speed = OfflineModel(
        profile, bind_workload(rows[0].workload, rows[0].batch), engine=engine
    ).speed
    workload_steps = [bind_workload(row.workload, row.batch) for row in rows]
    return [time_step(OpTable(step.ops, engine), speed) for step in workload_steps]


def core_set_timings(
    profile: PhoneProfile, engine: EngineModel, rows: Sequence[CoreSetRow]
) -> list[StepTiming]:
    step = bind_workload(_CORE_SET_WORKLOAD)
    return [OfflineModel(profile, step, row.cores, row.freq, engine).timing for row in rows]


def fit_time(
    profile: PhoneProfile, engine: EngineModel, measured: PhoneMeasurements
) -> list[FitResult]:
    """Fit all rows at once; then once without each model, each batch and each core set."""

    def fit_values(steps: Sequence[StepRow], sets: Sequence[CoreSetRow]) -> Values:
        residuals = partial(_time_residuals, profile, engine, steps, sets)
        return solve_least_squares(residuals, PRIORS)

    def predictor_of_steps(steps: Sequence[StepRow]) -> Callable[[StepRow], float]:
        fitted = with_values(profile, engine, fit_values(steps, measured.core_set))
        return lambda row: step_timings(*fitted, [row])[0].seconds * 1e3

    def predictor_of_sets(sets: Sequence[CoreSetRow]) -> Callable[[CoreSetRow], float]:
        fitted = with_values(profile, engine, fit_values(measured.step, sets))
        return lambda row: core_set_timings(*fitted, [row])[0].seconds

    steps, sets = measured.step, measured.core_set
    values = fit_values(steps, sets)
    best = with_values(profile, engine, values)
    step_ms = [timing.seconds * 1e3 for timing in step_timings(*best, steps)]
    set_s = [timing.seconds for timing in core_set_timings(*best, sets)]
    steps_left_out = leave_out_each(
        steps,
        {"model": lambda row: row.workload, "batch": lambda row: row.batch},
        predictor_of_steps,
        lambda row: row.step_ms,
    )
    sets_left_out, weights = leave_out_sets(sets, predictor_of_sets, lambda row: row.seconds)
    engine_values = {
        path.removeprefix(_ENGINE): value
        for path, value in values.items()
        if path.startswith(_ENGINE)
    }
    step_error = mean_error(step_ms, [row.step_ms for row in steps])
    set_error = mean_error(set_s, [row.seconds for row in sets])
    return [
        FitResult(
            "step time",
            "time",
            len(steps),
            step_error,
            steps_left_out,
            values=_profile_values(values),
            engine=engine_values,
        ),
        FitResult("time by core set", "time", len(sets), set_error, sets_left_out, weights),
    ]


def _profile_values(values: Values) -> Values:
    return {path: value for path, value in values.items() if not path.startswith(_ENGINE)}


def _time_residuals(
    profile: PhoneProfile,
    engine: EngineModel,
    steps: Sequence[StepRow],
    sets: Sequence[CoreSetRow],
    values: Values,
) -> Array:
    """Return the differences between model and rows, in standard deviations."""
    candidate = with_values(profile, engine, values)
    residuals: list[float] = []
    for timing, row in zip(step_timings(*candidate, steps), steps, strict=True):
        residuals.append(float(np.log(timing.seconds * 1e3 / row.step_ms)) / _TIME_SPREAD)
        if row.others_busy is not None:
            residuals.append((1.0 - timing.serial_share - row.others_busy) / _BUSY_SPREAD)
    for timing, core_set in zip(core_set_timings(*candidate, sets), sets, strict=True):
        log_ratio = float(np.log(timing.seconds / core_set.seconds))
        residuals.append(core_set.weight * log_ratio / _SET_SPREAD)
    return np.array(residuals)
