"""How long runs take: one ladder and one distribution for plan, scheduler and ETA. Pure.

A run lasts from the end of the previous run of its phone to its own end, so cooling, charging and
dispatch are part of it. The logarithm of this time is an effect of the cell plus one of the phone.
The closest history is used first: the cell on this phone, then on phones of the same model, then on
other phones, then other cells. Every expectation names its basis, and its error grows in this
order. Runs several times as long as usual are interruptions, such as charging: how often they come
and how long they last is drawn separately.

All durations are wall time, which plan and ETA ask for. `phone_speed` is the only conversion from
the clock of a phone: stages of reports and predicted times are divided by it.
"""

import math
import random
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from workloads.text import TextEnum

# Spreads are standard deviations of logarithms; priors have a weight in observations.
RUN_SPREAD = 0.25  # prior: runs of one cell on one phone
PHONE_SPREAD = 0.2  # prior: a cell that only other phones have run
CELL_SPREAD = 0.6  # prior: a cell that no phone has run yet
PRIOR_WEIGHT = 4.0  # weight of these priors
COMMON_SPREAD = 0.16  # the factor that is common to all phones
FEW_RUNS = 12.0  # after fewer runs, that factor is much less certain
RECENT_RUNS = 12.0  # in usual durations: the pace of the lab is that of this time
PAUSE_MAX = 1.0  # in durations of the run after it; before a longer one, the phone had no work
INTERRUPTED = 3.0  # in usual durations; a longer run was interrupted
INTERRUPTION_PRIOR = (0.4, 25.0)  # number of interruptions, in this many runs
INTERRUPTION_RUNS, INTERRUPTION_SPREAD = 8.0, 1.0  # their length in usual durations
INTERRUPTIONS_MAX = 50  # the newest are remembered
AT_ONCE = 0.01  # in usual durations; a shorter attempt failed before it began
TRIES = 12  # to draw a run as long as the one under way; then it is longer than ever
WAITS_MAX = 4.0  # longest rest of such a run, relative to the time that has passed

Cell = tuple[str, str]  # digests of case and condition
NO_NAMES: Mapping[str, str] = MappingProxyType({})


class RunTiming(NamedTuple):
    """When an attempt started and ended by the clock of its host, and how much was cooling."""

    phone: str
    case_digest: str
    condition_digest: str
    started_s: float
    ended_s: float
    sweep: str = ""
    cooldown_s: float = 0.0  # of that time
    start_temp_c: float | None = None
    report: int = 0  # number of its report; reports are numbered in the order of arrival

    @property
    def cell(self) -> Cell:
        """The digests of its case and its condition."""
        return self.case_digest, self.condition_digest

    @property
    def duration_s(self) -> float:
        """From start to end."""
        return max(0.001, self.ended_s - self.started_s)

    @property
    def measuring_s(self) -> float:
        """From start to end, without cooling."""
        return max(0.0, self.ended_s - self.started_s - self.cooldown_s)


def phone_speed(stage_seconds: Iterable[float], host_s: float) -> float:
    """Return the seconds of a phone's clock per second of its host: 1 unless it is simulated."""
    return max(1.0, sum(stage_seconds) / host_s) if host_s > 0 else 1.0


class EstimateBasis(TextEnum):
    """What an estimate is based on, the best first."""

    SAME_PHONE = "same_phone", "history of this phone"
    SAME_MODEL = "same_model", "history of phones of this model"
    PROFILE = "profile", "step time of this case under another condition"
    OTHER_MODELS = "other_models", "other phones, scaled to the speed of this phone"
    OTHER_CELLS = "other_cells", "other cells on this phone"
    OTHER_CELLS_SAME_MODEL = "other_cells_same_model", "other cells on phones of this model"
    TWIN = "twin", "simulation of this phone"
    LAB = "lab", "other phones"
    PROTOCOL_LENGTH = "protocol_length", "minimum length of the protocol, without cooldown"
    OTHER_PROTOCOLS = "other_protocols", "runs of other protocols"


_LADDER = list(EstimateBasis)


