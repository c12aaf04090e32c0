"""Operations as CSV: one row per run and operation, joined with what was sampled beside it.

Times come from the traced steps of a run. Energy, utilisation and clock are what the sampler saw
while the operation ran; they are empty where the phone offers none.
"""

import csv
from collections.abc import Iterable
from typing import TextIO

from orchestrator.export.cell import text_cell
from orchestrator.nouns import MeasuredRun
from workloads.timeline import OpRow

COLUMNS = (
    "sweep",
    "trial",
    "repeat",
    "phone",
    "model",
    "workload",
    "cores",
    "freq",
    "verdict",
    "source",
    "energy_source",
    "operation",
    "kind",
    "steps",
    "time_ms",
    "share",
    "energy_mj",
    "power_w",
    "util_pct",
    "clock_mhz",
    "rails_w",
)


def write_ops_csv(runs: Iterable[tuple[MeasuredRun, tuple[OpRow, ...]]], stream: TextIO) -> int:
    """Write the operations of some runs; answer how many rows."""
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    rows = 0
    for run, ops in runs:
        for op in ops:
            writer.writerow([*_run_cells(run), *_op_cells(op)])
            rows += 1
    return rows


def _run_cells(run: MeasuredRun) -> list[str | int]:
    return [
        text_cell(run.sweep),
        text_cell(run.trial),
        run.repeat,
        text_cell(run.phone),
        text_cell(run.facts.model),
        text_cell(run.case.label),
        text_cell(run.condition.cores),
        text_cell(run.condition.freq),
        text_cell(run.verdict.standing),
        text_cell(_source(run, "step_ms")),
        text_cell(_source(run, "energy_j")),
    ]


def _op_cells(op: OpRow) -> list[str | int | float | None]:
    clocks = " ".join(f"{policy}:{mhz:.0f}" for policy, mhz in sorted(op.clock_mhz.items()))
    return [
        text_cell(op.name),
        text_cell(op.kind),
        op.steps,
        _rounded(op.ms),
        _rounded(op.share),
        _rounded(op.energy_mj),
        _rounded(op.power_w),
        _rounded(op.util_pct),
        text_cell(clocks),
        text_cell(" ".join(f"{rail}:{watts:.3g}" for rail, watts in sorted(op.rails_w.items()))),
    ]


def _source(run: MeasuredRun, metric: str) -> str:
    return str(run.metrics[metric].provenance.source) if metric in run.metrics else ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
