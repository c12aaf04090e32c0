"""Fits the heat of the Galaxy S8+: battery temperature of a long run, and where its clock settles.

The run is assumed to be MobileNetV2 with 4 samples on the four big cores, and the clock to stay up
until the battery's highest reading. The trip is the body temperature at that moment, because the
trace turns there; throttling goes no deeper than the measured plateau.
"""

from collections.abc import Sequence

import numpy as np

from agent.virtual.profiles import FittedBlock, PhoneProfile
from agent.virtual.twin.fit_result import FitResult
from agent.virtual.twin.least_squares import Array, Prior, Values, solve_least_squares
from agent.virtual.twin.measurements import PhoneMeasurements
from agent.virtual.twin.offline_model import OfflineModel, bind_workload

Trace = Sequence[tuple[float, float]]
PRIORS = {
    "heat.body_ambient_k_per_w": Prior(3.8, 0.3),
    "heat.body_j_per_k": Prior(100.0, 0.4),
    "heat.battery_j_per_k": Prior(40.0, 0.3),
    "heat.body_battery_k_per_w": Prior(1.6, 0.4),
}
_SPREAD_K = 0.2
_BATTERY_LAG_S = 30.0  # the battery follows the body with about this delay
_WORKLOAD, _BATCH = "emdl-mobilenetv2", 4


def with_rest_temperature(profile: PhoneProfile, start_c: float) -> PhoneProfile:
    """Return the phone in a room in which its battery rests at a temperature."""
    model = OfflineModel(profile, bind_workload(_WORKLOAD, _BATCH))
    rise = model.soc.heat.node("battery") - model.soc.heat.ambient_c
    return _with_room_c(profile, start_c - rise)


def simulate_trace(
    profile: PhoneProfile, moments: Sequence[float]
) -> tuple[list[float], list[int]]:
    """Return battery temperature and big clock at some moments of a long run."""
    model = OfflineModel(profile, bind_workload(_WORKLOAD, _BATCH))
    temps, clocks = [], []
    for moment in moments:
        model.advance(max(moment - model.soc.model_clock.now, 0.0))
        temps.append(model.soc.heat.node("battery"))
        clocks.append(model.soc.cluster_by_role("big").clock_khz)
    return temps, clocks


def fit_heat(profile: PhoneProfile, measured: PhoneMeasurements) -> list[FitResult]:
    """Fit the whole trace; then fit its first part alone and test it on the rest."""
    trace = measured.battery_c
    start_c = trace[0][1]
    turn_s = max(trace, key=lambda point: point[1])[0]
    values = _fit_values(profile, [point for point in trace if point[0] <= turn_s], start_c)
    fitted = _with_trip(profile, values, start_c, turn_s)
    early_trace = [point for point in trace if point[0] <= turn_s * 0.6]
    fitted_early = _with_trip(profile, _fit_values(profile, early_trace, start_c), start_c, turn_s)
    late_trace = [point for point in trace if point[0] > turn_s * 0.6]
    _, clocks = simulate_trace(fitted, [turn_s / 2, 2 * turn_s, 3 * turn_s])
    clock_error = abs(clocks[2] / measured.plateau_khz - 1.0)
    return [
        FitResult(
            "battery temperature",
            "heat",
            len(trace),
            _mean_error_k(fitted, trace),
            {"last two fifths": _mean_error_k(fitted_early, late_trace)},
            unit="K",
            values={**values, "throttle.0.trip_c": fitted.throttle[0].trip_c},
            room_c=fitted.fitted.room_c if fitted.fitted else None,
        ),
        FitResult("settled clock", "clock", 1, clock_error, {}),
    ]


def _fit_values(profile: PhoneProfile, trace: Trace, start_c: float) -> Values:
    unthrottled = profile.model_copy(update={"throttle": ()})

    def residuals(values: Values) -> Array:
        candidate = with_rest_temperature(unthrottled.with_values(values), start_c)
        temps, _ = simulate_trace(candidate, [moment for moment, _ in trace])
        error_k = np.array(temps) - np.array([temp for _, temp in trace])
        return np.asarray(error_k / _SPREAD_K)

    return solve_least_squares(residuals, PRIORS)


def _with_trip(
    profile: PhoneProfile, values: Values, start_c: float, turn_s: float
) -> PhoneProfile:
    """Return the fitted phone with a trip at the body temperature of the turning point."""
    fitted = with_rest_temperature(profile.with_values(values), start_c)
    model = OfflineModel(
        fitted.model_copy(update={"throttle": ()}), bind_workload(_WORKLOAD, _BATCH)
    )
    model.advance(turn_s - _BATTERY_LAG_S)
    trip_c = round(model.soc.heat.node("body"), 2)
    return fitted.with_values({"throttle.0.trip_c": trip_c})


def _mean_error_k(profile: PhoneProfile, trace: Trace) -> float:
    temps, _ = simulate_trace(profile, [moment for moment, _ in trace])
    return float(np.mean(np.abs(np.array(temps) - np.array([temp for _, temp in trace]))))


def _with_room_c(profile: PhoneProfile, room_c: float) -> PhoneProfile:
    block = FittedBlock(measurements_file="", room_c=room_c, error_rel={})
    return profile.model_copy(update={"fitted": block})
