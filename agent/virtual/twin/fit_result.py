"""The result of a fit: its values, its error, and its error on rows that were left out."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class FitResult:
    """One fitted quantity; errors are mean absolute relative errors, for temperatures in kelvin."""

    quantity: str
    family: str  # of metrics, or "memory"
    rows: int
    fit_error: float
    left_out: dict[str, float]  # error by what was left out
    unit: str = ""
    values: dict[str, float] = field(default_factory=dict)  # of the profile, by path
    engine: dict[str, float] = field(default_factory=dict)
    room_c: float | None = None

    @property
    def worst_left_out(self) -> float | None:
        return max(self.left_out.values(), default=None)


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return the mean of the absolute relative errors."""
    ratios = np.array(predicted) / np.array(measured) - 1.0
    return float(np.mean(np.abs(ratios)))


def leave_out(
    rows: Sequence[Row],
    key: Callable[[Row], Hashable],
    refit: Callable[[Sequence[Row]], Callable[[Row], float]],
    measured_value: Callable[[Row], float],
) -> float:
    """Fit without each group in turn and predict it; return the mean error over all rows."""
    predicted: list[float] = []
    measured: list[float] = []
    for group in sorted({key(row) for row in rows}, key=str):
        predict = refit([row for row in rows if key(row) != group])
        for row in rows:
            if key(row) == group:
                predicted.append(predict(row))
                measured.append(measured_value(row))
    return mean_error(predicted, measured)


def leave_out_each(
    rows: Sequence[Row],
    keys: Mapping[str, Callable[[Row], Hashable]],
    refit: Callable[[Sequence[Row]], Callable[[Row], float]],
    measured_value: Callable[[Row], float],
) -> dict[str, float]:
    """Return the leave-one-out error for several ways to group the rows, by name."""
    return {name: leave_out(rows, key, refit, measured_value) for name, key in keys.items()}
