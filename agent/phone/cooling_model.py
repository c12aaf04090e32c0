"""Bayesian model of how a phone cools, fitted to its temperatures; predicts when it is cool.

A phone at rest cools as  T(t) = rest + A exp(-t / fast) + B exp(-t / slow):  the die passes its
heat to the body in seconds, the body to the air in minutes. For a given pair of time constants the
other three parameters are a linear regression with a prior. A grid of pairs, each weighted by how
well it explains this and all earlier coolings, therefore is the whole posterior. With little data
many pairs stay likely, and the spread of their predictions is the interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from workloads.protocol.base import WireModel
from workloads.protocol.condition import DEFAULT_REST_TEMP_C

FAST_S = (14.0, 40.0)
SLOW_S = tuple(60.0 * 1.09**step for step in range(44))  # 1 min .. 40 min
PAIRS = tuple((fast, slow) for fast in FAST_S for slow in SLOW_S)
SENSOR_NOISE_C = 0.15  # most zones have steps of 0.1 to 1 °C; no fit can be better than that
DIE_NOISE_C, DIE_NOISE_S = 3.0, 35.0  # error of two exponentials while the die still cools
REST_SPREAD_C = 8.0  # prior: any phone in any room
REST_DRIFT_C = 0.2  # how much the room's temperature changes between two coolings
AMPLITUDE_C = 40.0
READINGS_MIN, READINGS_MAX = 4, 48
BODY_NOISE_C = 0.6
INDEPENDENT_READINGS = 20.0  # neighbouring readings share the model's error
FALL_MIN_C = 0.4
FORGET = 0.9  # weight that old coolings keep after each new one: cases and places change
HORIZON_S = 6 * 3600.0
DRAWS = 8
_TAUS = np.array(PAIRS)
_STANDARD_NORMALS = np.random.default_rng(0).standard_normal((DRAWS, 3))
Array = np.ndarray[Any, np.dtype[np.float64]]


class TempReading(NamedTuple):
    """The CPU temperature at a moment of the phone's own clock, and the body's where known."""

    t_s: float
    temp_c: float
    body_c: float | None = None


class TimeToCool(NamedTuple):
    """Seconds of the phone's clock until it is cool enough: median and 90 % interval."""

    likely_s: float
    earliest_s: float
    latest_s: float


class CoolingPosterior(WireModel):
    """What is known after all coolings: the weight of each pair, and the resting temperature."""

    log_weights: tuple[float, ...] = (0.0,) * len(PAIRS)
    rest_c: float = DEFAULT_REST_TEMP_C
    rest_spread_c: float = REST_SPREAD_C
    lead_c: float | None = None  # CPU minus body temperature at rest
    coolings: int = 0

    @property
    def slow_s(self) -> float:
        """The most likely time constant of the body after all coolings."""
        return PAIRS[max(range(len(PAIRS)), key=self.log_weights.__getitem__)][1]


PRIOR = CoolingPosterior()


@dataclass(frozen=True)
class CoolingFit:
    """The present cooling as explained by each pair of time constants, with weights."""

    weights: Array  # per pair, sum 1
    means: Array  # per pair: rest, A, B at the last reading
    spreads: Array  # per pair: a square root of their covariance
    evidence: Array  # per pair: log evidence of this trace alone
    excess_lead_c: float  # CPU minus body temperature, beyond its value at rest
    lead_c: float | None  # CPU minus body temperature in the later part of this trace

    @property
    def rest(self) -> tuple[float, float]:
        """The temperature at which the phone will settle, and its standard deviation."""
        mean = float(self.weights @ self.means[:, 0])
        variances = (self.spreads[:, 0, :] ** 2).sum(axis=1) + (self.means[:, 0] - mean) ** 2
        return mean, math.sqrt(float(self.weights @ variances))

    @property
    def slow_s(self) -> float:
        """The most likely time constant of the body."""
        return float(_TAUS[int(self.weights.argmax()), -1])


