"""Cold against sustained: do the phones that are quick at first stay the quick ones?"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.ranks import tau
from orchestrator.selection.client import Client


@dataclass(frozen=True)
class Rankings:
    """How alike the two rankings are, and what choosing by the wrong one costs."""

    tau: float  # Kendall's: 1 is the same order, -1 the opposite
    phones: int
    lost: tuple[float, ...]  # how much longer a hot round of 1, 2 .. phones is when chosen cold

    @property
    def worst(self) -> tuple[int, float]:
        """The size of a cohort for which it costs most, and how much."""
        most = max(range(len(self.lost)), key=self.lost.__getitem__)
        return most + 1, self.lost[most]

    @property
    def mean(self) -> float:
        """What it costs on average over all sizes."""
        return sum(self.lost) / len(self.lost)


def hold_rankings_together(clients: Sequence[Client]) -> Rankings | None:
    """Hold both rankings together; None unless two phones were measured both ways."""
    both = [client for client in clients if client.sustained_ms is not None]
    if len(both) < 2:
        return None
    cold = [client.cold_ms.value for client in both]
    hot = [client.sustained_ms.value for client in both if client.sustained_ms is not None]
    by_cold = sorted(range(len(both)), key=cold.__getitem__)
    best, lost, slowest = sorted(hot), [], 0.0
    for count in range(len(both) - 1):
        slowest = max(slowest, hot[by_cold[count]])
        lost.append(slowest / best[count] - 1)
    return Rankings(tau(cold, hot), len(both), tuple(lost))
