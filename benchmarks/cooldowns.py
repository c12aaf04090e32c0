"""How accurately the end of a cooldown is predicted, on simulated phones and on a recorded trace.

    python -m benchmarks.cooldowns

Phones of five models cool after loads of all lengths; each keeps what it learned. From the fourth
cooling on, the predictions after a tenth, a fifth and a half of the wait are compared with the
moment at which the phone really was as cool and as steady as requested. Every start that the rule
allows is checked against the requested temperature, by the simulation's own temperatures.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agent.phone.cooling_model import TempReading, fit_cooling, predict_time_to_cool
from agent.phone.phone_memory import CoolingHistory, cooling_section
from agent.phone.start_limit import find_start_limit
from agent.prepare.cooldown import CoolEnough, KeepWaiting, TempSample, decide_start
from agent.virtual.physics.heat_network import HeatNetwork
from agent.virtual.profiles import HeatProfile, load_profile
from benchmarks.phone_fits.measurements import load_measurements
from workloads.protocol.condition import Condition

MODELS = ("meizu-16t", "xiaomi-mi-9", "samsung-s8-plus", "google-pixel-8", "redmi-note-9-pro")
PHONES, COOLINGS = 10, 20
SEEDS = (1, 2, 3)
IDLE_W = (0.3, 0.5, 0.0)
SHARES = (0.1, 0.2, 0.5)
HISTORY = 3
TRACE_SHARES = (0.3, 0.4, 0.5, 0.6)
SENSOR_C, BODY_SENSOR_C = 0.08, 0.05
TRUE_TOLERANCE_C = 0.5  # a thermometer with 0.1 °C steps and noise is not more accurate


@dataclass
class Score:
    """The results of one study."""

    errors: dict[float, list[float]] = field(default_factory=lambda: {s: [] for s in SHARES})
    inside: list[bool] = field(default_factory=list)
    starts: int = 0
    outside_band: int = 0
    waits_s: list[float] = field(default_factory=list)


class ChainPhone:
    """A phone of one order more than the model: with a glass shell around the body."""

    def __init__(self, profile: HeatProfile, ambient_c: float) -> None:
        self._inner = HeatNetwork(profile, ambient_c)
        self._room_c = ambient_c
        self._shell_j_per_k, self._shell_k_per_w = 25.0, 0.8

    @property
    def ambient_c(self) -> float:
        """The temperature of the room."""
        return self._room_c

    @ambient_c.setter
    def ambient_c(self, value: float) -> None:
        self._room_c = value

    @property
    def temps(self) -> tuple[float, float, float]:
        """Die, body, battery."""
        return self._inner.temps

    def advance(self, seconds: float, watts: tuple[float, float, float]) -> None:
        """Let heat flow; the body is surrounded by the shell, which lags behind the room."""
        shell = self._inner.ambient_c
        given = (self._inner.temps[1] - shell) / 12.0
        taken = (shell - self._room_c) / self._shell_k_per_w
        self._inner.ambient_c = shell + (given - taken) * seconds / self._shell_j_per_k
        self._inner.advance(seconds, watts)


def phones(kind: str, rng: random.Random) -> Iterator[HeatNetwork | ChainPhone]:
    """Yield the phones of a study."""
    for number in range(PHONES):
        heat = load_profile(MODELS[number % len(MODELS)]).heat
        yield (
            ChainPhone(heat, 25.0)
            if kind == "higher order"
            else HeatNetwork(heat, 25.0, rng.gauss(1.0, 0.03))
        )


def cool(phone: HeatNetwork | ChainPhone, rng: random.Random) -> list[tuple[TempReading, float]]:
    """Load a phone, then let it rest; return a reading every 4 s with the true die temperature."""
    watts = rng.uniform(2.0, 6.0)
    for _ in range(rng.choice((10, 30, 120, 300, 600))):
        phone.advance(1.0, (watts + IDLE_W[0], IDLE_W[1], 0.05 * watts))
    trace = []
    for row in range(1500):
        die, body, _ = phone.temps
        reading = TempReading(
            4.0 * row,
            round(die + rng.gauss(0, SENSOR_C), 1),
            round(body + rng.gauss(0, BODY_SENSOR_C), 1),
        )
        trace.append((reading, die))
        phone.advance(4.0, IDLE_W)
    return trace


def true_cool_s(trace: Sequence[tuple[TempReading, float]], condition: Condition) -> float | None:
    """Return when the phone was cool and steady, by its true temperatures."""
    limit = condition.start_limit_c(None) or math.inf
    for (first, die), (later, after) in zip(trace, trace[4:], strict=False):
        slope = 60 * (after - die) / (later.t_s - first.t_s)
        if die <= limit and abs(slope) <= condition.start_slope_max_c_per_min:
            return first.t_s
    return None


def started_by_rule_s(
    trace: Sequence[tuple[TempReading, float]], condition: Condition
) -> float | None:
    """Return when the rule starts a run, with samples at the times that it requests."""
    samples: list[TempSample] = []
    start = find_start_limit(condition, True, None, None)
    next_s = 0.0
    for row, (reading, _) in enumerate(trace):
        if reading.t_s < next_s:
            continue
        samples.append(TempSample(reading.t_s, reading.temp_c))
        fit = fit_cooling(cooling_section([reading for reading, _ in trace[: row + 1]]))
        decision = decide_start(samples, 0.0, condition, fit, start)
        if isinstance(decision, CoolEnough):
            return reading.t_s
        if isinstance(decision, KeepWaiting):
            next_s = reading.t_s + min(decision.phone_s, 5.0)
    return None


def study(kind: str, seeds: Sequence[int] = SEEDS) -> Score:
    """Simulate two hundred coolings per seed."""
    score = Score()
    for seed in seeds:
        _cool_all(kind, random.Random(seed), score)
    return score


def _cool_all(kind: str, rng: random.Random, score: Score) -> None:
    for phone in phones(kind, rng):
        history = CoolingHistory()
        for cooling in range(COOLINGS):
            if kind == "drifting room":  # a day's swing of 4 °C
                phone.ambient_c = 25.0 + 2.0 * math.sin(cooling / 16)
            rest_c = phone.ambient_c + 4.0
            condition = Condition(start_temp_max_c=round(max(32.0, rest_c + 2.0), 1))
            trace = cool(phone, rng)
            cool_in_s = true_cool_s(trace, condition)
            if cool_in_s is None or cool_in_s < 30:
                continue
            if cooling >= HISTORY:
                _score_prediction(score, trace, cool_in_s, condition, history)
            for reading, _ in trace:
                if reading.t_s <= 1.05 * cool_in_s:
                    history.record(cooling * 1e5 + reading.t_s, reading.temp_c, reading.body_c)
            history.finish_trace()
            if cooling % 5 == 0:
                _score_start(score, trace, condition)


def _score_prediction(
    score: Score,
    trace: Sequence[tuple[TempReading, float]],
    cool_in_s: float,
    condition: Condition,
    history: CoolingHistory,
) -> None:
    score.waits_s.append(cool_in_s)
    limit, slope = condition.start_temp_max_c or 0.0, condition.start_slope_max_c_per_min
    for share in SHARES:
        part = [reading for reading, _ in trace if reading.t_s <= max(share * cool_in_s, 12)]
        fit = fit_cooling(part, history.posterior)
        prediction = predict_time_to_cool(fit, limit, slope) if fit else None
        remaining_s = cool_in_s - part[-1].t_s
        score.errors[share].append(
            abs(prediction.likely_s - remaining_s) / cool_in_s if prediction else 1.0
        )
        if share == 0.2 and prediction is not None:
            score.inside.append(prediction.earliest_s - 8 <= remaining_s <= prediction.latest_s + 8)


def _score_start(
    score: Score, trace: Sequence[tuple[TempReading, float]], condition: Condition
) -> None:
    started_s = started_by_rule_s(trace, condition)
    if started_s is None:
        return
    score.starts += 1
    die = next(die for reading, die in trace if reading.t_s == started_s)
    score.outside_band += die > (condition.start_temp_max_c or 0.0) + TRUE_TOLERANCE_C


def recorded_trace() -> Iterator[tuple[float, float, bool]]:
    """Predict a recorded trace: the S8+ of the EMDL study warms up; mirrored, that is a cooling.

    From some share of the trace (without the first 90 s, in which the battery does not react to
    the load yet), when does it reach the temperature that it had after four fifths? There is no
    second trace of this phone, so the prior is empty. Yields (share, error, in the interval).
    """
    rows = [(t, c) for t, c in load_measurements("samsung-s8-plus").battery_c if t >= 90]
    mirrored = [TempReading(t - 90, 60.0 - c) for t, c in rows]
    goal = next(r for r in mirrored if r.t_s >= 0.8 * mirrored[-1].t_s)
    for share in TRACE_SHARES:
        part = [r for r in mirrored if r.t_s <= share * mirrored[-1].t_s]
        fit = fit_cooling(part)
        prediction = predict_time_to_cool(fit, goal.temp_c) if fit else None
        remaining_s = goal.t_s - part[-1].t_s
        error = abs(prediction.likely_s - remaining_s) / goal.t_s if prediction else 1.0
        yield (
            share,
            error,
            prediction is not None and prediction.earliest_s <= remaining_s <= prediction.latest_s,
        )


def main() -> None:
    """Print the results of all studies."""
    heads = ("study", "n", "wait", "error after 1/10, 1/5, 1/2", "in interval", "starts outside")
    print("{:16} {:>4} {:>7}  {:>30}  {:>11}  {}".format(*heads))
    for kind in ("constant room", "drifting room", "higher order"):
        score = study(kind)
        medians = ", ".join(f"{statistics.median(score.errors[s]):.1%}" for s in SHARES)
        wait = f"{statistics.median(score.waits_s):.0f} s"
        inside = f"{statistics.mean(score.inside):.0%}"
        starts = f"{score.outside_band} of {score.starts}"
        print(f"{kind:16} {len(score.waits_s):4} {wait:>7}  {medians:>30}  {inside:>11}  {starts}")
    predictions = list(recorded_trace())
    for share, error, inside in predictions:
        where = "in" if inside else "outside"
        print(f"recorded S8+ trace, after {share:.0%} of it: {error:.1%} off, {where} the interval")
    print(
        f"recorded S8+ trace, median: {statistics.median(error for _, error, _ in predictions):.1%}"
    )


if __name__ == "__main__":
    main()