def slope_c_per_min(readings: Sequence[TempReading]) -> float:
    """Least-squares slope of a short trace; 0 for fewer than two readings."""
    mean_t = sum(reading.t_s for reading in readings) / max(len(readings), 1)
    mean_c = sum(reading.temp_c for reading in readings) / max(len(readings), 1)
    spread = sum((reading.t_s - mean_t) ** 2 for reading in readings)
    if spread == 0:
        return 0.0
    along = sum((reading.t_s - mean_t) * (reading.temp_c - mean_c) for reading in readings)
    return 60.0 * along / spread


class _Trace(NamedTuple):
    """A cooling as the regression needs it."""

    times: Array
    temps: Array  # of the body where all readings have it, else of the CPU
    noise: Array
    rest_c: float  # prior mean of the resting temperature of `temps`
    lead_c: float  # CPU minus `temps` at the last reading
    rest_lead_c: float  # the same at rest


def fit_cooling(
    readings: Sequence[TempReading], prior: CoolingPosterior = PRIOR
) -> CoolingFit | None:
    """Fit a cooling to a trace; None if the trace is too short or does not fall.

    Where the body has its own thermometer, the body is fitted: the fall of the die contains no
    information about the minutes that follow.
    """
    if len(readings) < READINGS_MIN:
        return None
    if readings[0].temp_c - min(reading.temp_c for reading in readings[-3:]) < FALL_MIN_C:
        return None
    readings = thin_readings(readings)
    trace = _trace(readings, prior)
    # Amplitudes are those at the last reading, so that a prediction needs no other time.
    ages = trace.times[-1] - trace.times
    basis = np.ones((len(PAIRS), len(ages), 3))
    basis[:, :, 1:] = np.exp(np.minimum(ages[None, :, None] / _TAUS[:, None, :], 40.0))
    weighted = basis / trace.noise[None, :, None]
    target = (trace.temps - trace.rest_c) / trace.noise
    # At the first reading an amplitude is a few dozen degrees at most; it has decayed since.
    decayed = AMPLITUDE_C * np.exp(-np.minimum(ages[0] / _TAUS, 40.0))
    precision = np.zeros((len(PAIRS), 3, 3))
    precision[:, 0, 0] = prior.rest_spread_c**-2
    precision[:, [1, 2], [1, 2]] = decayed**-2
    inner = np.einsum("gni,gnj->gij", weighted, weighted) + precision
    projected = np.einsum("gni,n->gi", weighted, target)
    means = np.linalg.solve(inner, projected[:, :, None])[:, :, 0]
    residual = float(target @ target) - (projected * means).sum(axis=1)
    _, log_volume = np.linalg.slogdet(inner)
    log_prior = np.log(precision[:, [0, 1, 2], [0, 1, 2]]).sum(axis=1)
    evidence = -0.5 * residual + 0.5 * (log_prior - log_volume)
    evidence /= max(1.0, len(ages) / INDEPENDENT_READINGS)
    weights = _normalize(evidence + np.array(prior.log_weights))
    spreads = np.linalg.inv(np.linalg.cholesky(inner)).transpose(0, 2, 1)
    means[:, 0] += trace.rest_c
    means[:, 0] += trace.rest_lead_c
    excess_c = trace.lead_c - trace.rest_lead_c
    return CoolingFit(weights, means, spreads, evidence, excess_c, _lead(readings))


def _trace(readings: Sequence[TempReading], prior: CoolingPosterior) -> _Trace:
    times = np.array([reading.t_s for reading in readings])
    bodies = [reading.body_c for reading in readings if reading.body_c is not None]
    by_body = len(bodies) == len(readings)
    temps = np.array(bodies if by_body else [reading.temp_c for reading in readings])
    lead_c = readings[-1].temp_c - float(temps[-1])
    rest_lead_c = prior.lead_c if by_body and prior.lead_c is not None else lead_c
    early = BODY_NOISE_C if by_body else DIE_NOISE_C
    noise = SENSOR_NOISE_C + early * np.exp(-(times - times[0]) / DIE_NOISE_S)
    return _Trace(times, temps, noise, prior.rest_c - rest_lead_c, lead_c, rest_lead_c)


