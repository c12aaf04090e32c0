"""How well the end of a cooldown is foretold, on simulated phones and on a recorded trace.

    python -m benchmarks.cooldowns

Phones of five models cool after loads of all lengths; each keeps what it learned. From the fourth
cooling on, the prediction that is made after a tenth, a fifth and a half of the wait is held
against the moment at which the phone really was as cool and as steady as asked. Every start that
the rule allows is held against the band, by the simulation's own temperatures.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agent.control.cooldown import Look, Ready, Wait, decide
from agent.phone.memory import HeatMemory, cooling_part
from agent.virtual.physics.heat import HeatNetwork
from agent.virtual.profiles import HeatProfile, load_profile
from agent.virtual.twin.measured import measured_on
from workloads.condition import Condition
from workloads.heat import Reading, fit_cooling, predict_ready

MODELS = ("meizu-16t", "xiaomi-mi-9", "samsung-s8-plus", "google-pixel-8", "redmi-note-9-pro")
PHONES, COOLINGS = 10, 20
SEEDS = (1, 2, 3)
IDLE_W = (0.3, 0.5, 0.0)
SHARES = (0.1, 0.2, 0.5)
HISTORY = 3
TRACE_SHARES = (0.3, 0.4, 0.5, 0.6)
SENSOR_C, BODY_SENSOR_C = 0.08, 0.05
TRUE_SLACK_C = 0.5  # what a thermometer of 0.1 °C steps with noise cannot know


@dataclass
class Score:
    """What one study came to."""

    errors: dict[float, list[float]] = field(default_factory=lambda: {s: [] for s in SHARES})
    inside: list[bool] = field(default_factory=list)
    starts: int = 0
    outside_band: int = 0
    waits_s: list[float] = field(default_factory=list)


class ChainPhone:
    """A phone of one order more than any model here: a shell of glass around the body."""

    def __init__(self, profile: HeatProfile, ambient_c: float) -> None:
        self._inner = HeatNetwork(profile, ambient_c)
        self._room_c = ambient_c
        self._shell_j_per_k, self._shell_k_per_w = 25.0, 0.8

    @property
    def ambient_c(self) -> float:
        """The air of the room."""
        return self._room_c

    @ambient_c.setter
    def ambient_c(self, value: float) -> None:
        self._room_c = value

    @property
    def temps(self) -> tuple[float, float, float]:
        """Die, body, battery."""
        return self._inner.temps

    def advance(self, seconds: float, watts: tuple[float, float, float]) -> None:
        """Let heat flow; the air that the body feels is the shell, which lags behind the room."""
        shell = self._inner.ambient_c
        given = (self._inner.temps[1] - shell) / 12.0
        taken = (shell - self._room_c) / self._shell_k_per_w
        self._inner.ambient_c = shell + (given - taken) * seconds / self._shell_j_per_k
        self._inner.advance(seconds, watts)


def phones(kind: str, dice: random.Random) -> Iterator[HeatNetwork | ChainPhone]:
    """The phones of a study."""
    for at in range(PHONES):
        heat = load_profile(MODELS[at % len(MODELS)]).heat
        yield (
            ChainPhone(heat, 25.0)
            if kind == "higher order"
            else HeatNetwork(heat, 25.0, dice.gauss(1.0, 0.03))
        )


def cool(phone: HeatNetwork | ChainPhone, dice: random.Random) -> list[tuple[Reading, float]]:
    """Work for a while, then rest; answer what was read each 4 s, and the truth beside it."""
    watts = dice.uniform(2.0, 6.0)
    for _ in range(dice.choice((10, 30, 120, 300, 600))):
        phone.advance(1.0, (watts + IDLE_W[0], IDLE_W[1], 0.05 * watts))
    seen = []
    for at in range(1500):
        die, body, _ = phone.temps
        reading = Reading(
            4.0 * at,
            round(die + dice.gauss(0, SENSOR_C), 1),
            round(body + dice.gauss(0, BODY_SENSOR_C), 1),
        )
        seen.append((reading, die))
        phone.advance(4.0, IDLE_W)
    return seen


def true_ready_s(seen: Sequence[tuple[Reading, float]], condition: Condition) -> float | None:
    """When the phone really was in the band, by its true temperatures."""
    limit = condition.start_temp_max_c or math.inf
    for (first, die), (later, after) in zip(seen, seen[4:], strict=False):
        slope = 60 * (after - die) / (later.t_s - first.t_s)
        if die <= limit and abs(slope) <= condition.start_slope_max_c_per_min:
            return first.t_s
    return None


def let_go_s(seen: Sequence[tuple[Reading, float]], condition: Condition) -> float | None:
    """When the rule lets a run start, looking as often as it wants to."""
    looks: list[Look] = []
    next_s = 0.0
    for at, (reading, _) in enumerate(seen):
        if reading.t_s < next_s:
            continue
        looks.append(Look(reading.t_s, reading.temp_c))
        fit = fit_cooling(cooling_part([each for each, _ in seen[: at + 1]]))
        decision = decide(looks, 0.0, condition, fit)
        if isinstance(decision, Ready):
            return reading.t_s
        if isinstance(decision, Wait):
            next_s = reading.t_s + min(decision.phone_s, 5.0)
    return None


def study(kind: str, seeds: Sequence[int] = SEEDS) -> Score:
    """Two hundred coolings a seed."""
    score = Score()
    for seed in seeds:
        _cool_all(kind, random.Random(seed), score)
    return score


def _cool_all(kind: str, dice: random.Random, score: Score) -> None:
    for phone in phones(kind, dice):
        memory = HeatMemory()
        for cooling in range(COOLINGS):
            if kind == "drifting room":  # a day's swing of 4 °C
                phone.ambient_c = 25.0 + 2.0 * math.sin(cooling / 16)
            rest_c = phone.ambient_c + 4.0
            condition = Condition(start_temp_max_c=round(max(32.0, rest_c + 2.0), 1))
            seen = cool(phone, dice)
            ready_s = true_ready_s(seen, condition)
            if ready_s is None or ready_s < 30:
                continue
            if cooling >= HISTORY:
                _score_prediction(score, seen, ready_s, condition, memory)
            for reading, _ in seen:
                if reading.t_s <= 1.05 * ready_s:
                    memory.record(cooling * 1e5 + reading.t_s, reading.temp_c, reading.body_c)
            memory.disturbed()
            if cooling % 5 == 0:
                _score_start(score, seen, condition)


def _score_prediction(
    score: Score,
    seen: Sequence[tuple[Reading, float]],
    ready_s: float,
    condition: Condition,
    memory: HeatMemory,
) -> None:
    score.waits_s.append(ready_s)
    limit, slope = condition.start_temp_max_c or 0.0, condition.start_slope_max_c_per_min
    for share in SHARES:
        part = [reading for reading, _ in seen if reading.t_s <= max(share * ready_s, 12)]
        fit = fit_cooling(part, memory.known)
        ready = predict_ready(fit, limit, slope) if fit else None
        left_s = ready_s - part[-1].t_s
        score.errors[share].append(abs(ready.likely_s - left_s) / ready_s if ready else 1.0)
        if share == 0.2 and ready is not None:
            score.inside.append(ready.earliest_s - 8 <= left_s <= ready.latest_s + 8)


def _score_start(score: Score, seen: Sequence[tuple[Reading, float]], condition: Condition) -> None:
    started_s = let_go_s(seen, condition)
    if started_s is None:
        return
    score.starts += 1
    die = next(die for reading, die in seen if reading.t_s == started_s)
    score.outside_band += die > (condition.start_temp_max_c or 0.0) + TRUE_SLACK_C


def recorded_trace() -> Iterator[tuple[float, float, bool]]:
    """The S8+ of the EMDL study warms up; upside down it is a cooling.

    From some share of the trace (less the first minute and a half, in which the battery has not
    felt the load yet), when does it reach what it reached after four fifths of it? There is no
    second trace of this phone, so nothing is known from before. (share, error, in the interval)
    """
    rows = [(t, c) for t, c in measured_on("samsung-s8-plus").battery_c if t >= 90]
    fallen = [Reading(t - 90, 60.0 - c) for t, c in rows]
    goal = next(r for r in fallen if r.t_s >= 0.8 * fallen[-1].t_s)
    for share in TRACE_SHARES:
        part = [r for r in fallen if r.t_s <= share * fallen[-1].t_s]
        fit = fit_cooling(part)
        ready = predict_ready(fit, goal.temp_c) if fit else None
        left_s = goal.t_s - part[-1].t_s
        error = abs(ready.likely_s - left_s) / goal.t_s if ready else 1.0
        yield share, error, ready is not None and ready.earliest_s <= left_s <= ready.latest_s


def main() -> None:
    """Print all studies."""
    heads = ("study", "n", "wait", "error after 1/10, 1/5, 1/2", "in interval", "starts outside")
    print("{:16} {:>4} {:>7}  {:>30}  {:>11}  {}".format(*heads))
    for kind in ("constant room", "drifting room", "higher order"):
        score = study(kind)
        medians = ", ".join(f"{statistics.median(score.errors[s]):.1%}" for s in SHARES)
        wait = f"{statistics.median(score.waits_s):.0f} s"
        inside = f"{statistics.mean(score.inside):.0%}"
        starts = f"{score.outside_band} of {score.starts}"
        print(f"{kind:16} {len(score.waits_s):4} {wait:>7}  {medians:>30}  {inside:>11}  {starts}")
    found = list(recorded_trace())
    for share, error, inside in found:
        where = "in" if inside else "outside"
        print(f"recorded S8+ trace, after {share:.0%} of it: {error:.1%} off, {where} the interval")
    print(f"recorded S8+ trace, median: {statistics.median(error for _, error, _ in found):.1%}")


if __name__ == "__main__":
    main()
