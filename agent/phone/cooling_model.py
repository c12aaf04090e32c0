"""The heat model: how a phone cools, fitted from what it did, for all who ask.

A phone at rest cools as  T(t) = rest + A exp(-t / fast) + B exp(-t / slow):  the die gives its heat
to the body in seconds, the body to the air in minutes. For a pair of time constants the other three
are a straight regression, solved with what was known before; so a grid of pairs, each weighed by
how well it explains this and all earlier coolings, is the whole posterior. Little data leaves many
pairs standing, and their answers disagree: that is the interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from workloads.noun import Noun

FAST_S = (14.0, 40.0)
SLOW_S = tuple(60.0 * 1.09**step for step in range(44))  # 1 min .. 40 min
PAIRS = tuple((fast, slow) for fast in FAST_S for slow in SLOW_S)
SENSOR_NOISE_C = 0.15  # most zones step by 0.1 to 1 °C; a perfect fit would be an illusion
DIE_NOISE_C, DIE_NOISE_S = 3.0, 35.0  # how wrong two exponentials are while the die still falls
REST_C, REST_SPREAD_C = 28.0, 8.0  # any phone in any room
REST_DRIFT_C = 0.2  # how far the room's temperature goes between two coolings
AMPLITUDE_C = 40.0
READINGS_MIN, READINGS_MAX = 4, 48
BODY_NOISE_C = 0.6
WITNESSES = 20.0
FALL_MIN_C = 0.4
FORGET = 0.9  # what an old cooling still weighs after the next one: cases and shelves change
HORIZON_S = 6 * 3600.0
DRAWS = 8
_TAUS = np.array(PAIRS)
_NORMALS = np.random.default_rng(0).standard_normal((DRAWS, 3))
Array = np.ndarray[Any, np.dtype[np.float64]]


class Reading(NamedTuple):
    """The CPU's temperature at a moment of the phone's own clock, and its body's where known."""

    t_s: float
    temp_c: float
    body_c: float | None = None


class ReadyIn(NamedTuple):
    """Seconds of the phone's time until it may start: likeliest, and an interval of nine in ten."""

    likely_s: float
    earliest_s: float
    latest_s: float


class Cooled(Noun):
    """What a phone's coolings have taught: how likely each pair is, and where it comes to rest."""

    log_weights: tuple[float, ...] = (0.0,) * len(PAIRS)
    rest_c: float = REST_C
    rest_spread_c: float = REST_SPREAD_C
    lead_c: float | None = None  # of the CPU over the body, at rest
    coolings: int = 0

    @property
    def slow_s(self) -> float:
        """The likeliest time constant of the body, by all that was seen."""
        return PAIRS[max(range(len(PAIRS)), key=self.log_weights.__getitem__)][1]


NEVER_SEEN = Cooled()


@dataclass(frozen=True)
class CoolingFit:
    """The present cooling as each pair explains it, all of them weighed."""

    weights: Array  # by pair, together 1
    means: Array  # by pair: rest, A, B at the last reading
    spreads: Array  # by pair: a root of their covariance
    evidence: Array  # by pair: how well it explains this trace alone, as a logarithm
    ahead_c: float  # of the CPU over the body, beyond what it is at rest
    error_c: float
    lead_c: float | None  # of the CPU over the body, in the later part of this trace

    @property
    def rest(self) -> tuple[float, float]:
        """Where it will come to rest, and how sure that is (one standard deviation)."""
        mean = float(self.weights @ self.means[:, 0])
        inside = (self.spreads[:, 0, :] ** 2).sum(axis=1) + (self.means[:, 0] - mean) ** 2
        return mean, math.sqrt(float(self.weights @ inside))

    @property
    def slow_s(self) -> float:
        """The likeliest time constant of the body."""
        return float(_TAUS[int(self.weights.argmax()), -1])


def slope_c_per_min(readings: Sequence[Reading]) -> float:
    """Least-squares slope of a short trace; 0 for fewer than two moments."""
    mean_t = sum(reading.t_s for reading in readings) / max(len(readings), 1)
    mean_c = sum(reading.temp_c for reading in readings) / max(len(readings), 1)
    spread = sum((reading.t_s - mean_t) ** 2 for reading in readings)
    if spread == 0:
        return 0.0
    along = sum((reading.t_s - mean_t) * (reading.temp_c - mean_c) for reading in readings)
    return 60.0 * along / spread


