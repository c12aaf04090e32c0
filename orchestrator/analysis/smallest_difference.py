"""The smallest difference that planned repeats can show, from a phone's own earlier runs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.analysis.ab_comparison import ALPHA, MARGIN
from orchestrator.analysis.log_ratio import LogRatioEstimate, UnitLevel
from orchestrator.analysis.measurements import TrialSeries
from orchestrator.analysis.rank_statement import CLAIM_RUNS_MIN

FREEDOM_MIN = 3  # fewer runs do not show how much runs vary
WIDENING = 1.2  # of an interval, on average: some runs resemble the one before by chance
CellDigests = tuple[str, str]  # of case and condition


@dataclass(frozen=True)
class SmallestDifference:
    """Of two cells of a sweep on one phone, by how much runs vary in its cells."""

    best: float
    worst: float
    known_cells: int


class RunSpread:
    """How much runs vary from repeat to repeat on each phone: by cell, or else by protocol."""

    def __init__(self, trials: Iterable[TrialSeries]) -> None:
        self._squares: dict[tuple[str, ...], tuple[float, int]] = {}
        for trial in trials:
            logs = [math.log(value) for value in trial.values]
            if len(logs) < 2:
                continue
            middle = fmean(logs)
            squares = math.fsum((value - middle) ** 2 for value in logs)
            cell = (trial.case.digest, trial.condition.digest)
            for key in (cell, (trial.condition.protocol.value,)):
                known, freedom = self._squares.get((trial.phone, *key), (0.0, 0))
                self._squares[trial.phone, *key] = known + squares, freedom + len(logs) - 1

    def deviation(self, phone: str, cell: CellDigests, protocol: str) -> float | None:
        """Return the relative standard deviation of the runs of a cell, if it is known."""
        for key in (cell, (protocol,)):
            squares, freedom = self._squares.get((phone, *key), (0.0, 0))
            if freedom >= FREEDOM_MIN:
                return math.sqrt(squares / freedom)
        return None

    def smallest_difference(
        self, phone: str, cells: Sequence[tuple[CellDigests, str]], repeats: int
    ) -> SmallestDifference | None:
        """Return what so many repeats of these cells (with their protocols) show on a phone."""
        known = [self.deviation(phone, *cell) for cell in cells]
        shown = [shown_difference(each, repeats) for each in known if each is not None]
        if not shown or repeats < CLAIM_RUNS_MIN:
            return None
        return SmallestDifference(min(shown), max(shown), len(shown))


def shown_difference(deviation: float, repeats: int) -> float:
    """Return the difference of two cells in shared blocks that is shown four times out of five."""
    error = WIDENING * deviation * math.sqrt(2 / repeats)
    estimate = LogRatioEstimate(0.0, error, max(1, repeats - 1), UnitLevel.BLOCKS)
    return estimate.smallest_shown(ALPHA, MARGIN)
