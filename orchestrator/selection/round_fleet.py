"""The same clients as columns of figures, and the few formulas of a round in the heat.

A phone that works slows down towards its sustained speed, one that rests recovers:

    heat' = busy or 0, approached with the phone's own time constant
    time  = work · cold · (1 + heat · (slowdown - 1))

Both figures come from a run of ten minutes. Thousands of phones are one vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.selection.client import Client

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Picks = NDArray[np.int64]

# Where a phone's own time constant is not known: the one seen on a real phone's recorded trace.
HEATING_S = 560.0
MEMORY_SHARE = 0.5  # of a phone's memory is what an app may count on


@dataclass(frozen=True)
class Fleet:
    """Clients side by side; times are seconds of one sample."""

    cold_s: Array
    slowdown: Array
    heating_s: Array
    doubt: Array  # how far above its value a time may lie, as a share: two standard deviations
    energy_j: Array  # of one sample; NaN where nobody knows
    battery_j: Array  # NaN where nobody knows
    fits: Mask

    def __len__(self) -> int:
        return len(self.cold_s)

    def of(self, picks: Picks) -> "Fleet":
        """Those clients alone, or some of them several times."""
        return Fleet(**{name: column[picks] for name, column in vars(self).items()})

    def with_other(self, times: Array, energies: Array | float = 1.0) -> "Fleet":
        """The same clients with other figures: what is true, or what somebody believes."""
        return replace(self, cold_s=self.cold_s * times, energy_j=self.energy_j * energies)


def line_up(clients: Sequence[Client]) -> Fleet:
    """Turn rows into columns."""
    worst = max((client.slowdown for client in clients), default=1.0)
    return Fleet(
        cold_s=np.array([client.cold_ms.value / 1000 for client in clients]),
        slowdown=np.array([client.slowdown for client in clients]),
        heating_s=np.array([client.heating_s or HEATING_S for client in clients]),
        doubt=np.array([_doubt(client, worst) for client in clients]),
        energy_j=np.array([_energy_j(client) for client in clients]),
        battery_j=np.array([client.battery_j or np.nan for client in clients]),
        fits=np.array([fits(client) for client in clients], dtype=bool),
    )


def _doubt(client: Client, worst: float) -> float:
    """That of its less certain time; where heat was never tried, it may do the worst seen."""
    if client.sustained_ms is None:
        return (1 + client.cold_ms.doubt) * worst - 1
    return max(client.cold_ms.doubt, client.sustained_ms.doubt)


def _energy_j(client: Client) -> float:
    return client.energy_mj.value / 1000 if client.energy_mj else np.nan


def fits(client: Client) -> bool:
    """Whether a phone has the memory for it; where nobody has seen how much that is, it has."""
    return client.peak_mb is None or client.peak_mb <= MEMORY_SHARE * client.ram_mb


def work_s(fleet: Fleet, samples: Array, heat: Array) -> Array:
    """How long so many samples take from this heat on; the phone grows hotter meanwhile."""
    at_first = samples * fleet.cold_s * (1 + heat * (fleet.slowdown - 1))
    halfway = warmed(fleet, heat, at_first / 2)
    return samples * fleet.cold_s * (1 + halfway * (fleet.slowdown - 1))


def warmed(fleet: Fleet, heat: Array, busy_s: Array | float) -> Array:
    """Heat after so much work."""
    return 1 - (1 - heat) * np.exp(-busy_s / fleet.heating_s)


def cooled(fleet: Fleet, heat: Array, rest_s: Array | float) -> Array:
    """Heat after so much rest."""
    return np.asarray(heat * np.exp(-rest_s / fleet.heating_s))
