"""Fits a twin to a user's own sweep: the table of `farm export SWEEP`, measured on a real phone.

Only scales of the phone are fitted: the speed of each kind of core, memory, and power. Each cell is
also predicted from a fit without its workload, core set and clock, so that the error after the fit
is one for cells that were not measured.
"""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from agent.virtual.engines import engine_for
from agent.virtual.physics.cpu_cluster import CpuCluster
from agent.virtual.profiles import PhoneProfile, load_profile, profile_path
from agent.virtual.twin.cores_and_clocks import UnknownCondition
from agent.virtual.twin.fit_result import FitResult, leave_out_each, mean_error
from agent.virtual.twin.least_squares import Array, Prior, Values, solve_least_squares
from agent.virtual.twin.offline_model import OfflineModel, bind_parameters

_METRICS = ("step_ms", "power_w")
_COUNTED = "valid"  # the verdict of a run that counts
_FREE = ("free", "fixed", "")
_SPREAD = {"step_ms": 0.05, "power_w": 0.08}
_SETTLE_S = 10.0
_ROWS_MAX = 100_000


class InvalidSweep(ValueError):
    """A file that cannot be used, in one sentence."""


@dataclass(frozen=True, slots=True)
class SweepCell:
    """The median of one metric over the runs of a cell."""

    workload: str
    parameters: tuple[tuple[str, int], ...]
    cores: str
    freq: str | None
    metric: str
    value: float


