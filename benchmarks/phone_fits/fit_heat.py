"""Fits the heat of the Galaxy S8+: battery temperature of a long run, and the cycles of its clock.

The run is assumed to be MobileNetV2 with 4 samples on the four big cores. Heat capacities, thermal
resistances and the policy (trip, hysteresis, average) are searched together, because each cycle of
the clock bends the temperature. The only thing known about later hours is that the clock settles:
at the settled clock, a warm phone cools down just to the end of the hysteresis.
"""

import itertools
from collections.abc import Sequence
from random import Random
from statistics import fmean

import numpy as np

from agent.virtual.profiles import FittedBlock, PhoneProfile
from agent.virtual.twin.fit_result import FitResult
from agent.virtual.twin.least_squares import Prior, Values
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from benchmarks.phone_fits.measurements import PhoneMeasurements

Trace = Sequence[tuple[float, float]]
# Priors: a phone of 173 g in still air; a policy that acts near the die.
PRIORS = {
    "heat.vector_factor": Prior(1.1, 0.07),
    "memory.cache_watts_per_gbs": Prior(0.65, 0.2),
    "heat.die_body_k_per_w": Prior(6.5, 0.1),
    "heat.body_ambient_k_per_w": Prior(7.2, 0.1),
    "heat.body_j_per_k": Prior(73.0, 0.15),
    "heat.battery_j_per_k": Prior(62.0, 0.15),
    "heat.body_battery_k_per_w": Prior(1.8, 0.2),
    "throttle.0.rungs.0.trip_c": Prior(50.0, 0.02),
    "throttle.0.hysteresis_c": Prior(4.2, 0.1),
    "throttle.0.lag_s": Prior(146.0, 0.15),
}
_ROUNDS, _DRAWS, _KEPT = 5, 80, 8
_SPREAD_K = 0.2
_SETTLED_S = (3600.0, 5400.0)  # of the work: the phone is warm and its clock settled
_WORKLOAD, _BATCH = "emdl-mobilenetv2", 4


def with_rest_temperature(profile: PhoneProfile, start_c: float) -> PhoneProfile:
    """Return the phone in a room in which its battery rests at a temperature."""
    model = OfflineModel(profile, bind_workload(_WORKLOAD, _BATCH))
    rise = model.soc.heat.node("battery") - model.soc.heat.ambient_c
    block = FittedBlock(measurements_file="", room_c=start_c - rise, error_rel={})
    return profile.model_copy(update={"fitted": block})


def simulate_trace(
    profile: PhoneProfile, moments: Sequence[float]
) -> tuple[list[float], list[int]]:
    """Return battery temperature and big clock at some moments of a long run."""
    model = OfflineModel(profile, bind_workload(_WORKLOAD, _BATCH))
    temps, clocks = [], []
    for moment in moments:
        model.advance(max(moment - model.soc.clock.now, 0.0))
        temps.append(model.soc.heat.node("battery"))
        clocks.append(model.soc.cluster_by_role("big").clock_khz)
    return temps, clocks


def throttling_cycles(clocks: Sequence[int]) -> int:
    """Return how often the clock fell from its highest value."""
    top = max(clocks)
    return sum(now < top <= before for before, now in itertools.pairwise(clocks))


def fit_heat(profile: PhoneProfile, measured: PhoneMeasurements) -> list[FitResult]:
    """Fit the whole trace; then fit its first part alone and test it on the rest."""
    trace = measured.battery_c
    start_c, end_s = trace[0][1], trace[-1][0]
    values = _search(profile, trace, start_c, measured.plateau_khz)
    fitted = with_rest_temperature(profile.with_values(values), start_c)
    early = [point for point in trace if point[0] <= end_s * 0.6]
    late = [point for point in trace if point[0] > end_s * 0.6]
    early_values = _search(profile, early, start_c, measured.plateau_khz)
    fitted_early = with_rest_temperature(profile.with_values(early_values), start_c)
    _, settled = simulate_trace(fitted, np.arange(*_SETTLED_S, 20.0).tolist())
    clock_error = abs(fmean(settled) / measured.plateau_khz - 1.0)
    return [
        FitResult(
            "battery temperature",
            "heat",
            len(trace),
            _mean_error_k(fitted, trace),
            {"last two fifths": tuple(_errors_k(fitted_early, late))},
            unit="K",
            values=values,
            room_c=fitted.fitted.room_c if fitted.fitted else None,
        ),
        FitResult("settled clock", "clock", 1, clock_error, {}),
    ]


def _search(profile: PhoneProfile, trace: Trace, start_c: float, plateau_khz: int) -> Values:
    """Search at random around the best values so far, in ever smaller steps.

    The clock jumps, so that the error has no slope to follow.
    """
    rng = Random(0)
    moments, temps = [moment for moment, _ in trace], np.array([temp for _, temp in trace])

    def cost(point: Values) -> float:
        try:
            candidate = with_rest_temperature(profile.with_values(point), start_c)
        except ValueError:  # such as a rung above the next one
            return float("inf")
        error_k = np.append(
            np.array(simulate_trace(candidate, moments)[0]) - temps,
            2.0 * _settled_margin_k(candidate, plateau_khz),
        )
        pulled = [
            np.log(point[name] / prior.value) / prior.spread for name, prior in PRIORS.items()
        ]
        return float(
            np.sum((error_k / _SPREAD_K) ** 2) / len(temps) * 40 + np.sum(np.square(pulled))
        )

    centre = {name: prior.value for name, prior in PRIORS.items()}
    best = [(cost(centre), centre)]
    for size in range(_ROUNDS):
        for draw in range(_DRAWS):
            base = best[draw % len(best)][1]
            point = {
                name: base[name] * float(np.exp(rng.gauss(0.0, prior.spread / (size + 1))))
                for name, prior in PRIORS.items()
            }
            best.append((cost(point), point))
        best = sorted(best, key=lambda pair: pair[0])[:_KEPT]
    return best[0][1]


def _settled_margin_k(profile: PhoneProfile, plateau_khz: int) -> float:
    """Return how far the zone of a warm phone stays above the end of the policy's hysteresis."""
    unthrottled = profile.model_copy(update={"throttle": ()})
    model = OfflineModel(unthrottled, bind_workload(_WORKLOAD, _BATCH), freq=str(plateau_khz))
    model.advance(_SETTLED_S[1])
    policy = profile.throttle[0]
    zone = next(zone for zone in model.soc.zones if zone.profile.type == policy.zone)
    return model.soc.read_zone_mc(zone) / 1000 - (policy.rungs[0].trip_c - policy.hysteresis_c)


def _errors_k(profile: PhoneProfile, trace: Trace) -> list[float]:
    temps, _ = simulate_trace(profile, [moment for moment, _ in trace])
    return [temp - measured_c for temp, (_, measured_c) in zip(temps, trace, strict=True)]


def _mean_error_k(profile: PhoneProfile, trace: Trace) -> float:
    return fmean(abs(error) for error in _errors_k(profile, trace))
