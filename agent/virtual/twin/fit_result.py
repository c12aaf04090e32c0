"""What a fit found, how well it fits, and how well it says what it was not shown."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Fit:
    """One fitted quantity; errors are means of absolute relative errors, temperatures in kelvin."""

    quantity: str
    family: str  # of metrics, or "memory"
    rows: int
    fit_error: float
    left_out: dict[str, float]  # by what was left out
    unit: str = ""
    values: dict[str, float] = field(default_factory=dict)  # of the profile
    engine: dict[str, float] = field(default_factory=dict)
    room_c: float | None = None

    @property
    def worst_left_out(self) -> float | None:
        return max(self.left_out.values(), default=None)


def mean_error(said: Sequence[float], seen: Sequence[float]) -> float:
    """Mean of absolute relative errors."""
    ratios = np.array(said) / np.array(seen) - 1.0
    return float(np.mean(np.abs(ratios)))


def leave_out(
    rows: Sequence[Row],
    key: Callable[[Row], Hashable],
    refit: Callable[[Sequence[Row]], Callable[[Row], float]],
    seen: Callable[[Row], float],
) -> float:
    """Fit without each group in turn and predict it; the mean error over all rows."""
    said: list[float] = []
    real: list[float] = []
    for group in sorted({key(row) for row in rows}, key=str):
        predict = refit([row for row in rows if key(row) != group])
        for row in rows:
            if key(row) == group:
                said.append(predict(row))
                real.append(seen(row))
    return mean_error(said, real)