@dataclass(frozen=True)
class ExpectedRun:
    """How long a run is expected to take, with the error of its logarithm."""

    basis: EstimateBasis
    seconds: float
    cooling_share: float = 0.0
    error: float = 0.0

    @property
    def measuring_s(self) -> float:
        """The time without cooling."""
        return self.seconds * (1.0 - self.cooling_share)

    @property
    def cooling_s(self) -> float:
        """The time that the phone cools before it."""
        return self.seconds * self.cooling_share


class Work(NamedTuple):
    """What a phone has left to do: mean and variance in seconds, and the number of runs."""

    mean_s: float
    variance: float
    runs: float

    def scaled(self, share: float, doubt: float = 0.0) -> "Work":
        """Return a share of the work, which may also be more or less."""
        variance = share**2 * self.variance + (doubt * share * self.mean_s) ** 2
        return Work(share * self.mean_s, variance, share * self.runs)

    def plus(self, other: "Work") -> "Work":
        """Return this work and another."""
        return Work(*(mine + its for mine, its in zip(self, other, strict=True)))


NO_WORK = Work(0.0, 0.0, 0.0)


class Pace(NamedTuple):
    """What all phones share in one draw."""

    level: float  # logarithm of how much slower the lab is than on average
    rate: float  # interruptions per run


@dataclass(slots=True)
class _Group:
    """Sums over runs that are alike, in seconds of a phone of average speed."""

    cells: set[Cell] = field(default_factory=set)
    runs: int = 0
    total_s: float = 0.0
    squares: float = 0.0
    cooling_s: float = 0.0
    attempts_s: float = 0.0

    def add(self, run: RunTiming, seconds: float) -> None:
        """Add a run that took so long."""
        self.runs += 1
        self.total_s += seconds
        self.squares += seconds**2
        self.cooling_s += run.cooldown_s
        self.attempts_s += run.duration_s

    def merge(self, cell: Cell, other: "_Group") -> None:
        """Add all runs of a cell on a phone."""
        self.cells.add(cell)
        self.runs += other.runs
        self.total_s += other.total_s
        self.squares += other.squares
        self.cooling_s += other.cooling_s
        self.attempts_s += other.attempts_s

    @property
    def mean_s(self) -> float:
        """The mean duration."""
        return self.total_s / self.runs

    @property
    def variances(self) -> float:
        """The sum of the squared differences from the mean, relative to it."""
        return max(0.0, self.squares / self.mean_s**2 - self.runs)


