"""Compares the cold with the sustained ranking: do phones that start fast stay fast?"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.stats import kendall_tau
from orchestrator.selection.client_types import Client


@dataclass(frozen=True)
class RankingAgreement:
    """How well the two rankings agree, and the cost of choosing by the cold one."""

    tau: float  # Kendall's: 1 is the same order, -1 the opposite
    phones: int
    extra_time: tuple[float, ...]  # of a hot round with 1, 2, ... phones chosen cold, relative

    @property
    def worst(self) -> tuple[int, float]:
        """The cohort size with the highest cost, and that cost."""
        index = max(range(len(self.extra_time)), key=self.extra_time.__getitem__)
        return index + 1, self.extra_time[index]

    @property
    def mean(self) -> float:
        """The mean cost over all cohort sizes."""
        return sum(self.extra_time) / len(self.extra_time)


def ranking_agreement(clients: Sequence[Client]) -> RankingAgreement | None:
    """Compare both rankings; None unless two phones have cold and hot runs."""
    both = [client for client in clients if client.sustained_ms is not None]
    if len(both) < 2:
        return None
    cold = [client.cold_ms.value for client in both]
    hot = [client.sustained_ms.value for client in both if client.sustained_ms is not None]
    by_cold = sorted(range(len(both)), key=cold.__getitem__)
    best, extra_time, slowest = sorted(hot), [], 0.0
    for count in range(len(both) - 1):
        slowest = max(slowest, hot[by_cold[count]])
        extra_time.append(slowest / best[count] - 1)
    return RankingAgreement(kendall_tau(cold, hot), len(both), tuple(extra_time))
