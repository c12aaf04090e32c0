"""Estimates the end of a sweep as a distribution, by Monte Carlo. Pure.

A cycle of a phone lasts from the end of one attempt to the end of the next, with cooling and
charging in between. The durations of future cycles are estimated from past ones: of the same cell
on the same phone, else of the same cell on other phones, else of other cells; the interval widens
in this order. The duration of the current cycle is conditioned on the time that has passed. A
common factor makes all phones slower or faster. Cycles several times as long as usual are
interruptions, such as charging; their rate and length are drawn separately. Runs of other sweeps
that a phone executes first, or in turns, count as work of this sweep. The end of the sweep is that
of its last phone, so all phones are drawn together. While phones with remaining runs get no runs,
the end is unknown, and the reason is given.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import NormalDist, fmean, median
from typing import NamedTuple

# Spreads are standard deviations of logarithms; priors have a weight in observations.
DRAWS, DRAWS_MIN, PHONES_DRAWN = 200, 50, 20_000  # fewer draws for many phones
GAP_MAX = 10.0  # in usual durations; a longer pause between runs was an outage
RUN_SPREAD, RUN_SPREAD_WEIGHT = 0.25, 4.0  # prior: cycles of one cell on one phone
CELL_SPREAD = 0.6  # prior: a cell that no phone has run yet
PHONE_SPREAD = 0.2  # prior: a cell that only other phones have run
SPREAD_WEIGHT = 4.0  # weight of the two priors above
SHARE_SPREAD = 0.5  # the time that runs of another owner take
COMMON_SPREAD = 0.12  # the factor that is common to all phones
DRIFTS = (0.0, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)  # its variance per cycle: values to try
LEVEL_CYCLES, PAUSE_MAX = 400, 5.0  # cycles it is estimated from; longest pause it drifts in
RETRY_PRIOR = (0.05, 8.0)  # share of attempts that are repeated, and its weight
INTERRUPTED = 3.0  # in usual cycles; a longer cycle is an interruption
INTERRUPTION_PRIOR = (0.4, 25.0)  # number of interruptions, in this many cycles
INTERRUPTION_CYCLES, INTERRUPTION_SPREAD = 8.0, 1.0  # length in cycles, and its spread
AT_ONCE = 0.01  # in usual durations; a shorter attempt failed before it began
WAITS_MAX = 4.0  # longest rest of an interruption, relative to the time that has passed
OWN_WEIGHT = 2.0  # weight of the estimate from other phones, in cycles of this phone

NORMAL = NormalDist()
Cell = tuple[str, str]  # digests of case and condition


class EndedAttempt(NamedTuple):
    """An attempt that has ended: on which phone, what, and when."""

    phone: str
    cell: Cell
    started_s: float
    ended_s: float
    sweep: str = ""
    cooldown_s: float = 0.0  # after the start, until the phone was cool enough

    @property
    def duration_s(self) -> float:
        """From start to end."""
        return max(0.001, self.ended_s - self.started_s)


class CompetingWork(NamedTuple):
    """What another sweep has left on the same phones, and its runs per own run."""

    left: Mapping[str, Mapping[Cell, int]]
    weight: float  # infinite: all of its runs come first


@dataclass(frozen=True)
class SweepRest:
    """What is left of a sweep, and what is known about how long it takes."""

    now_s: float
    left: Mapping[str, Mapping[Cell, int]]  # runs by phone and cell
    ended: Sequence[EndedAttempt]  # of all sweeps, as far as they are remembered
    runs_done: int = 0  # that are not repeated
    attempts_lost: int = 0  # void or failed, and repeated
    absent: Mapping[str, str] = field(default_factory=dict)  # phones without runs now, and why
    others: Sequence[CompetingWork] = ()  # sweeps whose runs delay those of this one
    needed: tuple[float, float] = (1.0, 1.0)  # share of the runs left that a stop rule may leave
    since_s: float = -math.inf  # when the sweep was submitted
    running: Mapping[str, Cell] = field(default_factory=dict)  # by phone: what it does now


@dataclass(frozen=True)
class RemainingTime:
    """Seconds until the end: the median, and its 80 % interval, unless it is unknown."""

    likely_s: float
    early_s: float
    late_s: float
    phone: str  # expected to finish last
    finished: int  # ended attempts that the estimate is based on
    untimed: int = 0  # remaining runs of a cell of which none has ended yet
    unknown: str = ""  # why the end is unknown; the times are then those of the other phones

    def after(self, seconds: float) -> "RemainingTime":
        """Return the same estimate some seconds later."""
        early, likely, late = (
            max(0.0, value - seconds) for value in (self.early_s, self.likely_s, self.late_s)
        )
        return replace(self, early_s=early, likely_s=likely, late_s=late)


class _Work(NamedTuple):
    """What a phone has left: mean and variance in seconds, cycles and the sum of their squares,
    and the time that is a guess."""

    mean_s: float
    variance: float
    cycles: float
    squares: float
    guessed_s: float

    @property
    def cycle_spread(self) -> float:
        """How much the cycles differ, by what is known of their cells."""
        return math.sqrt(math.log(max(1.0, self.squares * self.cycles / self.mean_s**2)))

    def scaled(self, share: float, doubt: float = 0.0) -> "_Work":
        """Return a share of the work, which may also be more or less."""
        variance = share**2 * self.variance + (doubt * share * self.mean_s) ** 2
        others = (self.cycles, self.squares, self.guessed_s)
        return _Work(share * self.mean_s, variance, *(share * each for each in others))

    def plus(self, other: "_Work") -> "_Work":
        """Return this work and another."""
        return _Work(*(mine + its for mine, its in zip(self, other, strict=True)))


NO_WORK = _Work(0.0, 0.0, 0.0, 0.0, 0.0)


def estimate_remaining(rest: SweepRest) -> RemainingTime | None:
    """Estimate the remaining time; None until an attempt has ended."""
    history = _CycleHistory(rest.ended)
    left = {phone: cells for phone, cells in rest.left.items() if any(cells.values())}
    unknown = _why_unknown(rest.absent, left)
    if not history.count:
        return RemainingTime(0.0, 0.0, 0.0, "", 0, 0, unknown) if unknown else None
    present = {phone: cells for phone, cells in left.items() if phone not in rest.absent}
    if not present:
        return RemainingTime(0.0, 0.0, 0.0, "", history.count, 0, unknown)
    works = {phone: _phone_rest(history, phone, cells, rest) for phone, cells in present.items()}
    likely, early, late, last = _draw_ends(rest, history, works)
    untimed = sum(
        runs
        for cells in present.values()
        for cell, runs in cells.items()
        if cell not in history.cells
    )
    return RemainingTime(likely, early, late, last, history.count, untimed, unknown)


class _PhoneRest(NamedTuple):
    """What a phone has left: the cycle under way, and its work after that."""

    log_s: float  # expected logarithm of the cycle under way
    error: float
    elapsed_s: float
    own: _Work
    taken: _Work  # by other sweeps, until the last own run has ended


def _phone_rest(
    history: "_CycleHistory", phone: str, cells: Mapping[Cell, int], rest: SweepRest
) -> _PhoneRest:
    """Return what a phone has left to do, for this sweep and for others."""
    running = rest.running.get(phone)
    lefts = [cells, *(other.left.get(phone, {}) for other in rest.others)]
    place = next((at for at, left in enumerate(lefts) if running and left.get(running)), None)
    if running is not None and place is not None:
        log_s, error, _ = history.cycle(phone, running)
        lefts[place] = {**lefts[place], running: lefts[place][running] - 1}
    own, taken = history.work(phone, lefts[0]), NO_WORK
    for other, left in zip(rest.others, lefts[1:], strict=True):
        work = history.work(phone, left)
        if math.isinf(other.weight):
            taken = taken.plus(work)
        elif work.mean_s:  # sweeps of two owners take turns, depending on what both used before
            share = min(1.0, other.weight * own.mean_s / work.mean_s)
            taken = taken.plus(work.scaled(share, SHARE_SPREAD))
    if place is None:  # which cycle is under way is not known
        both = own.plus(taken)
        log_s, error = math.log(both.mean_s / both.cycles), both.cycle_spread
        own, taken = (each.scaled(max(0.0, 1.0 - 1.0 / both.cycles)) for each in (own, taken))
    return _PhoneRest(log_s, error, history.elapsed_s(phone, rest.now_s, rest.since_s), own, taken)


def needed_share(stop: tuple[int, int] | None, done: int, skipped: int) -> tuple[float, float]:
    """Return which share of the runs left a stop rule will need: the least and the most."""
    if stop is None:
        return 1.0, 1.0
    if not skipped:
        return stop[0] / stop[1], 1.0
    share = done / (done + skipped)
    return max(stop[0] / stop[1], share - 0.2), min(1.0, share + 0.2)


def _why_unknown(absent: Mapping[str, str], left: Mapping[str, object]) -> str:
    """Return how many phones with remaining runs get none now, by reason."""
    reasons = Counter(why for phone, why in absent.items() if phone in left)
    return ", ".join(
        f"{count} phone{'s' * (count != 1)} {why}" for why, count in sorted(reasons.items())
    )


class _DrawnLab(NamedTuple):
    """What all phones share in one draw."""

    level: float  # logarithm of how much slower the lab is
    doubt: float  # how much wider cycles spread than was seen
    needed: float  # share of the own runs
    repeats: float  # attempts that are lost, per run
    rate: float  # interruptions per cycle


def _draw_ends(
    rest: SweepRest, history: "_CycleHistory", works: Mapping[str, _PhoneRest]
) -> tuple[float, float, float, str]:
    """Draw the end of all phones together; return median, 10 %, 90 % and the last phone."""
    rng = random.Random(0)  # the same data give the same estimate
    labs = _draw_labs(rest, history, works, rng)
    draws = max(DRAWS_MIN, min(DRAWS, PHONES_DRAWN // len(works)))
    ends, lasts = [], Counter[str]()
    for lab in islice(labs, draws):
        end_s, phone = max(
            (_draw_phone(work, lab, history, rng), name) for name, work in works.items()
        )
        ends.append(end_s)
        lasts[phone] += 1
    ends.sort()
    early, likely, late = (ends[round(share * (draws - 1))] for share in (0.1, 0.5, 0.9))
    return likely, early, late, lasts.most_common(1)[0][0]


def _draw_labs(
    rest: SweepRest,
    history: "_CycleHistory",
    works: Mapping[str, _PhoneRest],
    rng: random.Random,
) -> Iterator[_DrawnLab]:
    """Draw what all phones share, from what the lab has shown so far."""
    times_s = [work.own.mean_s + work.taken.mean_s for work in works.values()]
    guessed_s = sum(work.own.guessed_s + work.taken.guessed_s for work in works.values())
    guessed = guessed_s / sum(times_s) if guessed_s else 0.0
    common = math.hypot(COMMON_SPREAD, CELL_SPREAD * guessed / 2)
    levels, weights = history.levels(max(times_s))
    share, weight = RETRY_PRIOR
    attempts = rest.runs_done + rest.attempts_lost
    lasting = max(0.0, rest.attempts_lost - attempts * history.short / history.count)
    lost = (lasting + share * weight, rest.runs_done + (1 - share) * weight)
    events, cycles = INTERRUPTION_PRIOR
    while True:
        level, error = rng.choices(levels, weights)[0]
        repeated = min(0.8, rng.betavariate(*lost))
        yield _DrawnLab(
            rng.gauss(level, math.hypot(common, error)),
            math.sqrt(history.degrees / rng.gammavariate(history.degrees / 2, 2.0)),
            rng.uniform(*rest.needed),
            repeated / (1.0 - repeated),
            rng.gammavariate(len(history.excess_s) + events, 1.0 / (history.count + cycles)),
        )


def _draw_phone(
    left: _PhoneRest, lab: _DrawnLab, history: "_CycleHistory", rng: random.Random
) -> float:
    """Draw the time until a phone has ended its runs: the one under way, and those after it."""
    work, after_s = left.own.scaled(lab.needed).plus(left.taken), 0.0
    if work.cycles:
        spread = lab.doubt * math.sqrt(math.log1p(work.variance / work.mean_s**2))
        after_s = work.mean_s * math.exp(lab.level + rng.gauss(-(spread**2) / 2, spread))
        after_s += history.draw_interruptions(work, lab.rate, rng)
    log_s = left.log_s + lab.level
    end_s = after_s + _draw_current(
        log_s, lab.doubt * math.hypot(left.error, history.spread), left.elapsed_s, lab.rate, rng
    )
    cycles = work.cycles + 1.0
    due = rng.expovariate(1.0)
    while due < lab.repeats * cycles:
        end_s += (after_s + math.exp(log_s)) / cycles
        due += rng.expovariate(1.0)
    return end_s


def _draw_current(
    log_s: float, spread: float, elapsed_s: float, rate: float, rng: random.Random
) -> float:
    """Draw how much longer the cycle under way takes, which has not ended so far.

    It is a usual one, or one that is interrupted: the longer it has taken, the more likely the
    latter, and the longer it may still take.
    """
    cycle_s = math.exp(log_s)
    over_s, scale_s = max(0.0, elapsed_s - cycle_s), INTERRUPTION_CYCLES * cycle_s
    usual = 0.5 * math.erfc((math.log(max(elapsed_s, 1e-9)) - log_s) / spread / math.sqrt(2.0))
    interrupted = rate * (1.0 + over_s / scale_s) ** -2
    if rng.random() * (usual + interrupted) < interrupted:
        waits = min(WAITS_MAX, 1.0 / math.sqrt(1.0 - rng.random()) - 1.0)
        return max(0.0, cycle_s - elapsed_s) + (scale_s + over_s) * waits
    above = min(1.0 - 1e-12, max(1e-300, usual * (1.0 - rng.random())))
    return max(0.0, math.exp(log_s - spread * NORMAL.inv_cdf(above)) - elapsed_s)


def _spread(differences: Sequence[float], free: int, before: float) -> float:
    """Return how much the lab's own values differ; `before` is assumed until enough have ended."""
    squares = sum(each**2 for each in differences) + SPREAD_WEIGHT * before**2
    return math.sqrt(squares / (free + SPREAD_WEIGHT))


