"""Heat of the Galaxy S8+: battery temperature of a long run, and where its clock settles.

The run is taken to be MobileNetV2 with 4 samples on the four big cores. Until the battery's highest
reading the clock is taken to stay up; the trip is what the body has reached by then, since the
trace turns there, and the cap goes no deeper than the plateau that was seen.
"""

from collections.abc import Sequence

import numpy as np

from agent.virtual.profiles import FittedBlock, Profile
from agent.virtual.twin.bench import Bench, job_named
from agent.virtual.twin.measured import Measured
from agent.virtual.twin.report import Fit
from agent.virtual.twin.solve import Array, Prior, Values, solve

Trace = Sequence[tuple[float, float]]
PRIORS = {
    "heat.body_ambient_k_per_w": Prior(3.8, 0.3),
    "heat.body_j_per_k": Prior(100.0, 0.4),
    "heat.battery_j_per_k": Prior(40.0, 0.3),
    "heat.body_battery_k_per_w": Prior(1.6, 0.4),
}
_SPREAD_K = 0.2
_TURN_BACK_S = 30.0  # the battery follows the body by about so much
_WORKLOAD, _BATCH = "emdl-mobilenetv2", 4


def room_for(profile: Profile, start_c: float) -> Profile:
    """The phone in the room in which its battery rests at a temperature."""
    bench = Bench(profile, job_named(_WORKLOAD, _BATCH))
    rise = bench.soc.heat.node("battery") - bench.soc.heat.ambient_c
    return _in_room(profile, start_c - rise)


def trace_of(profile: Profile, moments: Sequence[float]) -> tuple[list[float], list[int]]:
    """Battery temperature and big clock at some moments of a long run."""
    bench = Bench(profile, job_named(_WORKLOAD, _BATCH))
    temps, clocks = [], []
    for moment in moments:
        bench.advance(max(moment - bench.soc.timeline.now, 0.0))
        temps.append(bench.soc.heat.node("battery"))
        clocks.append(bench.soc.by_role("big").clock_khz)
    return temps, clocks


def fit_heat(profile: Profile, measured: Measured) -> list[Fit]:
    """Fit the whole trace; then its first part alone, and see how the rest is met."""
    trace = measured.battery_c
    start_c = trace[0][1]
    turn_s = max(trace, key=lambda point: point[1])[0]
    values = _solved(profile, [point for point in trace if point[0] <= turn_s], start_c)
    fitted = _tripped(profile, values, start_c, turn_s)
    early = [point for point in trace if point[0] <= turn_s * 0.6]
    guessed = _tripped(profile, _solved(profile, early, start_c), start_c, turn_s)
    late = [point for point in trace if point[0] > turn_s * 0.6]
    _, clocks = trace_of(fitted, [turn_s / 2, 2 * turn_s, 3 * turn_s])
    settled = abs(clocks[2] / measured.plateau_khz - 1.0)
    return [
        Fit(
            "battery temperature",
            "heat",
            len(trace),
            _mean_miss(fitted, trace),
            {"last two fifths": _mean_miss(guessed, late)},
            unit="K",
            values={**values, "throttle.0.trip_c": fitted.throttle[0].trip_c},
            room_c=fitted.fitted.room_c if fitted.fitted else None,
        ),
        Fit("settled clock", "clock", 1, settled, {}),
    ]


def _solved(profile: Profile, trace: Trace, start_c: float) -> Values:
    free = profile.model_copy(update={"throttle": ()})

    def residuals(values: Values) -> Array:
        tried = room_for(free.with_values(values), start_c)
        temps, _ = trace_of(tried, [moment for moment, _ in trace])
        missed = np.array(temps) - np.array([temp for _, temp in trace])
        return np.asarray(missed / _SPREAD_K)

    return solve(residuals, PRIORS)


def _tripped(profile: Profile, values: Values, start_c: float, turn_s: float) -> Profile:
    """The fitted phone, giving way when its body is as warm as at the turn of the trace."""
    fitted = room_for(profile.with_values(values), start_c)
    bench = Bench(fitted.model_copy(update={"throttle": ()}), job_named(_WORKLOAD, _BATCH))
    bench.advance(turn_s - _TURN_BACK_S)
    trip_c = round(bench.soc.heat.node("body"), 2)
    return fitted.with_values({"throttle.0.trip_c": trip_c})


def _mean_miss(profile: Profile, trace: Trace) -> float:
    temps, _ = trace_of(profile, [moment for moment, _ in trace])
    return float(np.mean(np.abs(np.array(temps) - np.array([temp for _, temp in trace]))))


def _in_room(profile: Profile, room_c: float) -> Profile:
    block = FittedBlock(measured_at="", room_c=room_c, error_rel={})
    return profile.model_copy(update={"fitted": block})
