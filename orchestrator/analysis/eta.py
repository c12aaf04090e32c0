"""Estimates when a sweep will be finished, as a distribution over what is uncertain. Pure.

A phone works in cycles: from the end of one attempt to the end of the next, with cooling and
charging in between. How long the next cycles take is known from the lab's last ones: best from the
same cell on the same phone, then from the same cell on other phones, then from other cells. The
less is known, the wider the interval. A cycle that already takes longer than usual is expected to
continue for about as long again. Cycles several times as long as usual are interruptions, such as
charging: how often they come and how long they last is drawn separately. Runs of other sweeps that
a phone does first, or in turns, are work like the sweep's own. The last phone decides, so ends are
drawn for all phones at once. Phones that get no runs have no end: then it is unknown, and the
reason is said.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import NamedTuple

DRAWS, DRAWS_MIN, PHONES_DRAWN = 200, 50, 20_000  # many phones are drawn less often
GAP_MAX = 10.0  # a longer pause between runs, in usual durations, was an outage
RUN_SPREAD, RUN_SPREAD_WEIGHT = 0.25, 4.0  # of one cycle, until this many have shown their own
CELL_SPREAD = 0.6  # of a cell that no phone has run, until the lab has shown its own
PHONE_SPREAD = 0.2  # of a cell that only other phones have run, likewise
SPREAD_WEIGHT = 4.0  # of these two, in values
SHARE_SPREAD = 0.5  # of the time that the runs of another owner take
COMMON_SPREAD = 0.1  # of whatever slows all phones at once, until past errors show it
PAST_SHARES, PAST_MIN, PAST_MAX = (0.4, 0.55, 0.7, 0.85), 12, 400  # when the past is estimated
RETRY_PRIOR = (0.05, 8.0)  # share of attempts that are repeated, and its weight in attempts
INTERRUPTED = 3.0  # times the usual cycle
INTERRUPTION_PRIOR = (0.8, 25.0)  # events, in so many cycles
INTERRUPTION_CYCLES, INTERRUPTION_SPREAD = 8.0, 1.0  # usual length in cycles, and its spread
OWN_WEIGHT = 2.0  # of the estimate from other phones, in own cycles

Cell = tuple[str, str]  # digests of case and condition


class EndedAttempt(NamedTuple):
    """An attempt that has ended: on which phone, what, and when."""

    phone: str
    cell: Cell
    started_s: float
    ended_s: float
    sweep: str = ""


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
    works = {
        phone: _with_others(history, phone, history.work(phone, cells), rest.others)
        for phone, cells in present.items()
    }
    likely, early, late, last = _draw_ends(rest, history, works)
    untimed = sum(
        runs
        for cells in present.values()
        for cell, runs in cells.items()
        if cell not in history.cells
    )
    return RemainingTime(likely, early, late, last, history.count, untimed, unknown)


def _with_others(
    history: "_CycleHistory", phone: str, own: _Work, others: Sequence[CompetingWork]
) -> tuple[_Work, _Work]:
    """Return the work of a phone: its own, and what it does for other sweeps until that ends."""
    taken = NO_WORK
    for other in others:
        work = history.work(phone, other.left.get(phone, {}))
        if math.isinf(other.weight):
            taken = taken.plus(work)
        elif work.mean_s:  # sweeps of two owners take turns, depending on what both used before
            share = min(1.0, other.weight * own.mean_s / work.mean_s)
            taken = taken.plus(work.scaled(share, SHARE_SPREAD))
    return own, taken


def needed_share(stop: tuple[int, int] | None, done: int, skipped: int) -> tuple[float, float]:
    """Return which share of the runs left a stop rule will need: the least and the most."""
    if stop is None:
        return 1.0, 1.0
    if not skipped:
        return stop[0] / stop[1], 1.0
    share = done / (done + skipped)
    return max(stop[0] / stop[1], share - 0.2), min(1.0, share + 0.2)


def _why_unknown(absent: Mapping[str, str], left: Mapping[str, object]) -> str:
    """Say how many phones with runs left get none now, by reason."""
    reasons = Counter(why for phone, why in absent.items() if phone in left)
    return ", ".join(
        f"{count} phone{'s' * (count != 1)} {why}" for why, count in sorted(reasons.items())
    )


def _draw_ends(
    rest: SweepRest, history: "_CycleHistory", works: Mapping[str, tuple[_Work, _Work]]
) -> tuple[float, float, float, str]:
    """Draw the end of all phones together; return median, 10 %, 90 % and the last phone."""
    rng = random.Random(0)  # the same data give the same estimate
    elapsed_s = {phone: history.elapsed_s(phone, rest.now_s, rest.since_s) for phone in works}
    total_s = sum(own.mean_s + taken.mean_s for own, taken in works.values())
    guessed_s = sum(own.guessed_s + taken.guessed_s for own, taken in works.values())
    guessed = guessed_s / total_s if total_s else 0.0
    errors = _past_errors(rest.ended)
    common = _spread(errors, len(errors), COMMON_SPREAD)
    common = math.hypot(common, CELL_SPREAD * guessed / 2)
    share, weight = RETRY_PRIOR
    attempts = rest.runs_done + rest.attempts_lost
    lasting = max(0.0, rest.attempts_lost - attempts * history.short / history.count)
    lost = (lasting + share * weight, rest.runs_done + (1 - share) * weight)
    draws = max(DRAWS_MIN, min(DRAWS, PHONES_DRAWN // len(works)))
    ends, lasts = [], Counter[str]()
    events, cycles = INTERRUPTION_PRIOR
    for _ in range(draws):
        rate = rng.gammavariate(len(history.excess_s) + events, 1.0 / (history.count + cycles))
        retry = 1.0 / (1.0 - min(0.8, rng.betavariate(*lost)))
        factor, needed = retry * math.exp(rng.gauss(0.0, common)), rng.uniform(*rest.needed)
        end_s, phone = 0.0, ""
        for name, (own, taken) in works.items():
            work = own.scaled(needed).plus(taken)
            drawn_s = _draw_phone(work, history.spread, factor, elapsed_s[name], rng)
            drawn_s += history.draw_interruptions(work, rate, rng)
            end_s, phone = max((end_s, phone), (drawn_s, name))
        ends.append(end_s)
        lasts[phone] += 1
    ends.sort()
    early, likely, late = (ends[round(share * (draws - 1))] for share in (0.1, 0.5, 0.9))
    return likely, early, late, lasts.most_common(1)[0][0]


def _draw_phone(
    work: _Work, spread: float, factor: float, elapsed_s: float, rng: random.Random
) -> float:
    """Draw the time until a phone has ended its runs, of which one has run for some time."""
    mean_s = work.mean_s * factor
    spread_log = math.sqrt(math.log1p(work.variance / work.mean_s**2)) if work.mean_s else 0.0
    total_s = mean_s * math.exp(rng.gauss(-(spread_log**2) / 2, spread_log))
    cycle_s = total_s / max(1.0, work.cycles)
    if work.cycles > 1.0:  # which of them is under way is not known
        cycle_s *= math.exp(rng.gauss(0.0, work.cycle_spread))
    if elapsed_s <= cycle_s * (1.0 - spread / 2) or elapsed_s == 0.0:
        return max(0.0, total_s - elapsed_s)
    # Longer than usual already: the longer it has taken, the longer it may still take.
    late_s = elapsed_s * min(4.0, 0.5 / (1.0 - rng.random()) - 0.5)
    return max(0.0, total_s - min(elapsed_s, cycle_s)) + late_s


def _past_errors(ended: Sequence[EndedAttempt]) -> list[float]:
    """Return how much longer later cycles were than what was expected of them earlier, as logs."""
    ordered = sorted(ended, key=lambda item: item.ended_s)[-PAST_MAX:]
    errors = []
    for share in PAST_SHARES:
        cut = int(len(ordered) * share)
        before = _CycleHistory(ordered[:cut])
        last, actual_s, expected_s = dict(before.last), 0.0, 0.0
        for item in ordered[cut:]:
            since = max(last.get(item.phone, item.started_s), item.started_s - before.usual_s)
            last[item.phone] = item.ended_s
            usual_s = math.exp(before.cycle(item.phone, item.cell)[0]) if cut else 0.0
            if usual_s <= INTERRUPTED * (item.ended_s - since) <= INTERRUPTED**2 * usual_s:
                actual_s, expected_s = actual_s + item.ended_s - since, expected_s + usual_s
        if cut >= PAST_MIN and expected_s:
            errors.append(math.log(actual_s / expected_s))
    return errors


def _spread(differences: Sequence[float], free: int, before: float) -> float:
    """Return how much the lab's own values differ; `before` is assumed until enough have ended."""
    squares = sum(each**2 for each in differences) + SPREAD_WEIGHT * before**2
    return math.sqrt(squares / (free + SPREAD_WEIGHT))


