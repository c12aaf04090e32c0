"""Which phones of a round give the most value per second.

The policy frugal and the exported Flower strategy use these functions. Exports contain a copy of
this file, so it needs nothing but numpy.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAIR = 2.0  # exponent
UNKNOWN = 0.75  # quantile of the known utilities that a phone without an update is given
LENGTHS = 16  # of a round that are tried


def known_utility(utility: Array) -> Array:
    """Fill in the utility of phones without an update."""
    known = utility[~np.isnan(utility)]
    if not len(known):
        return np.ones(len(utility))
    return np.where(np.isnan(utility), np.quantile(known, UNKNOWN), utility)


def fair_weight(times_chosen: Array) -> Array:
    """Return a weight that is higher the less often a phone was chosen."""
    return np.asarray(((1 + times_chosen.mean()) / (1 + times_chosen)) ** FAIR)


def best_round(value: Array, ends_s: Array, k: int) -> NDArray[np.int64]:
    """Return up to k phones, the most valuable first, for the best length of a round.

    A round lasts as long as its slowest phone. For every length the k most valuable phones that end
    in time are added up; the length with the highest value per second is taken.
    """
    by_end = np.argsort(ends_s, kind="stable")
    n = len(by_end)
    counts = np.unique(np.linspace(min(k, n), n, LENGTHS).astype(int))
    best, best_rate = by_end, -1.0
    for count in counts:
        members = by_end[:count]
        if count > k:
            members = members[np.argpartition(-value[members], k - 1)[:k]]
        rate = float(value[members].sum()) / max(float(ends_s[members].max(initial=0)), 1e-9)
        if rate > best_rate:
            best, best_rate = members, rate
    return best[np.argsort(-value[best], kind="stable")]
