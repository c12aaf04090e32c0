"""Cold against sustained: do the phones that are quick at first stay the quick ones?"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.selection.client import Client


@dataclass(frozen=True)
class Rankings:
    """How alike the two rankings are, and what choosing by the wrong one costs."""

    tau: float  # Kendall's: 1 is the same order, -1 the opposite
    count: int
    lost: float  # how much longer a hot round takes when its phones are chosen cold


def hold_rankings_together(clients: Sequence[Client], count: int) -> Rankings | None:
    """Hold both rankings together; None unless two phones were measured both ways."""
    from scipy.stats import kendalltau

    both = [client for client in clients if client.sustained_ms is not None]
    if len(both) < 2:
        return None
    cold = [client.cold_ms.value for client in both]
    hot = [client.sustained_ms.value for client in both if client.sustained_ms is not None]
    count = min(count, len(both))
    by_cold = sorted(range(len(both)), key=cold.__getitem__)[:count]
    lost = max(hot[i] for i in by_cold) / sorted(hot)[count - 1] - 1
    return Rankings(float(kendalltau(cold, hot).statistic), count, lost)