def fit_cooling(readings: Sequence[Reading], known: Cooled = NEVER_SEEN) -> CoolingFit | None:
    """Explain a trace by cooling, or say None when it holds too little to say anything.

    Where the body has a thermometer of its own, the body is what is fitted: it is spared the fall
    of the die, which says nothing about the minutes that follow.
    """
    few = len(readings) < READINGS_MIN
    if few or readings[0].temp_c - min(r.temp_c for r in readings[-3:]) < FALL_MIN_C:
        return None
    readings = thinned(readings)
    times = np.array([reading.t_s for reading in readings])
    bodies = [reading.body_c for reading in readings if reading.body_c is not None]
    by_body = len(bodies) == len(readings)
    temps = np.array(bodies if by_body else [reading.temp_c for reading in readings])
    lead_c = readings[-1].temp_c - float(temps[-1])
    rest_lead_c = known.lead_c if by_body and known.lead_c is not None else lead_c
    rest_c = known.rest_c - rest_lead_c
    early = BODY_NOISE_C if by_body else DIE_NOISE_C
    noise = SENSOR_NOISE_C + early * np.exp(-(times - times[0]) / DIE_NOISE_S)
    # Amplitudes are those of the last moment, so that a prediction needs no other time.
    ages = times[-1] - times
    basis = np.ones((len(PAIRS), len(times), 3))
    basis[:, :, 1:] = np.exp(np.minimum(ages[None, :, None] / _TAUS[:, None, :], 40.0))
    weighed = basis / noise[None, :, None]
    target = (temps - rest_c) / noise
    # At the first moment an amplitude is a few dozen degrees at most; it has decayed since.
    decayed = AMPLITUDE_C * np.exp(-np.minimum(ages[0] / _TAUS, 40.0))
    precision = np.zeros((len(PAIRS), 3, 3))
    precision[:, 0, 0] = known.rest_spread_c**-2
    precision[:, [1, 2], [1, 2]] = decayed**-2
    inner = np.einsum("gni,gnj->gij", weighed, weighed) + precision
    along = np.einsum("gni,n->gi", weighed, target)
    means = np.linalg.solve(inner, along[:, :, None])[:, :, 0]
    missed = float(target @ target) - (along * means).sum(axis=1)
    _, volume = np.linalg.slogdet(inner)
    before = np.log(precision[:, [0, 1, 2], [0, 1, 2]]).sum(axis=1)
    # Neighbouring readings share what the model gets wrong: they are not so many witnesses.
    evidence = (-0.5 * missed + 0.5 * (before - volume)) / max(1.0, len(times) / WITNESSES)
    weights = _normalised(evidence + np.array(known.log_weights))
    spreads = np.linalg.inv(np.linalg.cholesky(inner)).transpose(0, 2, 1)
    means[:, 0] += rest_c
    best = int(weights.argmax())
    error_c = float(np.sqrt(((temps - basis[best] @ means[best]) ** 2).mean()))
    means[:, 0] += rest_lead_c
    ahead = lead_c - rest_lead_c
    return CoolingFit(weights, means, spreads, evidence, ahead, error_c, _lead(readings))


def thinned(readings: Sequence[Reading]) -> Sequence[Reading]:
    """A trace with few enough readings for a quick fit: the ends, and some between."""
    if len(readings) <= READINGS_MAX:
        return readings
    last = len(readings) - 1
    return [readings[round(at * last / (READINGS_MAX - 1))] for at in range(READINGS_MAX)]


def _lead(readings: Sequence[Reading]) -> float | None:
    """How much warmer the CPU is than the body, once the die has fallen."""
    late = [r for r in readings if r.t_s >= readings[0].t_s + 4 * FAST_S[0]]
    leads = sorted(r.temp_c - r.body_c for r in late if r.body_c is not None)
    return leads[len(leads) // 2] if leads else None


def learn(known: Cooled, fit: CoolingFit) -> Cooled:
    """What is known after one more cooling; the room may have changed until the next one."""
    mean, spread = fit.rest
    weights = FORGET * np.array(known.log_weights) + fit.evidence
    return Cooled(
        log_weights=tuple(float(weight) for weight in weights - weights.max()),
        rest_c=mean,
        rest_spread_c=min(math.hypot(spread, REST_DRIFT_C), REST_SPREAD_C),
        lead_c=known.lead_c if fit.lead_c is None else _blend(known.lead_c, fit.lead_c),
        coolings=known.coolings + 1,
    )


def _blend(old: float | None, new: float) -> float:
    return new if old is None else 0.7 * old + 0.3 * new


def predict_ready(
    fit: CoolingFit, target_c: float, slope_max_c_per_min: float = math.inf
) -> ReadyIn | None:
    """When a phone is as cool and as steady as asked, from its last reading on; None for never."""
    standing = np.flatnonzero(fit.weights > 1e-3 * fit.weights.max())
    drawn = fit.means[standing, None, :] + np.einsum("gij,dj->gdi", fit.spreads[standing], _NORMALS)
    # The mean of each pair counts as much as all its draws together.
    drawn = np.concatenate([fit.means[standing, None, :], drawn], axis=1)
    shares = np.repeat(fit.weights[standing, None], 1 + DRAWS, axis=1)
    shares[:, 1:] /= DRAWS
    # The die's own lead is a part that falls as well.
    ahead = np.full((*drawn.shape[:2], 1), fit.ahead_c)
    drawn = np.concatenate([drawn, ahead], axis=2)
    taus = np.insert(_TAUS[standing], 2, FAST_S[0], axis=1)[:, None, :]
    times = _ready_s(drawn, taus, target_c, slope_max_c_per_min / 60.0)
    order = np.argsort(times, axis=None)
    summed = np.cumsum(shares.ravel()[order])
    summed /= summed[-1]
    likely, earliest, latest = (
        float(times.ravel()[order][min(int(np.searchsorted(summed, share)), len(order) - 1)])
        for share in (0.5, 0.05, 0.95)
    )
    return None if likely >= HORIZON_S else ReadyIn(likely, earliest, latest)


def _ready_s(lines: Array, taus: Array, target_c: float, slope_max: float) -> Array:
    """The first moment, by halving, at which a curve is low and flat enough; HORIZON_S is never."""
    low = np.zeros(lines.shape[:2])
    high = np.full(lines.shape[:2], HORIZON_S)
    at = low
    for _ in range(24):
        falls = lines[:, :, 1:] * np.exp(-at[:, :, None] / taus)
        cool = lines[:, :, 0] + falls.sum(axis=2) <= target_c
        good = cool & (np.abs((falls / taus).sum(axis=2)) <= slope_max)
        high, low = np.where(good, at, high), np.where(good, low, at)
        at = (low + high) / 2
    return np.where(high <= 1e-2, 0.0, high)


def _normalised(logarithms: Array) -> Array:
    weights = np.exp(logarithms - logarithms.max())
    found: Array = weights / weights.sum()
    return found
