"""Measures how far virtual phones are from measurements, and whether their stated errors hold.

Every row is predicted from a fit that has not seen it. Per group the median error is printed, and
the share of rows inside the stated 95 % intervals with a binomial test of that share. The test
takes rows as independent, which rows of one cluster are not, so it is stricter than needed.

    python -m benchmarks.virtual_accuracy [--phones] [--json FILE]

With --phones it also refits the phones that were measured, which takes three minutes.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np

from agent.virtual.profiles import load_profile
from agent.virtual.socs import load_soc, soc_ids
from agent.virtual.twin.core_power_model import family_model, running_rows
from agent.virtual.twin.curve_error import LeftOut
from agent.virtual.twin.fit_result import ERROR_QUANTILE, FitResult, stated_error
from agent.virtual.twin.gpu_error import left_out_errors
from benchmarks.curve_cross_validation import LeftOutPoint, cross_validate
from benchmarks.phone_fits.fit_heat import simulate_trace, throttling_cycles
from benchmarks.phone_fits.fit_phones import fit_phone
from benchmarks.phone_fits.measurements import load_measurements

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
    rank: float | None = None  # correlation of ranks, where rows can be compared


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


def phone_figures() -> list[GroupFigures]:
    """Return the errors of step times and power of the Meizu 16T, by what was left out."""
    figures = []
    for fit in fit_phone("meizu-16t"):
        merged: dict[str, list[float]] = {}
        for group, found in fit.left_out.items() if fit.family != "memory" else ():
            merged.setdefault(group.partition(",")[0], []).extend(found)  # big cores first, as rows
        for left_out, errors in merged.items():
            figures.append(_log_group(fit.quantity, left_out, errors, _rank(fit, errors)))
    return figures


def gpu_figures() -> list[GroupFigures]:
    """Return the errors of what a step on a GPU consists of, on GPUs that were left out."""
    errors = left_out_errors()
    parts = {
        "GPU kernels": errors.kernels,
        "GPU starts": errors.starts,
        "GPU copies": errors.copies,
    }
    return [_log_group(name, "GPU", list(logs)) for name, logs in parts.items()]


def _rank(fit: FitResult, errors: Sequence[float]) -> float:
    """Return Spearman's rank correlation of left-out predictions with measurements."""
    rows = load_measurements("meizu-16t")
    measured = {
        "step time": [row.step_ms for row in rows.step],
        "time by core set": [row.seconds for row in rows.core_set],
        "power": [row.power_w for row in rows.power],
        "power by core set": [row.power_w for row in rows.core_set],
    }[fit.quantity]
    predicted = [value * math.exp(error) for value, error in zip(measured, errors, strict=True)]
    return float(np.corrcoef(_ranks(measured), _ranks(predicted))[0, 1])


def _ranks(values: Sequence[float]) -> list[int]:
    ordered = sorted(values)
    return [ordered.index(value) for value in values]


def trace_figures() -> str:
    """Return how the Galaxy S8+ compares with its recorded run, as one line."""
    profile, measured = load_profile("samsung-s8-plus"), load_measurements("samsung-s8-plus")
    temps, _ = simulate_trace(profile, [moment for moment, _ in measured.battery_c])
    worst = max(abs(temp - c) for temp, (_, c) in zip(temps, measured.battery_c, strict=True))
    _, clocks = simulate_trace(profile, [10.0 * n for n in range(540)])
    settled = fmean(clocks[360:]) / measured.plateau_khz - 1
    return (
        f"S8+: {throttling_cycles(clocks[:150])} throttling cycles in 1500 s, "
        f"{throttling_cycles(clocks[:200])} in 2000 s; battery within {worst:.2f} K of the trace; "
        f"settled clock {settled:+.1%} of the recorded plateau"
    )


def _log_group(
    quantity: str, left_out: str, errors: list[float], rank: float | None = None
) -> GroupFigures:
    """Return the figures of a group; the interval of each row comes from the other rows."""
    covered = sum(
        abs(error) <= ERROR_QUANTILE * stated_error([*errors[:i], *errors[i + 1 :]])
        for i, error in enumerate(errors)
    )
    middle = median(abs(math.exp(error) - 1) for error in errors)
    p = binomial_p(covered, len(errors))
    return GroupFigures(quantity, left_out, len(errors), middle, covered, p, rank)


def _group(quantity: str, left_out: str, rows: Sequence[LeftOutPoint]) -> GroupFigures:
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
    parser.add_argument("--phones", action="store_true", help="also refit measured phones")
    options = parser.parse_args(arguments)
    print(f"power of one core, fitted rows: median error {fit_error():.1%}")
    print(trace_figures())
    figures = core_power_figures() + gpu_figures() + (phone_figures() if options.phones else [])
    heading = f"{'quantity':<20} {'left out':<20} {'rows':>5} {'median':>7}"
    print(f"{heading} {'in 95 %':>8} {'p':>6} {'rank':>5}")
    for group in figures:
        print(
            f"{group.quantity:<20} {group.left_out:<20} {group.rows:>5} {group.median_error:>7.1%} "
            f"{group.covered / group.rows:>8.1%} {group.p:>6.3f} "
            f"{'' if group.rank is None else format(group.rank, '5.2f'):>5}"
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(group) for group in figures], indent=1) + "\n")


if __name__ == "__main__":
    main()
