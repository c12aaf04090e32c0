"""Least squares with priors, in numpy: a damped Gauss-Newton that is deaf to a few bad rows.

Parameters are logarithms: figures of phones are positive, and their errors are ratios.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Values = dict[str, float]
_STEP = 1e-4


@dataclass(frozen=True, slots=True)
class Prior:
    """What was believed before any data, and how firmly: a standard deviation of the logarithm."""

    value: float
    spread: float


def solve(
    residuals: Callable[[Values], Array], priors: Mapping[str, Prior], rounds: int = 25
) -> Values:
    """The values that leave the smallest residuals, each held by its prior."""
    names = list(priors)
    centre = np.log([priors[name].value for name in names])
    spread = np.array([priors[name].spread for name in names])

    def full(point: Array) -> Array:
        values = dict(zip(names, (float(v) for v in np.exp(point)), strict=True))
        return np.concatenate([_soft(residuals(values)), (point - centre) / spread])

    point, damping = centre.copy(), 1e-2
    now = full(point)
    for _ in range(rounds):
        jacobian = np.column_stack(
            [(full(point + _STEP * unit) - now) / _STEP for unit in np.eye(len(names))]
        )
        slope = jacobian.T @ now
        while damping < 1e6:
            normal = jacobian.T @ jacobian
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope)
            tried = full(point + step)
            if tried @ tried < now @ now:
                break
            damping *= 4.0
        else:
            break
        gained = 1.0 - (tried @ tried) / (now @ now)
        point, now, damping = point + step, tried, damping / 4.0
        if gained < 1e-6:
            break
    return dict(zip(names, (float(v) for v in np.exp(point)), strict=True))


def _soft(residual: Array) -> Array:
    """Quadratic for small residuals, linear for large ones."""
    grown = 2.0 * (np.sqrt(1.0 + residual**2) - 1.0)
    return np.asarray(np.sign(residual) * np.sqrt(grown))