class _CycleHistory:
    """The cycles of a sweep's phones, and how long further ones are expected to take."""

    def __init__(self, ended: Sequence[EndedAttempt]) -> None:
        self.count = len(ended)
        self.last: dict[str, float] = {}
        durations = [max(0.001, item.ended_s - item.started_s) for item in ended]
        self.usual_s = usual_s = median(durations) if durations else 0.0
        cycles: dict[tuple[str, Cell], list[float]] = {}
        begun: set[tuple[str, str]] = set()
        for item in sorted(ended, key=lambda each: each.ended_s):
            duration_s = max(0.001, item.ended_s - item.started_s)
            is_first = (item.phone, item.sweep) not in begun  # the lab may have been idle before
            begun.add((item.phone, item.sweep))
            since = item.started_s if is_first else self.last[item.phone]
            gap_s = min(max(0.0, item.started_s - since), GAP_MAX * max(usual_s, duration_s))
            self.last[item.phone] = item.ended_s
            cycles.setdefault((item.phone, item.cell), []).append(duration_s + gap_s)
        usual = self._take_out_interruptions(cycles)
        means = {key: fmean(values) for key, values in usual.items()}
        self._own = {key: (math.log(means[key]), len(values)) for key, values in usual.items()}
        residuals = [
            (value / means[key] - 1.0) ** 2 for key, values in usual.items() for value in values
        ]
        degrees = max(0, len(residuals) - len(usual))
        weighted = sum(residuals) + RUN_SPREAD_WEIGHT * RUN_SPREAD**2
        self.spread = math.sqrt(math.log1p(weighted / (degrees + RUN_SPREAD_WEIGHT)))
        self._fit_effects()

    def _take_out_interruptions(
        self, cycles: Mapping[tuple[str, Cell], Sequence[float]]
    ) -> dict[tuple[str, Cell], list[float]]:
        """Return the usual cycles; what is far above them is kept as an excess.

        An attempt that failed at once says nothing of the others, and costs next to nothing.
        """
        of_cell: dict[Cell, list[float]] = {}
        for (_, cell), values in cycles.items():
            of_cell.setdefault(cell, []).extend(values)
        of_condition: dict[str, list[float]] = {}
        for (_, condition), values in of_cell.items():
            of_condition.setdefault(condition, []).extend(values)
        self.excess_s: list[float] = []
        self.short = 0  # attempts that failed at once
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
        free = max(0, len(found) - len(self.cells) - len(self._phones))
        self._phone_spread = _spread(found, free, PHONE_SPREAD)
        self._of_condition: dict[str, list[float]] = {}
        for (_, condition), effect in self.cells.items():
            self._of_condition.setdefault(condition, []).append(effect)

    def elapsed_s(self, phone: str, now_s: float, since_s: float) -> float:
        """Return how long ago the last cycle of a phone ended, or the sweep began."""
        last = max(self.last.get(phone, -math.inf), since_s)
        return max(0.0, now_s - last) if math.isfinite(last) else 0.0

    def work(self, phone: str, left: Mapping[Cell, int]) -> _Work:
        """Return how long a phone needs for the runs that it has left."""
        mean_s = variance = squares = guessed_s = guessed_error = 0.0
        for cell, runs in left.items():
            log_s, error, is_guess = self.cycle(phone, cell)
            cycle_s = math.exp(log_s)
            mean_s += runs * cycle_s
            squares += runs * cycle_s**2
            variance += runs * (self.spread * cycle_s) ** 2 + (runs * error * cycle_s) ** 2
            if is_guess:  # guesses of one phone err together
                guessed_s += runs * cycle_s
                guessed_error += runs * error * cycle_s
        cycles = sum(left.values())
        return _Work(mean_s, variance + guessed_error**2 / 2, cycles, squares, guessed_s)

    def cycle(self, phone: str, cell: Cell) -> tuple[float, float, bool]:
        """Return the expected logarithm of a cycle, its error, and whether no phone has run it."""
        effect = self._phones.get(phone, 0.0)
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
