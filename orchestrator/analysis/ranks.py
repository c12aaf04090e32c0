"""How alike two rankings are."""

from collections.abc import Sequence


def tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Kendall's: 1 is the same order, -1 the opposite."""
    from scipy.stats import kendalltau

    return float(kendalltau(one, other).statistic)
