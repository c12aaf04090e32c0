"""How often the intervals cover the truth, on recorded noise and on noise that is worse.

    .venv/bin/python -m benchmarks.coverage [--draws 10000] [--seed N]

A run is drawn from block times recorded on a phone with free clocks (the recordings from which
virtual phones draw, too), or from noise with two modes, with memory, or with an effect of the
occasion. No phone and no clock is involved. Every line has the limit that it must keep; the exit
code says whether all did.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orchestrator.analysis.log_ratio import RunPair, estimate_log_ratio
from orchestrator.analysis.stats import (
    MODEL_FREEDOM,
    Interval,
    holm_correction,
    interval_over_occasions,
    median_interval,
    model_deviation,
    widen_by_model,
)
from workloads.protocol.metrics import Provenance, SimulationModel, Source

Array = np.ndarray[Any, np.dtype[np.float64]]
Draw = Callable[[int, int], Array]  # draws, runs -> logarithms of run values
RUNS = range(4, 21)
ROWS = 20
SERIES_MIN = 30
STEP_MS = 10.0
RECORDINGS = Path(__file__).parents[1] / "agent/virtual/physics/recorded_step_times.json"
TWIN = Provenance(source=Source.SIMULATED, model=SimulationModel.FITTED, error_rel=0.10)


class Figure(NamedTuple):
    """One measured share with the limits that it must keep."""

    what: str
    value: float
    low: float
    high: float
    note: str = ""

    @property
    def kept(self) -> bool:
        """Whether the value is within its limits."""
        return self.low <= self.value <= self.high

    @property
    def line(self) -> str:
        """The figure as a line of text."""
        limit = f"{self.low:.3g} to {self.high:.3g}" if self.low > 0 else f"up to {self.high:.3g}"
        if self.high == math.inf:
            limit = f"at least {self.low:.3g}"
        mark = "" if self.kept else "  NOT KEPT"
        return f"{self.what:<58} {self.value:7.3f}  ({limit}) {self.note}{mark}"


def recorded_series() -> dict[str, Array]:
    """Return the recorded series as logarithms around their median."""
    series = json.loads(RECORDINGS.read_text(encoding="utf-8"))["free"]
    logs = {name: np.log(np.array(values)) for name, values in series.items()}
    return {name: values - np.median(values) for name, values in logs.items()}


def long_series() -> dict[str, Array]:
    """Return the recorded series whose median is not a single value of many draws."""
    return {name: values for name, values in recorded_series().items() if len(values) >= SERIES_MIN}


def resampled(values: Array, rng: np.random.Generator) -> Draw:
    """Draw runs from a recorded series, independently."""
    return lambda draws, runs: rng.choice(values, (draws, runs))


def with_two_modes(share: float, rng: np.random.Generator) -> Draw:
    """Draw runs of which a share is 10 % slower, around their true median."""

    def draw(draws: int, runs: int) -> Array:
        shape = (draws, runs)
        return 0.01 * rng.standard_normal(shape) + 0.1 * (rng.random(shape) < share) - middle

    middle = 0.0
    middle = float(np.median(draw(200_000, 1)))
    return draw


def with_memory(correlation: float, rng: np.random.Generator) -> Draw:
    """Draw runs of which each resembles the one before it: AR(1)."""

    def draw(draws: int, runs: int) -> Array:
        noise = 0.02 * rng.standard_normal((draws, runs))
        for run in range(1, runs):
            fresh = math.sqrt(1 - correlation**2) * noise[:, run]
            noise[:, run] = correlation * noise[:, run - 1] + fresh
        return noise

    return draw


class Counts(NamedTuple):
    """Shares of draws: covered, called unclear, and one of both."""

    covered: float
    unclear: float
    either: float


def count_intervals(intervals: Iterator[Interval]) -> Counts:
    """Count how often intervals cover the truth, and how often they are called unclear."""
    found = [(each.low <= STEP_MS <= each.high, each.unclear is not None) for each in intervals]
    n = len(found)
    return Counts(
        sum(covered for covered, _ in found) / n,
        sum(unclear for _, unclear in found) / n,
        sum(covered or unclear for covered, unclear in found) / n,
    )


def count_trials(draw: Draw, draws: int, runs: int) -> Counts:
    """Draw trials, and count their intervals."""
    rows = (STEP_MS * np.exp(draw(draws, runs))).tolist()
    return count_intervals(median_interval(row) for row in rows)


def figures_of_trials(draws: int, rng: np.random.Generator) -> Iterator[Figure]:
    """Yield the coverage of the interval that stopping, tables and reports share."""
    for name, values in long_series().items():
        for runs in RUNS:
            found = count_trials(resampled(values, rng), draws, runs)
            what = f"recorded, LeNet {name}, n = {runs}"
            yield Figure(f"{what}: covered", found.covered, 0.93, 0.97)
            yield Figure(f"{what}: unclear", found.unclear, 0.0, 0.20)
    # At one half every value between the modes is a median, so there is no truth to cover.
    for share in (0.4, 0.25, 0.1):
        for runs in RUNS:
            found = count_trials(with_two_modes(share, rng), draws, runs)
            what = f"two modes, {share:.0%} slow, n = {runs}: covered or unclear"
            yield Figure(what, found.either, 0.93, 1.0, f"unclear {found.unclear:.2f}")
    for runs in RUNS:
        found = count_trials(with_memory(0.5, rng), draws, runs)
        what = f"AR(1) 0.5, n = {runs}: covered or unclear"
        yield Figure(what, found.either, 0.90, 1.0, f"unclear {found.unclear:.2f}")


def figures_of_occasions(draws: int, rng: np.random.Generator) -> Iterator[Figure]:
    """Yield the coverage where every day shifts a phone by 1 %."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for days in (2, 3, 4, 6):
        runs = 4
        times = [
            start + timedelta(days=day, minutes=run) for day in range(days) for run in range(runs)
        ]
        effects = np.repeat(rng.normal(0, 0.01, (draws, days)), runs, axis=1)
        rows = STEP_MS * np.exp(effects + rng.normal(0, 0.005, effects.shape))
        found = count_intervals(interval_over_occasions(row, times) for row in rows.tolist())
        yield Figure(
            f"occasion effect 1 %, {days} days: covered or unclear", found.either, 0.90, 1.0
        )
    covered = 0
    for _ in range(draws):
        base, other = np.exp(rng.normal(0, 0.01, (2, 1)) + rng.normal(0, 0.005, (2, 8)))
        pair = RunPair("p", base.tolist(), other.tolist(), same_occasion=False)
        estimate = estimate_log_ratio([pair])
        assert estimate is not None
        covered += abs(estimate.log_ratio) <= estimate.half_width(0.05)
    yield Figure("ratio of two days, occasion effect 1 %: covered", covered / draws, 0.90, 1.0)


