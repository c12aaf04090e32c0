"""Fits the power of the Meizu 16T: the whole phone under schedutil, and above idle by core set."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from agent.virtual.engines import EngineModel
from agent.virtual.profiles import PhoneProfile
from agent.virtual.twin.fit_result import FitResult, leave_out_each, mean_error
from agent.virtual.twin.least_squares import Array, Prior, Values, solve_least_squares
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from benchmarks.phone_fits.core_set_errors import leave_out_sets
from benchmarks.phone_fits.measurements import CoreSetRow, PhoneMeasurements, PowerRow

# Priors: a core in vector code draws what it draws in CoreMark, which the SoC's curve gives.
PRIORS = {
    "heat.vector_factor": Prior(1.0, 0.3),
    "heat.stalled_share": Prior(0.8, 0.3),
    "heat.scalar_share": Prior(0.6, 0.4),
    "memory.cache_watts_per_gbs": Prior(0.3, 0.6),
    "memory.full_vote_share": Prior(0.4, 0.6),
    "memory.watts_per_gbs": Prior(0.09, 0.5),
}
_SPREAD = 0.08
_IDLE_SPREAD_W = 0.04  # of the idle power between the study's sessions: 0.754 and 0.841 W
_SETTLE_S = 10.0  # the die is warm, the body is not


def whole_phone_w(
    profile: PhoneProfile, engine: EngineModel, rows: Sequence[PowerRow]
) -> list[float]:
    """Return the phone's power in each row, some seconds into the phase."""
    return [
        warm_up_die(
            OfflineModel(profile, bind_workload(row.workload, row.batch), engine=engine)
        ).soc.system_w()
        for row in rows
    ]


def above_idle_w(
    profile: PhoneProfile, engine: EngineModel, rows: Sequence[CoreSetRow]
) -> list[float]:
    step = bind_workload("emdl-cpuconf")
    models = [warm_up_die(OfflineModel(profile, step, row.cores, row.freq, engine)) for row in rows]
    return [model.soc.system_w() - model.idle_w for model in models]


def warm_up_die(model: OfflineModel) -> OfflineModel:
    """Advance the model until the die is warm."""
    model.advance(_SETTLE_S)
    return model


def fit_power(
    profile: PhoneProfile, engine: EngineModel, measured: PhoneMeasurements
) -> list[FitResult]:
    """Fit all rows at once; then once without each row."""
    profile = profile.model_copy(update={"throttle": ()})  # the phases are too short for any trip

    def fit_values(whole: Sequence[PowerRow], sets: Sequence[CoreSetRow]) -> Values:
        residuals = partial(_power_residuals, profile, engine, whole, sets)
        return solve_least_squares(residuals, PRIORS)

    def predictor_of_whole(rows: Sequence[PowerRow]) -> Callable[[PowerRow], float]:
        fitted = profile.with_values(fit_values(rows, measured.core_set))
        return lambda row: whole_phone_w(fitted, engine, [row])[0]

    def predictor_of_sets(rows: Sequence[CoreSetRow]) -> Callable[[CoreSetRow], float]:
        fitted = profile.with_values(fit_values(measured.power, rows))
        return lambda row: above_idle_w(fitted, engine, [row])[0]

    whole, sets = measured.power, measured.core_set
    values = fit_values(whole, sets)
    best = profile.with_values(values)
    whole_error = mean_error(whole_phone_w(best, engine, whole), [row.power_w for row in whole])
    sets_error = mean_error(above_idle_w(best, engine, sets), [row.power_w for row in sets])
    whole_left_out = leave_out_each(
        whole,
        {"model": lambda row: row.workload, "batch": lambda row: row.batch},
        predictor_of_whole,
        lambda row: row.power_w,
    )
    sets_left_out, weights = leave_out_sets(sets, predictor_of_sets, lambda row: row.power_w)
    return [
        FitResult("power", "energy", len(whole), whole_error, whole_left_out, values=values),
        FitResult("power by core set", "energy", len(sets), sets_error, sets_left_out, weights),
    ]


def _power_residuals(
    profile: PhoneProfile,
    engine: EngineModel,
    whole: Sequence[PowerRow],
    sets: Sequence[CoreSetRow],
    values: Values,
) -> Array:
    """Return the differences between model and rows, in standard deviations."""
    candidate = profile.with_values(values)
    predicted = [*whole_phone_w(candidate, engine, whole), *above_idle_w(candidate, engine, sets)]
    measured = [row.power_w for row in whole] + [row.power_w for row in sets]
    # Power above idle is as uncertain as the idle power that was subtracted.
    weights = [1.0] * len(whole) + [
        row.weight / math.hypot(1.0, _IDLE_SPREAD_W / row.power_w / _SPREAD) for row in sets
    ]
    ratios = np.array(predicted) / np.array(measured)
    return np.asarray(np.array(weights) * np.log(ratios) / _SPREAD)
