"""What ten minutes of heat cost a phone, over the cells that it ran both ways."""

from dataclasses import dataclass

from orchestrator.analysis.pace import Pace, Paces
from orchestrator.analysis.stats import geometric_mean


@dataclass(frozen=True)
class Slowdown:
    """A phone's step time before and after, in milliseconds."""

    cold: Pace
    cold_ms: float
    hot_ms: float

    @property
    def ratio(self) -> float:
        """How many times longer a step takes when the heat has arrived."""
        return self.hot_ms / self.cold_ms


def slowdown_of(cold: Pace, hot: Pace) -> Slowdown | None:
    """Hold a phone against itself; None when no cell was run both ways."""
    shared = sorted(set(cold.cells) & set(hot.cells))
    if not shared:
        return None
    before = geometric_mean([cold.cells[key] for key in shared])
    return Slowdown(cold, before, geometric_mean([hot.cells[key] for key in shared]))


def slowdowns(cold: Paces, hot: Paces) -> tuple[Slowdown, ...]:
    """Every phone that was run both ways, the quickest after the heat first."""
    before = {pace.phone: pace for pace in cold.ranked}
    found = [slowdown_of(before[pace.phone], pace) for pace in hot.ranked if pace.phone in before]
    return tuple(sorted((each for each in found if each), key=lambda each: each.hot_ms))
