"""Errors of left-out core sets and clocks, apart for big and for little cores."""

from collections.abc import Mapping, Sequence

from agent.virtual.twin.measurements import CoreSetRow

Errors = dict[str, tuple[float, ...]]


def split_by_kind(
    rows: Sequence[CoreSetRow], left_out: Mapping[str, tuple[float, ...]]
) -> tuple[Errors, Errors]:
    """Return the errors and the weights of the rows, by what was left out and by kind of core."""
    errors: Errors = {}
    weights: Errors = {}
    for group, found in left_out.items():
        for kind in sorted({row.kind for row in rows}):
            chosen = [i for i, row in enumerate(rows) if row.kind == kind]
            errors[group_name(group, kind)] = tuple(found[i] for i in chosen)
            weights[group_name(group, kind)] = tuple(rows[i].weight for i in chosen)
    return errors, weights


def group_name(group: str, kind: str) -> str:
    return f"{group}, {kind}"
