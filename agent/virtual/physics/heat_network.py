"""Heat: die, body and battery as three capacities joined by resistances.

Solved exactly by its three exponentials, so the size of a time step never shapes the answer.
"""

from math import exp

import numpy as np

from agent.virtual.profiles import HeatNode, HeatProfile

PLACE: dict[HeatNode, int] = {"die": 0, "body": 1, "battery": 2}

Triple = tuple[float, float, float]


class HeatNetwork:
    """Temperatures of the three nodes, in °C."""

    def __init__(self, profile: HeatProfile, ambient_c: float, spread: float = 1.0) -> None:
        self.ambient_c = ambient_c
        die_body = 1.0 / (profile.die_body_k_per_w * spread)
        body_air = 1.0 / (profile.body_ambient_k_per_w * spread)
        body_battery = 1.0 / profile.body_battery_k_per_w
        conductance = np.array(
            [
                [die_body, -die_body, 0.0],
                [-die_body, die_body + body_air + body_battery, -body_battery],
                [0.0, -body_battery, body_battery],
            ]
        )
        roots = np.sqrt([profile.die_j_per_k, profile.body_j_per_k, profile.battery_j_per_k])
        # Scaled by the roots of the capacities the system is symmetric: real rates, no surprises.
        rates, modes = np.linalg.eigh(conductance / np.outer(roots, roots))
        self._rates = [float(rate) for rate in rates]
        self._into = _triples(modes.T * roots)
        self._back = _triples((modes.T / roots).T)
        self._resistance = _triples(np.linalg.inv(conductance))
        self.temps: Triple = (ambient_c, ambient_c, ambient_c)

    @property
    def slowest_s(self) -> float:
        """The time constant of the slowest mode: the body against the air."""
        return 1.0 / min(self._rates)

    def node(self, name: HeatNode) -> float:
        return self.temps[PLACE[name]]

    def rest(self, watts: Triple) -> Triple:
        """Where the nodes settle under constant power."""
        ambient = self.ambient_c
        first, second, third = self._resistance
        return (
            ambient + _dot(first, watts),
            ambient + _dot(second, watts),
            ambient + _dot(third, watts),
        )

    def advance(self, seconds: float, watts: Triple) -> None:
        """Let heat flow for a while under constant power."""
        rest = self.rest(watts)
        temps = self.temps
        above = (temps[0] - rest[0], temps[1] - rest[1], temps[2] - rest[2])
        rates, into, back = self._rates, self._into, self._back
        modes = (
            exp(-rates[0] * seconds) * _dot(into[0], above),
            exp(-rates[1] * seconds) * _dot(into[1], above),
            exp(-rates[2] * seconds) * _dot(into[2], above),
        )
        self.temps = (
            rest[0] + _dot(back[0], modes),
            rest[1] + _dot(back[1], modes),
            rest[2] + _dot(back[2], modes),
        )


def _dot(left: Triple, right: Triple) -> float:
    # Written out: this runs for every reading of every phone.
    return left[0] * right[0] + left[1] * right[1] + left[2] * right[2]


def _triples(matrix: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[Triple]:
    return [(float(row[0]), float(row[1]), float(row[2])) for row in matrix]
