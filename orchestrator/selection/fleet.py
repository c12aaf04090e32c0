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
    doubt: Array  # how far above its value a time may lie, as a share
    energy_j: Array  # of one sample; NaN where nobody knows
    battery_j: Array  # NaN where nobody knows
    fits: Mask

    def __len__(self) -> int:
        return len(self.cold_s)

    def of(self, picks: Picks) -> "Fleet":
        """Those clients alone, or some of them several times."""
        return Fleet(**{name: column[picks] for name, column in vars(self).items()})

    def with_times(self, factor: Array) -> "Fleet":
        """The same clients with other times: what is true, or what somebody believes."""
        return replace(self, cold_s=self.cold_s * factor)


def line_up(clients: Sequence[Client]) -> Fleet:
    """Turn rows into columns."""
    times = [max((c.cold_ms, c.sustained_ms or c.cold_ms), key=lambda f: f.spread) for c in clients]
    return Fleet(
        cold_s=np.array([client.cold_ms.value / 1000 for client in clients]),
        slowdown=np.array([client.slowdown for client in clients]),
        heating_s=np.array([client.heating_s or HEATING_S for client in clients]),
        doubt=np.array([max(0.0, f.high / f.value - 1) for f in times]),
        energy_j=np.array([_or_nan(client.energy_mj) / 1000 for client in clients]),
        battery_j=np.array([client.battery_j or np.nan for client in clients]),
        fits=np.array([_fits(client) for client in clients], dtype=bool),
    )


def _or_nan(figure: object) -> float:
    return float(getattr(figure, "value", np.nan))


def _fits(client: Client) -> bool:
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