def thin_readings(readings: Sequence[TempReading]) -> Sequence[TempReading]:
    """Reduce a trace to few enough readings for a quick fit: both ends, and some in between."""
    if len(readings) <= READINGS_MAX:
        return readings
    last = len(readings) - 1
    return [readings[round(n * last / (READINGS_MAX - 1))] for n in range(READINGS_MAX)]


def _lead(readings: Sequence[TempReading]) -> float | None:
    """How much warmer the CPU is than the body, once the die has cooled."""
    late = [r for r in readings if r.t_s >= readings[0].t_s + 4 * FAST_S[0]]
    leads = sorted(r.temp_c - r.body_c for r in late if r.body_c is not None)
    return leads[len(leads) // 2] if leads else None


def update_posterior(prior: CoolingPosterior, fit: CoolingFit) -> CoolingPosterior:
    """Return what is known after one more cooling; the room may change until the next one."""
    mean, spread = fit.rest
    weights = FORGET * np.array(prior.log_weights) + fit.evidence
    return CoolingPosterior(
        log_weights=tuple(float(weight) for weight in weights - weights.max()),
        rest_c=mean,
        rest_spread_c=min(math.hypot(spread, REST_DRIFT_C), REST_SPREAD_C),
        lead_c=prior.lead_c if fit.lead_c is None else _blend(prior.lead_c, fit.lead_c),
        coolings=prior.coolings + 1,
    )


def _blend(old: float | None, new: float) -> float:
    return new if old is None else 0.7 * old + 0.3 * new


def predict_time_to_cool(
    fit: CoolingFit, target_c: float, slope_max_c_per_min: float = math.inf
) -> TimeToCool | None:
    """Predict when a phone is as cool and as steady as requested; None if it never will be."""
    likely = np.flatnonzero(fit.weights > 1e-3 * fit.weights.max())
    draws = np.einsum("gij,dj->gdi", fit.spreads[likely], _STANDARD_NORMALS)
    draws += fit.means[likely, None, :]
    # The mean of each pair counts as much as all its draws together.
    draws = np.concatenate([fit.means[likely, None, :], draws], axis=1)
    shares = np.repeat(fit.weights[likely, None], 1 + DRAWS, axis=1)
    shares[:, 1:] /= DRAWS
    # The lead of the die over the body is one more component that decays.
    excess = np.full((*draws.shape[:2], 1), fit.excess_lead_c)
    draws = np.concatenate([draws, excess], axis=2)
    taus = np.insert(_TAUS[likely], 2, FAST_S[0], axis=1)[:, None, :]
    times = _cool_after_s(draws, taus, target_c, slope_max_c_per_min / 60.0)
    order = np.argsort(times, axis=None)
    cumulative = np.cumsum(shares.ravel()[order])
    cumulative /= cumulative[-1]
    median, earliest, latest = (
        float(times.ravel()[order][min(int(np.searchsorted(cumulative, share)), len(order) - 1)])
        for share in (0.5, 0.05, 0.95)
    )
    return None if median >= HORIZON_S else TimeToCool(median, earliest, latest)


def _cool_after_s(curves: Array, taus: Array, target_c: float, slope_max: float) -> Array:
    """When each curve is low and flat for the first time, by bisection; HORIZON_S means never."""
    low = np.zeros(curves.shape[:2])
    high = np.full(curves.shape[:2], HORIZON_S)
    t_s = low
    for _ in range(24):
        excess = curves[:, :, 1:] * np.exp(-t_s[:, :, None] / taus)
        cool = curves[:, :, 0] + excess.sum(axis=2) <= target_c
        done = cool & (np.abs((excess / taus).sum(axis=2)) <= slope_max)
        high, low = np.where(done, t_s, high), np.where(done, low, t_s)
        t_s = (low + high) / 2
    return np.where(high <= 1e-2, 0.0, high)


def _normalize(logarithms: Array) -> Array:
    weights = np.exp(logarithms - logarithms.max())
    normalized: Array = weights / weights.sum()
    return normalized
