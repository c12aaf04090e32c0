"""Least squares with priors: a damped Gauss-Newton with a soft-L1 loss, robust to a few bad rows.

Parameters are logarithms, because figures of phones are positive and their errors are ratios.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Values = dict[str, float]
_ROUNDS = 25
_STEP = 1e-4


@dataclass(frozen=True, slots=True)
class Prior:
    """An expected value and its standard deviation in the logarithm."""

    value: float
    spread: float


def solve_least_squares(
    residuals: Callable[[Values], Array], priors: Mapping[str, Prior]
) -> Values:
    """Return the values with the smallest residuals, each pulled towards its prior."""
    names = list(priors)
    centre = np.log([priors[name].value for name in names])
    spread = np.array([priors[name].spread for name in names])

    def all_residuals(point: Array) -> Array:
        values = dict(zip(names, (float(v) for v in np.exp(point)), strict=True))
        return np.concatenate([_soft_l1(residuals(values)), (point - centre) / spread])

    point, damping = centre.copy(), 1e-2
    current = all_residuals(point)
    for _ in range(_ROUNDS):
        jacobian = np.column_stack(
            [(all_residuals(point + _STEP * unit) - current) / _STEP for unit in np.eye(len(names))]
        )
        slope = jacobian.T @ current
        while damping < 1e6:
            normal = jacobian.T @ jacobian
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope)
            candidate = all_residuals(point + step)
            if candidate @ candidate < current @ current:
                break
            damping *= 4.0
        else:
            break
        gain = 1.0 - (candidate @ candidate) / (current @ current)
        point, current, damping = point + step, candidate, damping / 4.0
        if gain < 1e-6:
            break
    return dict(zip(names, (float(v) for v in np.exp(point)), strict=True))


def _soft_l1(residual: Array) -> Array:
    """Soft-L1 loss: quadratic for small residuals, linear for large ones."""
    grown = 2.0 * (np.sqrt(1.0 + residual**2) - 1.0)
    return np.asarray(np.sign(residual) * np.sqrt(grown))