def read_sweep(path: Path, model: str = "") -> list[SweepCell]:
    """Read step times and power of valid runs of one phone model, measured on its cores."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row, _ in zip(csv.DictReader(file), range(_ROWS_MAX), strict=False)]
        values: dict[SweepCell, list[float]] = {}
        for row in rows:
            if (
                row["metric"] in _METRICS
                and row["verdict"] == _COUNTED
                and row["backend"] == "cpu"
                and model in ("", row["model"])
            ):
                values.setdefault(_cell(row), []).append(float(row["value"]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidSweep(f"{path.name}: {error}") from None
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidSweep(f"{path.name} is not a table of 'farm export SWEEP': {error}") from None
    if not values:
        raise InvalidSweep(
            f"{path.name} has no step_ms or power_w of a valid CPU run; export figures"
        )
    return [
        SweepCell(cell.workload, cell.parameters, cell.cores, cell.freq, cell.metric, median(found))
        for cell, found in values.items()
    ]


def fit_sweep(
    profile: PhoneProfile, cells: Sequence[SweepCell]
) -> tuple[list[float], list[FitResult]]:
    """Return the mean errors before the fit by metric, and the fits; times before power."""
    before, fits, fitted = [], [], profile
    for metric in _METRICS:
        rows = [cell for cell in cells if cell.metric == metric]
        if rows:
            measured = [row.value for row in rows]
            before.append(mean_error([predict_cell(profile, row) for row in rows], measured))
            fits.append(_fit_metric(fitted, rows, metric))
            fitted = fitted.with_values(fits[-1].values)
    return before, fits


def _fit_metric(profile: PhoneProfile, rows: Sequence[SweepCell], metric: str) -> FitResult:
    priors = _priors(profile, rows, metric)

    def fit_rows(chosen: Sequence[SweepCell]) -> PhoneProfile:
        def residuals(values: Values) -> Array:
            candidate = profile.with_values(values)
            ratios = [predict_cell(candidate, row) / row.value for row in chosen]
            return np.asarray(np.log(ratios) / _SPREAD[metric])

        found.update(solve_least_squares(residuals, priors) if chosen else {})
        return profile.with_values(found)

    def refit(chosen: Sequence[SweepCell]) -> Callable[[SweepCell], float]:
        candidate = fit_rows(chosen) if chosen else profile
        return lambda row: predict_cell(candidate, row)

    found: Values = {}
    left_out = leave_out_each(
        rows,
        {
            "model": lambda row: row.workload,
            "core set": lambda row: row.cores,
            "clock": lambda row: str(row.freq),
        },
        refit,
        lambda row: row.value,
    )
    best = fit_rows(rows)
    fit_error = mean_error([predict_cell(best, row) for row in rows], [row.value for row in rows])
    family = "time" if metric == "step_ms" else "energy"
    return FitResult(metric, family, len(rows), fit_error, left_out, values=dict(found))


def predict_cell(profile: PhoneProfile, cell: SweepCell) -> float:
    """Predict the metric of a cell."""
    try:
        step = bind_parameters(cell.workload, cell.parameters)
        model = OfflineModel(profile, step, cell.cores, cell.freq, engine_for(cell.workload))
    except UnknownCondition as error:
        raise InvalidSweep(f"{profile.name} cannot run a cell of the sweep: {error}") from None
    if cell.metric == "step_ms":
        return model.timing.seconds * 1e3
    model.advance(_SETTLE_S)
    return model.soc.system_w()


def _priors(profile: PhoneProfile, rows: Sequence[SweepCell], metric: str) -> dict[str, Prior]:
    """Return the figures to fit: present value, and how far it may be wrong."""
    if metric == "power_w":
        return {
            "heat.idle_w": Prior(profile.heat.idle_w, 0.3),
            "heat.vector_factor": Prior(profile.heat.vector_factor, 0.3),
            "memory.cache_watts_per_gbs": Prior(profile.memory.cache_watts_per_gbs, 0.5),
        }
    used = {cluster.profile.role for row in rows for cluster in _used_clusters(profile, row)}
    speeds = {
        f"cluster.{part.role}.flops_per_cycle": Prior(part.flops_per_cycle, 0.4)
        for part in profile.cluster
        if part.role in used
    }
    memory = profile.memory
    return speeds | {
        "memory.bandwidth_gbs": Prior(memory.bandwidth_gbs, 0.3),
        "memory.core_gbs": Prior(memory.core_gbs, 0.3),
        "memory.cache_gbs": Prior(memory.cache_gbs, 0.3),
    }


def _used_clusters(profile: PhoneProfile, row: SweepCell) -> list[CpuCluster]:
    step = bind_parameters(row.workload, row.parameters)
    model = OfflineModel(profile, step, row.cores, row.freq)
    return [model.soc.cluster_of(cpu) for cpu in model.load.shares]


def _cell(row: dict[str, str]) -> SweepCell:
    parameters = json.loads(row["parameters"])
    return SweepCell(
        row["workload"],
        tuple(
            sorted((name, value) for name, value in parameters.items() if isinstance(value, int))
        ),
        row["cores"],
        None if row["freq"] in _FREE else row["freq"].removesuffix("kHz"),
        row["metric"],
        0.0,
    )


def format_fits(fits: Sequence[FitResult]) -> list[str]:
    """Return the table for people."""
    lines = [f"{'quantity':<20} {'rows':>4} {'fit error':>10}  left out"]
    for fit in fits:
        left_out = [
            f"{_format_error(fit, fit.mean_left_out(group))} by {group}" for group in fit.left_out
        ]
        lines.append(
            f"{fit.quantity:<20} {fit.rows:>4} {_format_error(fit, fit.fit_error):>10}  "
            f"{', '.join(left_out) or 'nothing left out'}"
        )
    return lines


def _format_error(fit: FitResult, error: float) -> str:
    return f"{error:.2f} K" if fit.unit == "K" else f"{error:.1%}"


def fitted_document(profile_id: str, data: str, fits: Sequence[FitResult]) -> str:
    """Return a profile with values fitted to a sweep; its own earlier fit counts as given."""
    profile = load_profile(profile_id)
    values = dict(profile.fitted.values) if profile.fitted else {}
    values |= {path: value for fit in fits for path, value in fit.values.items()}
    lines = [
        given_figures(profile_id),
        "# Written by `farm virtual calibrate --sweep`.",
        "[fitted]",
        f"measurements_file = {json.dumps(data)}",
        "",
        "[fitted.values]",
        *(f'"{path}" = {value:.5g}' for path, value in values.items()),
        *(f"# {line}" for line in format_fits(fits)),
    ]
    return "\n".join(lines) + "\n"


def given_figures(profile_id: str) -> str:
    """Return the text of a profile without the block of an earlier fit."""
    text = profile_path(profile_id).read_text(encoding="utf-8")
    return text.partition("\n# Written by `")[0].rstrip() + "\n"