def _without_failed_at_once(ended: Sequence[EndedAttempt]) -> list[EndedAttempt]:
    """Return the attempts in order, without those that failed before they began."""
    durations: dict[Cell | str, list[float]] = {}
    for item in ended:
        for key in (item.cell, item.cell[1]):
            durations.setdefault(key, []).append(item.duration_s)
    usual_s = {key: sorted(values)[3 * len(values) // 4] for key, values in durations.items()}
    lasting = [
        item
        for item in ended
        if item.duration_s >= AT_ONCE * max(usual_s[item.cell], usual_s[item.cell[1]] / 5)
    ]
    return sorted(lasting, key=lambda item: item.ended_s)


class _CycleHistory:
    """The cycles of a sweep's phones, and how long further ones are expected to take."""

    def __init__(self, ended: Sequence[EndedAttempt]) -> None:
        lasting = _without_failed_at_once(ended)
        self.count, self.short = len(ended), len(ended) - len(lasting)
        self.last: dict[str, float] = {}
        usual_s = median(item.duration_s for item in lasting) if lasting else 0.0
        cycles: dict[tuple[str, Cell], list[float]] = {}
        self._timeline: list[tuple[float, str, Cell, float]] = []
        begun: set[tuple[str, str]] = set()
        for item in lasting:
            is_first = (item.phone, item.sweep) not in begun  # the lab may have been idle before
            begun.add((item.phone, item.sweep))
            since = item.started_s if is_first else self.last[item.phone]
            gap_s = min(max(0.0, item.started_s - since), GAP_MAX * max(usual_s, item.duration_s))
            cycle_s = item.duration_s + gap_s
            self.last[item.phone] = item.ended_s
            cycles.setdefault((item.phone, item.cell), []).append(cycle_s)
            self._timeline.append((item.ended_s, item.phone, item.cell, cycle_s))
        usual = self._take_out_interruptions(cycles)
        means = {key: fmean(values) for key, values in usual.items()}
        self._own = {key: (math.log(means[key]), len(values)) for key, values in usual.items()}
        residuals = [
            (value / means[key] - 1.0) ** 2 for key, values in usual.items() for value in values
        ]
        degrees = max(0, len(residuals) - len(usual))
        weighted = sum(residuals) + RUN_SPREAD_WEIGHT * RUN_SPREAD**2
        self.degrees = degrees + RUN_SPREAD_WEIGHT
        self.spread = math.sqrt(math.log1p(weighted / self.degrees))
        self._fit_effects()

    def _take_out_interruptions(
        self, cycles: Mapping[tuple[str, Cell], Sequence[float]]
    ) -> dict[tuple[str, Cell], list[float]]:
        """Return the usual cycles; what is far above them is kept as an excess.

        An attempt that failed at once does not predict others, and its time is negligible.
        """
        of_cell: dict[Cell, list[float]] = {}
        for (_, cell), values in cycles.items():
            of_cell.setdefault(cell, []).extend(values)
        of_condition: dict[str, list[float]] = {}
        for (_, condition), values in of_cell.items():
            of_condition.setdefault(condition, []).extend(values)
        self.excess_s: list[float] = []
        usual: dict[tuple[str, Cell], list[float]] = {}
        for key, values in cycles.items():
            known = values if len(values) > 2 else of_cell[key[1]]
            usual_s = median(known if len(known) > 2 else of_condition[key[1][1]])
            lasting = [value for value in values if value * INTERRUPTED >= usual_s]
            self.short += len(values) - len(lasting)
            self.excess_s += [value - usual_s for value in lasting if value > INTERRUPTED * usual_s]
            usual[key] = [
                min(value, usual_s) if value > INTERRUPTED * usual_s else value for value in lasting
            ] or [usual_s]
        return usual

    def draw_interruptions(self, work: _Work, rate: float, rng: random.Random) -> float:
        """Draw how long a phone will be interrupted during the cycles that it has left."""
        total_s, due = 0.0, rng.expovariate(1.0)
        while due < rate * work.cycles:
            usual_s = INTERRUPTION_CYCLES * work.mean_s / work.cycles
            guess_s = rng.lognormvariate(math.log(usual_s), INTERRUPTION_SPREAD)
            seen = self.excess_s
            total_s += rng.choice([*seen[-50:], guess_s]) if seen else guess_s
            due += rng.expovariate(1.0)
        return total_s

    def _fit_effects(self) -> None:
        """Split the logarithms of cycles into an effect of the cell and one of the phone."""
        by_cell: dict[Cell, list[tuple[str, float]]] = {}
        for (phone, cell), (mean, _) in self._own.items():
            by_cell.setdefault(cell, []).append((phone, mean))
        self.cells = {cell: fmean(mean for _, mean in rows) for cell, rows in by_cell.items()}
        self._phones: dict[str, float] = {}
        for _ in range(2):  # alternating, because phones have run different cells
            differences: dict[str, list[float]] = {}
            for (phone, cell), (mean, _) in self._own.items():
                differences.setdefault(phone, []).append(mean - self.cells[cell])
            self._phones = {
                phone: sum(values) / (len(values) + 1) for phone, values in differences.items()
            }
            self.cells = {
                cell: fmean(mean - self._phones[phone] for phone, mean in rows)
                for cell, rows in by_cell.items()
            }
        found = [
            mean - self.cells[cell] - self._phones[phone]
            for (phone, cell), (mean, _) in self._own.items()
        ]
        of_phone: dict[tuple[str, str], list[float]] = {}
        for (phone, cell), error in zip(self._own, found, strict=True):
            of_phone.setdefault((phone, cell[1]), []).append(error)
        self._alike = {key: sum(values) / (len(values) + 1) for key, values in of_phone.items()}
        free = max(0, len(found) - len(self.cells) - len(self._phones))
        self._phone_spread = _spread(found, free, PHONE_SPREAD)
        self._of_condition: dict[str, list[float]] = {}
        for (_, condition), effect in self.cells.items():
            self._of_condition.setdefault(condition, []).append(effect)

    def levels(self, ahead_s: float) -> tuple[list[tuple[float, float]], list[float]]:
        """Return how much slower the lab will be than on average, with its error, as logarithms.

        One answer for each speed at which this may drift, and the likelihood of that speed by all
        cycles so far (a Kalman filter of a random walk).
        """
        usual_s = median(cycle_s for *_, cycle_s in self._timeline)
        residuals = []
        for ended_s, phone, cell, cycle_s in self._timeline[-LEVEL_CYCLES:]:
            expected_s = math.exp(self.cells[cell] + self._phones[phone])
            if expected_s < INTERRUPTED * cycle_s < INTERRUPTED**2 * expected_s:
                # The mean of logarithms is below the logarithm of the mean by half a variance.
                residual = math.log(cycle_s / expected_s) + self.spread**2 / 2
                residuals.append((ended_s / usual_s, residual))
        noise = self.spread**2 + self._phone_spread**2
        levels, scores = [], []
        for drift in DRIFTS:
            level, error, score, last = 0.0, COMMON_SPREAD**2, 0.0, math.inf
            for at, residual in residuals:
                error += drift * max(0.0, min(PAUSE_MAX, at - last))
                last, total = at, error + noise
                score -= 0.5 * (math.log(total) + (residual - level) ** 2 / total)
                level += error / total * (residual - level)
                error *= noise / total
            levels.append((level, math.sqrt(error + drift * ahead_s / usual_s / 3)))
            scores.append(score)
        return levels, [math.exp(score - max(scores)) for score in scores]

    def elapsed_s(self, phone: str, now_s: float, since_s: float) -> float:
        """Return how long ago the last cycle of a phone ended, or the sweep began."""
        last = max(self.last.get(phone, -math.inf), since_s)
        return max(0.0, now_s - last) if math.isfinite(last) else 0.0

    def work(self, phone: str, left: Mapping[Cell, int]) -> _Work:
        """Return how long a phone needs for the runs that it has left."""
        mean_s = variance = squares = guessed_s = shared_error = 0.0
        for cell, runs in left.items():
            log_s, error, is_guess = self.cycle(phone, cell)
            cycle_s = math.exp(log_s)
            mean_s += runs * cycle_s
            squares += runs * cycle_s**2
            variance += runs * (self.spread * cycle_s) ** 2 + (runs * error * cycle_s) ** 2
            guessed_s += runs * cycle_s * is_guess
            if (phone, cell) not in self._own:  # such errors of one phone are alike
                shared_error += runs * error * cycle_s
        cycles = sum(left.values())
        return _Work(mean_s, variance + shared_error**2 / 2, cycles, squares, guessed_s)

    def cycle(self, phone: str, cell: Cell) -> tuple[float, float, bool]:
        """Return the expected logarithm of a cycle, its error, and whether no phone has run it."""
        effect = self._phones.get(phone, 0.0) + self._alike.get((phone, cell[1]), 0.0)
        own = self._own.get((phone, cell))
        if own is not None:
            mean, count = own
            share = count / (count + OWN_WEIGHT * (self.spread / self._phone_spread) ** 2 / 2)
            log_s = share * mean + (1 - share) * (self.cells[cell] + effect)
            return log_s, self.spread / math.sqrt(count + 1), False
        if cell in self.cells:
            return self.cells[cell] + effect, math.hypot(self._phone_spread, self.spread / 2), False
        known = self._of_condition.get(cell[1]) or list(self.cells.values())
        centre = fmean(known)
        differences = [value - centre for value in known]
        return centre + effect, _spread(differences, len(known) - 1, CELL_SPREAD), True
