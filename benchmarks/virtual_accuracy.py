"""Measures how far virtual phones are from measurements, and whether their stated errors hold.

Every row is predicted from a fit that has not seen it. Per group the median error is printed, and
the share of rows inside the stated 95 % intervals with a binomial test of that share. The test
takes rows as independent, which rows of one cluster are not, so it is stricter than needed.

    python -m benchmarks.virtual_accuracy [--json FILE]
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from agent.virtual.socs import load_soc, soc_ids
from agent.virtual.twin.core_power_model import family_model, running_rows
from agent.virtual.twin.curve_error import LeftOut, LeftOutRow, cross_validate

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """One group of left-out rows."""

    quantity: str
    left_out: str
    rows: int
    median_error: float
    covered: int
    p: float  # of the number covered, if each row is covered with 95 %


def binomial_p(covered: int, rows: int, level: float = LEVEL) -> float:
    """Return the two-sided p-value: outcomes that are no more probable than the one seen."""
    logs = [
        math.lgamma(rows + 1)
        - math.lgamma(k + 1)
        - math.lgamma(rows - k + 1)
        + k * math.log(level)
        + (rows - k) * math.log(1 - level)
        for k in range(rows + 1)
    ]
    return min(1.0, sum(math.exp(log) for log in logs if log <= logs[covered] + 1e-9))


def core_power_figures() -> list[GroupFigures]:
    """Return the errors of the power of one core, by what was left out."""
    socs = [load_soc(soc_id) for soc_id in soc_ids()]
    return [
        _group("power of one core", left_out, list(cross_validate(socs, left_out)))
        for left_out in LeftOut
    ]


def fit_error() -> float:
    """Return the median error of the model on the rows that it was fitted to."""
    errors = []
    for soc in (load_soc(soc_id) for soc_id in soc_ids()):
        for part in soc.cluster:
            if part.curve:
                clocks, log_mw = running_rows(part)
                estimate = family_model().estimate(soc, part, clocks.tolist())
                errors += [
                    abs(float(mw) / math.exp(log) - 1)
                    for mw, log in zip(estimate.milliwatts, log_mw, strict=True)
                ]
    return median(errors)


def _group(quantity: str, left_out: str, rows: Sequence[LeftOutRow]) -> GroupFigures:
    covered = sum(row.is_covered for row in rows)
    return GroupFigures(
        quantity,
        str(left_out),
        len(rows),
        median(abs(math.exp(row.log_error) - 1) for row in rows),
        covered,
        binomial_p(covered, len(rows)),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Errors of virtual phones on left-out rows.")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    print(f"power of one core, fitted rows: median error {fit_error():.1%}")
    figures = core_power_figures()
    print(f"{'quantity':<20} {'left out':<20} {'rows':>5} {'median':>7} {'in 95 %':>8} {'p':>6}")
    for group in figures:
        print(
            f"{group.quantity:<20} {group.left_out:<20} {group.rows:>5} {group.median_error:>7.1%} "
            f"{group.covered / group.rows:>8.1%} {group.p:>6.3f}"
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(group) for group in figures], indent=1) + "\n")


if __name__ == "__main__":
    main()
