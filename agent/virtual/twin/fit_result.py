"""The result of a fit: its values, its error, and its errors on rows that were left out."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

Row = TypeVar("Row")
MEAN_PER_DEVIATION = math.sqrt(2 / math.pi)
# Of a stated error to its 95 % interval: Student's t with ten degrees of freedom.
ERROR_QUANTILE = 2.228 / MEAN_PER_DEVIATION


@dataclass(frozen=True, slots=True)
class FitResult:
    """One fitted quantity; errors are mean absolute relative errors, for temperatures in kelvin."""

    quantity: str
    family: str  # of metrics, or "memory"
    rows: int
    fit_error: float
    # by what was left out: logarithms of predicted over measured, for temperatures kelvins
    left_out: dict[str, tuple[float, ...]]
    weights: dict[str, tuple[float, ...]] = field(default_factory=dict)  # of those rows, if not 1
    unit: str = ""
    values: dict[str, float] = field(default_factory=dict)  # of the profile, by path
    engine: dict[str, float] = field(default_factory=dict)
    room_c: float | None = None

    def mean_left_out(self, group: str) -> float:
        """Return the mean absolute error of a group."""
        errors = self.left_out[group]
        if self.unit == "K":
            return float(np.mean(np.abs(errors)))
        return float(np.mean(np.abs(np.expm1(errors))))


def stated_error(log_errors: Sequence[float], weights: Sequence[float] = ()) -> float:
    """Return the error to state: wide enough that its 95 % interval holds 95 % of such rows.

    It is the mean absolute error of normal errors with the deviation of these; the interval is
    exp(±ERROR_QUANTILE·error).
    """
    weights = weights or [1.0] * len(log_errors)
    squares = math.fsum(w * error**2 for w, error in zip(weights, log_errors, strict=True))
    return math.sqrt(squares / math.fsum(weights)) * MEAN_PER_DEVIATION


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return the mean of the absolute relative errors."""
    ratios = np.array(predicted) / np.array(measured) - 1.0
    return float(np.mean(np.abs(ratios)))


def leave_out(
    rows: Sequence[Row],
    key: Callable[[Row], Hashable],
    refit: Callable[[Sequence[Row]], Callable[[Row], float]],
    measured_value: Callable[[Row], float],
) -> tuple[float, ...]:
    """Fit without each group in turn and predict it; return the log error of every row."""
    errors: dict[int, float] = {}
    for group in sorted({key(row) for row in rows}, key=str):
        predict = refit([row for row in rows if key(row) != group])
        for position, row in enumerate(rows):
            if key(row) == group:
                errors[position] = math.log(predict(row) / measured_value(row))
    return tuple(errors[position] for position in range(len(rows)))


def leave_out_each(
    rows: Sequence[Row],
    keys: Mapping[str, Callable[[Row], Hashable]],
    refit: Callable[[Sequence[Row]], Callable[[Row], float]],
    measured_value: Callable[[Row], float],
) -> dict[str, tuple[float, ...]]:
    """Return the log errors for several ways to group the rows, by name."""
    return {name: leave_out(rows, key, refit, measured_value) for name, key in keys.items()}
