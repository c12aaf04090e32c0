"""Errors of left-out core sets and clocks, apart for big and for little cores."""

from collections.abc import Callable, Hashable, Sequence

from agent.virtual.twin.fit_result import leave_out_each
from agent.virtual.twin.simulated_provenance import group_name
from benchmarks.phone_fits.measurements import CoreSetRow

Errors = dict[str, tuple[float, ...]]
_GROUPS: dict[str, Callable[[CoreSetRow], Hashable]] = {
    "core set": lambda row: (row.cores, row.freq),
    "clock": lambda row: row.freq,
}


def leave_out_sets(
    rows: Sequence[CoreSetRow],
    refit: Callable[[Sequence[CoreSetRow]], Callable[[CoreSetRow], float]],
    measured_value: Callable[[CoreSetRow], float],
) -> tuple[Errors, Errors]:
    """Return the errors and the weights of the rows, by what was left out and by kind of core."""
    errors: Errors = {}
    weights: Errors = {}
    left_out = leave_out_each(rows, _GROUPS, refit, measured_value)
    for group, found in left_out.items():
        for kind in sorted({row.kind for row in rows}):
            chosen = [i for i, row in enumerate(rows) if row.kind == kind]
            errors[group_name(group, kind)] = tuple(found[i] for i in chosen)
            weights[group_name(group, kind)] = tuple(rows[i].weight for i in chosen)
    return errors, weights
