"""The heat model: how a phone cools, fitted from what it did, for all who ask.

A phone at rest cools as  T(t) = rest + (T0 - rest) exp(-t / tau)  once its die has given its heat
to the body. The fit tries a ladder of tau; for each, rest and amplitude are a straight line's two
coefficients. Every tau whose error is not clearly worse than the best stays plausible, and the
spread of their answers is the interval: little data, wide interval.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from workloads.noun import Noun

TAU_STEP = 1.35
TAU_LADDER_S = tuple(10.0 * TAU_STEP**step for step in range(20))  # 10 s .. 50 min
FINE_STEPS = 12
SENSOR_NOISE_C = 0.2  # most zones step by 0.1 to 1 °C; a perfect fit would be an illusion


class Reading(NamedTuple):
    """A temperature at a moment of the phone's own clock."""

    t_s: float
    temp_c: float


class CoolingFit(Noun):
    """The taus that explain a cooling trace, each with the rest temperature that goes with it."""

    taus_s: tuple[float, ...]
    rests_c: tuple[float, ...]
    error_c: float
    readings: int

    @property
    def best(self) -> tuple[float, float]:
        """The likeliest (tau, rest); plausible pairs are kept best first."""
        return self.taus_s[0], self.rests_c[0]


class ReadyIn(NamedTuple):
    """Seconds of the phone's time until a temperature is reached: likeliest, and an interval."""

    likely_s: float
    earliest_s: float
    latest_s: float


def slope_c_per_min(readings: Sequence[Reading]) -> float:
    """Least-squares slope of a short trace; 0 for fewer than two moments."""
    mean_t = sum(reading.t_s for reading in readings) / max(len(readings), 1)
    mean_c = sum(reading.temp_c for reading in readings) / max(len(readings), 1)
    spread = sum((reading.t_s - mean_t) ** 2 for reading in readings)
    if spread == 0:
        return 0.0
    along = sum((reading.t_s - mean_t) * (reading.temp_c - mean_c) for reading in readings)
    return 60.0 * along / spread


def fit_cooling(readings: Sequence[Reading], rest_hint_c: float | None = None) -> CoolingFit | None:
    """Explain a trace by cooling, or say None when it holds too little to say anything.

    A rest temperature that is already known (from earlier coolings) counts as one more reading,
    made long after the trace ended.
    """
    if len(readings) < 4 or readings[0].temp_c - readings[-1].temp_c < 2 * SENSOR_NOISE_C:
        return None
    fits = _fits(readings, rest_hint_c, TAU_LADDER_S)
    if not fits:
        return None
    fine = (
        min(fits)[1] * TAU_STEP ** (step / FINE_STEPS) for step in range(-FINE_STEPS, FINE_STEPS)
    )
    fits = sorted(fits + _fits(readings, rest_hint_c, fine))
    floor = max(fits[0][0], SENSOR_NOISE_C)
    plausible = [fit for fit in fits if fit[0] <= 1.5 * floor]
    return CoolingFit(
        taus_s=tuple(tau for _, tau, _ in plausible),
        rests_c=tuple(rest for _, _, rest in plausible),
        error_c=fits[0][0],
        readings=len(readings),
    )


def _fits(
    readings: Sequence[Reading], rest_hint_c: float | None, taus: Iterable[float]
) -> list[tuple[float, float, float]]:
    """For each tau under which the trace is a cooling: its error, tau and rest temperature."""
    start = readings[0].t_s
    fits = []
    for tau in taus:
        xs = [math.exp(-(reading.t_s - start) / tau) for reading in readings]
        ys = [reading.temp_c for reading in readings]
        if rest_hint_c is not None:
            xs.append(0.0)
            ys.append(rest_hint_c)
        line = _straight_line(xs, ys)
        if line is not None and line[1] > 0:
            fits.append((line[2], tau, line[0]))
    return fits


def predict_ready(fit: CoolingFit, now_c: float, target_c: float) -> ReadyIn | None:
    """Say when a temperature will be reached; None when the fit says never."""
    answers = []
    for tau, rest in zip(fit.taus_s, fit.rests_c, strict=True):
        if now_c <= target_c:
            answers.append(0.0)
        elif rest < target_c:
            answers.append(tau * math.log((now_c - rest) / (target_c - rest)))
    if not answers:
        return None
    return ReadyIn(answers[0], min(answers), max(answers))


def _straight_line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float] | None:
    """Fit y = a + b x; answer (a, b, rms error)."""
    n = len(xs)
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread < 1e-9:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    offset = mean_y - slope * mean_x
    error = math.sqrt(sum((y - offset - slope * x) ** 2 for x, y in zip(xs, ys, strict=True)) / n)
    return offset, slope, error