class Durations:
    """Past runs, and how long further ones are expected to take."""

    def __init__(
        self,
        runs: Iterable[RunTiming],
        models: Mapping[str, str] = NO_NAMES,
        protocols: Mapping[str, str] = NO_NAMES,
    ) -> None:
        """Learn from runs; `models` are those of phones, `protocols` those of condition digests."""
        self._models, self._protocols = models, protocols
        ordered = sorted(runs, key=lambda run: run.ended_s)
        self.count = len(ordered)
        self.last_end_s: dict[str, float] = {}  # by phone
        self._excess_s: list[float] = []  # of interruptions over what is usual
        usual = self._without_interruptions(self._with_pauses(ordered))
        self._learn_factors(usual)
        self._groups: dict[Hashable, _Group] = {}
        own: dict[tuple[str, Cell], _Group] = {}
        for run, seconds in usual:
            group = own.setdefault((run.phone, run.cell), _Group())
            group.add(run, seconds / self._factor(run.phone))
        for (phone, cell), group in own.items():
            for _, key, _ in self._rungs(phone, cell):
                self._groups.setdefault(key, _Group()).merge(cell, group)
        self._learn_spread(usual)

    def _with_pauses(self, runs: Sequence[RunTiming]) -> list[tuple[RunTiming, float]]:
        """Return how long runs took with the pause before them, unless the phone had no work.

        Attempts that failed before they began are left out: they predict nothing.
        """
        of: dict[str, list[float]] = {}
        for run in runs:
            of.setdefault(run.condition_digest, []).append(run.duration_s)
        least_s = {key: AT_ONCE * sorted(each)[3 * len(each) // 4] for key, each in of.items()}
        found = []
        for run in runs:
            if run.duration_s >= least_s[run.condition_digest]:
                pause_s = run.started_s - self.last_end_s.get(run.phone, -math.inf)
                is_pause = 0.0 < pause_s < PAUSE_MAX * run.duration_s
                found.append((run, run.duration_s + pause_s if is_pause else run.duration_s))
                self.last_end_s[run.phone] = run.ended_s
        return found

    def _without_interruptions(
        self, lasted: Sequence[tuple[RunTiming, float]]
    ) -> list[tuple[RunTiming, float]]:
        """Return how long runs take usually; what is far above that is kept as an excess."""
        of: dict[Cell | str, list[float]] = {}
        for run, seconds in lasted:
            for key in (run.cell, run.condition_digest):
                of.setdefault(key, []).append(seconds)
        medians = {key: median(each) for key, each in of.items()}
        found = []
        for run, seconds in lasted:
            usual_s = medians[run.cell if len(of[run.cell]) > 2 else run.condition_digest]
            if seconds > INTERRUPTED * usual_s:
                self._excess_s.append(seconds - usual_s)
            found.append((run, usual_s if seconds > INTERRUPTED * usual_s else seconds))
        return found

    def _learn_factors(self, usual: Sequence[tuple[RunTiming, float]]) -> None:
        """Learn how much slower than others the phones of a model are."""
        of_cell: dict[Cell, list[float]] = {}
        for run, seconds in usual:
            of_cell.setdefault(run.cell, []).append(seconds)
        usual_s = {cell: median(each) for cell, each in of_cell.items()}
        of_model: dict[str, list[float]] = {}
        for run, seconds in usual:
            slower = math.log(seconds / usual_s[run.cell])
            of_model.setdefault(self._model(run.phone), []).append(slower)
        self._factors = {
            model: math.exp(sum(each) / (len(each) + 1)) for model, each in of_model.items()
        }

    def _learn_spread(self, usual: Sequence[tuple[RunTiming, float]]) -> None:
        """Learn how much runs differ, and how much slower than on average they were recently."""
        own = {(run.phone, run.cell) for run, _ in usual}
        variances = sum(self._groups[key].variances for key in own)
        # Before any run, only the errors of predictions are drawn.
        self._spread = _spread(variances, len(usual) - len(own), RUN_SPREAD) if usual else 0.0
        noise = self._spread**2 + PHONE_SPREAD**2
        since_s = math.inf
        if usual:
            since_s = usual[-1][0].ended_s - RECENT_RUNS * median(each_s for _, each_s in usual)
        recent = [
            math.log(seconds / self._groups[run.cell].mean_s / self._factor(run.phone))
            for run, seconds in usual
            if run.ended_s >= since_s
        ]
        weight = len(recent) + noise / COMMON_SPREAD**2
        self._level, self._level_error = sum(recent) / weight, math.sqrt(noise / weight)

    def _model(self, phone: str) -> str:
        return self._models.get(phone, phone)

    def _factor(self, phone: str) -> float:
        """Return how much slower a phone of this model is than others."""
        return self._factors.get(self._model(phone), 1.0)

    def _rungs(self, phone: str, cell: Cell) -> Iterator[tuple[EstimateBasis, Hashable, float]]:
        """Yield what a run belongs to, the closest first, with the spread that is expected."""
        yield EstimateBasis.SAME_PHONE, (phone, cell), RUN_SPREAD
        model, protocol = self._model(phone), self._protocols.get(cell[1], cell[1])
        yield EstimateBasis.SAME_MODEL, (model, cell, "model"), PHONE_SPREAD
        others = EstimateBasis.OTHER_MODELS if model in self._factors else EstimateBasis.LAB
        yield others, cell, PHONE_SPREAD
        yield EstimateBasis.OTHER_CELLS, (phone, protocol), CELL_SPREAD
        yield EstimateBasis.OTHER_CELLS_SAME_MODEL, (model, protocol, "model"), CELL_SPREAD
        yield EstimateBasis.LAB, protocol, CELL_SPREAD
        yield EstimateBasis.OTHER_PROTOCOLS, None, CELL_SPREAD

    def has_run(self, cell: Cell) -> bool:
        """Return whether any phone has run a cell."""
        return cell in self._groups

    @property
    def mean_s(self) -> float:
        """The mean of all runs; zero before any."""
        return self._groups[None].mean_s if self._groups else 0.0

    def expected(
        self, phone: str, cell: Cell, predictions: Iterable[ExpectedRun] = ()
    ) -> ExpectedRun:
        """Return how long a run takes, by the best of past runs and predictions."""
        measured = self.measured(phone, cell)
        if measured is not None and measured.basis is EstimateBasis.SAME_PHONE:
            return measured
        found = [*predictions] if measured is None else [measured, *predictions]
        return min(found, key=lambda run: _LADDER.index(run.basis))

    def measured(self, phone: str, cell: Cell) -> ExpectedRun | None:
        """Return how long a run takes by the closest past runs; None before any run."""
        for basis, key, prior in self._rungs(phone, cell):
            if (group := self._groups.get(key)) is not None:
                cells = len(group.cells)  # what counts as an observation of other cells
                error = _spread(group.variances / group.runs * cells, cells - 1, prior)
                if basis is EstimateBasis.SAME_PHONE:  # the error of a mean
                    error = self._spread / math.sqrt(group.runs)
                share = min(1.0, group.cooling_s / group.attempts_s)
                return ExpectedRun(basis, group.mean_s * self._factor(phone), share, error)
        return None

    def work(self, runs: Iterable[tuple[ExpectedRun, int]]) -> Work:
        """Return what a phone has to do, from its runs and how often each is repeated."""
        mean_s = variance = alike_s = count = 0.0
        for run, times in runs:
            count += times
            mean_s += times * run.seconds
            error_s = times * run.error * run.seconds
            variance += times * (self._spread * run.seconds) ** 2 + error_s**2
            if run.basis is not EstimateBasis.SAME_PHONE:  # such errors of one phone are alike
                alike_s += error_s
        return Work(mean_s, variance + alike_s**2 / 2, count)

    def draw_pace(self, rng: random.Random) -> Pace:
        """Draw what all phones share."""
        if not self.count:
            return Pace(0.0, 0.0)
        events, runs = INTERRUPTION_PRIOR
        rate = rng.gammavariate(len(self._excess_s) + events, 1.0 / (self.count + runs))
        common = COMMON_SPREAD * math.sqrt(1.0 + FEW_RUNS / self.count)
        error = math.hypot(common, self._level_error)
        return Pace(rng.gauss(self._level, error), rate)

    def draw_s(self, work: Work, pace: Pace, rng: random.Random) -> float:
        """Draw how long a phone needs for its work, with interruptions."""
        if not work.runs:
            return 0.0
        spread = math.sqrt(math.log1p(work.variance / work.mean_s**2))
        usual_s = work.mean_s * math.exp(pace.level + rng.gauss(-(spread**2) / 2, spread))
        interruptions = drawn_count(pace.rate * work.runs, rng)
        run_s = work.mean_s / work.runs
        return usual_s + sum(self._draw_interruption_s(run_s, rng) for _ in range(interruptions))

    def draw_rest_s(
        self, run: ExpectedRun, elapsed_s: float, pace: Pace, rng: random.Random
    ) -> float:
        """Draw how much longer a run takes that has not ended so far; it may be interrupted."""
        spread = math.hypot(run.error, self._spread)
        for _ in range(TRIES):
            total_s = run.seconds * math.exp(rng.gauss(pace.level, spread))
            if rng.random() < pace.rate:
                total_s += self._draw_interruption_s(run.seconds, rng)
            if total_s > elapsed_s:
                return total_s - elapsed_s
        # The longer it has taken, the longer it may still take.
        return elapsed_s * min(WAITS_MAX, rng.paretovariate(2.0) - 1.0)

    def _draw_interruption_s(self, run_s: float, rng: random.Random) -> float:
        guess_s = run_s * INTERRUPTION_RUNS * math.exp(rng.gauss(0.0, INTERRUPTION_SPREAD))
        return rng.choice([*self._excess_s[-INTERRUPTIONS_MAX:], guess_s])


def drawn_count(mean: float, rng: random.Random) -> int:
    """Draw from a Poisson distribution."""
    count, due = 0, rng.expovariate(1.0)
    while due < mean:
        count, due = count + 1, due + rng.expovariate(1.0)
    return count


def _spread(variances: float, free: int, prior: float) -> float:
    """Return how much values differ; the prior is assumed until there are enough of them."""
    return math.sqrt((variances + PRIOR_WEIGHT * prior**2) / (max(0, free) + PRIOR_WEIGHT))