def figures_of_ratios(draws: int, rng: np.random.Generator) -> Iterator[Figure]:
    """Yield coverage and family error of comparisons, and what pairing gains."""
    noises = {name: resampled(values, rng) for name, values in long_series().items()}
    for runs in (4, 5, 6, 8, 12, 20):
        for paired in (True, False):
            blocks = (range(runs), range(runs)) if paired else None
            how = "within blocks" if paired else "side with side"
            for name, draw in noises.items():
                covered, alarms = 0, 0
                for _ in range(max(1, draws // ROWS)):
                    sides = np.exp(draw(2 * ROWS, runs)).reshape(ROWS, 2, runs).tolist()
                    found = [estimate_log_ratio([RunPair("p", *side, blocks)]) for side in sides]
                    rows = [each for each in found if each is not None]
                    covered += sum(abs(row.log_ratio) <= row.half_width(0.05) for row in rows)
                    alarms += min(holm_correction([row.p_value() for row in rows])) <= 0.05
                tables = max(1, draws // ROWS)
                what = f"ratio {how}, {name}, n = {runs}"
                # Welch's test is cautious where few runs have outliers.
                yield Figure(f"{what}: covered", covered / tables / ROWS, 0.93, 0.985)
                yield Figure(f"{what}: family error of 20 rows", alarms / tables, 0.0, 0.06)
    widths: list[list[float]] = [[], []]
    for _ in range(draws):
        shared = rng.normal(0, 0.04, 8)
        base, other = np.exp(shared + rng.normal(0, 0.005, (2, 8))).tolist()
        for kept, blocks in zip(widths, ((range(8), range(8)), None), strict=True):
            estimate = estimate_log_ratio([RunPair("p", base, other, blocks)])
            assert estimate is not None
            kept.append(estimate.half_width(0.05))
    within, between = (float(np.median(kept)) for kept in widths)
    note = f"±{within:.1%} instead of ±{between:.1%}"
    yield Figure("blocks share noise: times narrower", between / within, 4.0, math.inf, note)


def figures_of_twins(draws: int, rng: np.random.Generator) -> Iterator[Figure]:
    """Yield how often two equal twins, each with its own model error, are distinguished."""
    ranked, compared = 0, 0
    deviation = model_deviation(TWIN)
    for _ in range(draws):
        errors = rng.normal(0, deviation, (2, 1))
        sides = STEP_MS * np.exp(errors + rng.normal(0, 0.005, (2, 5)))
        one, other = (widen_by_model(median_interval(side), TWIN) for side in sides.tolist())
        ranked += one.differs_from(other)
        estimate = estimate_log_ratio([RunPair("p", *sides.tolist())])
        assert estimate is not None
        whole = estimate.with_error(math.sqrt(2) * deviation, MODEL_FREEDOM)
        compared += abs(whole.log_ratio) > whole.half_width(0.05)
    yield Figure("equal twins: one called fastest", ranked / draws, 0.0, 0.05)
    yield Figure("equal twins: called faster or slower", compared / draws, 0.0, 0.05)


def all_figures(draws: int, seed: int) -> Iterator[Figure]:
    """Yield every figure."""
    rng = np.random.default_rng(seed)
    for figures in (figures_of_trials, figures_of_occasions, figures_of_ratios, figures_of_twins):
        yield from figures(draws, rng)


def main() -> int:
    """Print every figure with its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.draws} draws per line")
    missed = 0
    for figure in all_figures(options.draws, options.seed):
        print(figure.line, flush=True)
        missed += not figure.kept
    print(f"{missed} limits not kept" if missed else "every limit kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
