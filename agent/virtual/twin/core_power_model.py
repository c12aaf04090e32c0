"""The power of one busy core, for any cluster: measured curves, and what their families share.

Per cluster three figures are unknown (see CorePower). The logarithm of each is a sum of effects:
of size and process, of the core's design, of the maker, of the SoC, of the cluster itself. All
effects of all clusters are fitted at once, each with a prior around zero. A cluster without rows
has the effects of its SoC, maker and design, and a larger error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.virtual.socs import CorePower, SocCluster, SocTable, load_soc, soc_ids
from agent.virtual.socs.core_designs import CORE_DESIGNS

Array = NDArray[np.float64]
_BASE, _DYNAMIC, _KNEE = range(3)
_ROW_SPREAD = 0.05  # of one measured row
_ROUNDS = 20
# Expected value and spread of the effects that every cluster has, by figure.
_COMMON = (
    ("base", _BASE, 3.7, 1.0),
    ("base by size", _BASE, 0.4, 0.5),
    ("dynamic", _DYNAMIC, 3.9, 1.0),
    ("dynamic by size", _DYNAMIC, 1.0, 0.7),
    ("dynamic by process", _DYNAMIC, 0.7, 0.7),
    ("knee", _KNEE, 14.6, 0.5),
    ("knee by highest clock", _KNEE, 0.6, 0.4),
    ("knee by process", _KNEE, 0.0, 0.3),
)
# Spread of the effects that only some clusters share: of base, dynamic power and knee.
SPREADS = {
    "design": (0.0, 0.08, 0.0),
    "maker": (0.5, 0.2, 0.2),
    "soc": (0.6, 0.08, 0.08),
    "cluster": (0.3, 0.30, 0.10),
}


@dataclass(frozen=True, slots=True)
class PowerEstimate:
    """Power of one busy core at some clocks, and the standard deviation of its logarithm."""

    milliwatts: Array
    spread: Array


class _Cluster(NamedTuple):
    soc: SocTable
    part: SocCluster

    @property
    def groups(self) -> dict[str, str]:
        return {
            "design": self.part.design,
            "maker": self.soc.maker,
            "soc": self.soc.id,
            "cluster": f"{self.soc.id} {self.part.role}",
        }

    @property
    def common(self) -> Array:
        """Return the factors of the effects that every cluster has."""
        size = np.log(CORE_DESIGNS[self.part.design].coremark_per_mhz / 4.0)
        process = np.log(self.soc.process_nm / 7.0)
        top = np.log(self.part.ladder_khz[-1] / 2e6)
        return np.array([1.0, size, 1.0, size, process, 1.0, top, process])


def running_rows(part: SocCluster) -> tuple[Array, Array]:
    """Return the clocks that really ran, and the logarithm of their power."""
    shares = dict(zip(part.ladder_khz, part.work_shares, strict=True))
    clocks = [khz * shares[khz] for khz, _, _ in part.rows]
    return np.array(clocks), np.log([milliwatts for _, _, milliwatts in part.rows])


class CorePowerModel:
    """All effects, fitted to the rows of some clusters."""

    def __init__(self, socs: Iterable[SocTable], start: "CorePowerModel | None" = None) -> None:
        clusters = [_Cluster(soc, part) for soc in socs for part in soc.cluster if part.rows]
        names: list[tuple[str, str, int]] = [("common", name, i) for name, i, _, _ in _COMMON]
        spreads = [spread for _, _, _, spread in _COMMON]
        for level, by_figure in SPREADS.items():
            for group in sorted({cluster.groups[level] for cluster in clusters}):
                for figure, spread in enumerate(by_figure):
                    if spread:
                        names.append((level, group, figure))
                        spreads.append(spread)
        self._index = {name: position for position, name in enumerate(names)}
        self._precision = np.array(spreads) ** -2.0
        centre = np.zeros(len(names))
        centre[: len(_COMMON)] = [value for _, _, value, _ in _COMMON]
        self._effects = centre.copy()
        for name, position in self._index.items() if start else ():
            if start and name in start._index:
                self._effects[position] = start._effects[start._index[name]]
        self._fit(clusters, centre)

    def estimate(
        self, soc: SocTable, part: SocCluster, clocks_khz: Sequence[float]
    ) -> PowerEstimate:
        """Estimate the power of one core at clocks that really run."""
        factors, unknown = self._factors(_Cluster(soc, part))
        log_mw, slopes = _log_power(factors @ self._effects, np.array(clocks_khz, dtype=float))
        by_effect = slopes @ factors
        variance = np.einsum("ij,jk,ik->i", by_effect, self._covariance, by_effect)
        variance += slopes**2 @ unknown + _ROW_SPREAD**2
        return PowerEstimate(np.exp(log_mw), np.sqrt(variance))

    def figures(self, soc: SocTable, part: SocCluster) -> CorePower:
        """Return the three figures of a cluster."""
        factors, _ = self._factors(_Cluster(soc, part))
        base, dynamic, knee = (float(value) for value in np.exp(factors @ self._effects))
        return CorePower(
            base_mw=round(base, 2), dyn_uw_per_mhz=round(dynamic, 2), knee_khz=float(round(knee))
        )

    def _factors(self, cluster: _Cluster) -> tuple[Array, Array]:
        """Return how the figures follow from the effects, and the variance of unknown effects."""
        factors, unknown = np.zeros((3, len(self._index))), np.zeros(3)
        for position, ((_, figure, _, _), factor) in enumerate(
            zip(_COMMON, cluster.common, strict=True)
        ):
            factors[figure, position] = factor
        for level, group in cluster.groups.items():
            for figure, spread in enumerate(SPREADS[level]):
                position = self._index.get((level, group, figure), -1)
                if position >= 0:
                    factors[figure, position] = 1.0
                else:
                    unknown[figure] += spread**2
        return factors, unknown

    def _fit(self, clusters: Sequence[_Cluster], centre: Array) -> None:
        """Gauss-Newton over all rows, with less weight for rows far off."""
        prepared = [
            (self._factors(cluster)[0], *running_rows(cluster.part)) for cluster in clusters
        ]
        for _ in range(_ROUNDS):
            jacobians, residuals = [], []
            for factors, clocks, log_mw in prepared:
                predicted, slopes = _log_power(factors @ self._effects, clocks)
                residual = (predicted - log_mw) / _ROW_SPREAD
                weight = (1.0 + (residual / 2.0) ** 2) ** -0.25
                residuals.append(residual * weight)
                jacobians.append(slopes @ factors / _ROW_SPREAD * weight[:, None])
            jacobian, residual = np.concatenate(jacobians), np.concatenate(residuals)
            curvature = jacobian.T @ jacobian + np.diag(self._precision)
            slope = jacobian.T @ residual + (self._effects - centre) * self._precision
            step = np.linalg.solve(curvature, -slope)
            self._effects = self._effects + step * min(1.0, 1.0 / float(np.abs(step).max()))
            if float(np.abs(step).max()) < 1e-3:
                break
        self._covariance = np.linalg.inv(curvature)


def _log_power(logs: Array, khz: Array) -> tuple[Array, Array]:
    """Return the logarithm of power and its slopes along the three logarithms."""
    base, dynamic, knee = np.exp(logs)
    linear = dynamic * khz * 1e-6
    rise = linear * (khz / knee) ** 3
    milliwatts = base + linear + rise
    slopes = np.stack([base / milliwatts, (linear + rise) / milliwatts, -3.0 * rise / milliwatts])
    return np.log(milliwatts), slopes.T


@cache
def family_model() -> CorePowerModel:
    """Return the model of all tables of the project."""
    return CorePowerModel(load_soc(soc_id) for soc_id in soc_ids())


def model_for(soc: SocTable) -> CorePowerModel:
    """Return the model of all tables of the project and of one more, if it is not one of them."""
    if soc.id in soc_ids() and soc == load_soc(soc.id):
        return family_model()
    others = [load_soc(soc_id) for soc_id in soc_ids() if soc_id != soc.id]
    return CorePowerModel([*others, soc], family_model())
