"""The tables that can be exported: figures, samples, readings, operations, outcomes, the ranking.

Every row names its run and the position of the run in the order: seed, block and position. The
first line of a docstring describes its table in docs/reference/exports.md.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import starmap

from orchestrator.analysis.fleet_ranking import FleetGroup, FleetTable
from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.analysis.op_telemetry import OpRow, op_rows
from orchestrator.analysis.set_clocks import format_cpus
from orchestrator.export.table import CellValue, Table, TableBlock, TableColumn, make_columns
from workloads.catalogue import Case, is_known, planned_ops
from workloads.lab.process_identity import software_version
from workloads.protocol.condition import Condition
from workloads.protocol.limits import MIB
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.telemetry import Telemetry

_RUN_COLUMNS = make_columns(
    "sweep seed:int trial repeat:int attempt:int block:int position:int phone model soc "
    "host workload parameters backend protocol cores freq clock_ghz gpu_clock_ghz:float cpus "
    "start_max_c:float control verdict"
)


def parameter_kinds(cases: Iterable[Case]) -> dict[str, type]:
    """Return every parameter and option of some cases; each has its own column."""
    kinds: dict[str, type] = {}
    for case in cases:
        for name, value in case.settings.items():
            kinds[name] = str if isinstance(value, str) else kinds.get(name, int)
    return dict(sorted(kinds.items()))


@dataclass(frozen=True)
class RunColumns:
    """What every row about a run begins with: its place in the order, its cell, its parameters."""

    seed: int
    parameters: Mapping[str, type] = field(default_factory=dict)  # of a sweep, text or numbers

    def table(self, name: str, columns: str, blocks: Iterable[TableBlock]) -> Table:
        """Return a table with these columns before its own."""
        more = make_columns(columns)
        taken = {column.name for column in (*_RUN_COLUMNS, *more)}
        own = (
            TableColumn(f"parameter_{name}" if name in taken else name, kind)
            for name, kind in self.parameters.items()
        )
        return Table(name, (*_RUN_COLUMNS, *own, *more), blocks)

    def values(self, run: MeasuredRun) -> list[CellValue]:
        """Return the values of a run."""
        settings = run.case.settings if self.parameters else {}
        return [
            *(run.sweep, self.seed, run.trial, run.repeat, run.attempt, run.block, run.position),
            *(run.phone, run.facts.model, run.facts.soc, run.host),
            *_cell_values(run.case, run.condition),
            *_clock_values(run.applied),
            *(str(run.control or ""), run.verdict.validity.value),
            *(
                str(settings[name]) if name in settings and kind is str else settings.get(name)
                for name, kind in self.parameters.items()
            ),
        ]


def _cell_values(case: Case, condition: Condition) -> tuple[CellValue, ...]:
    """Return what was run, and under which condition: the columns workload to freq."""
    parameters = json.dumps({**case.parameters, **case.options}, sort_keys=True)
    settings = (condition.protocol.value, condition.cores, condition.freq)
    return (case.name, parameters, case.backend, *settings)


def _clock_values(applied: AppliedCondition) -> tuple[CellValue, ...]:
    """Return what was set: the columns clock_ghz, gpu_clock_ghz, cpus and start_max_c."""
    return (
        *(applied.clock_ghz, applied.gpu_clock_ghz),
        *(format_cpus(applied.cpus), applied.start_max_c),
    )


def figures_table(first: RunColumns, runs: Iterable[MeasuredRun]) -> Table:
    """One row per run and metric; the unit has its own column."""

    def block(run: MeasuredRun) -> TableBlock:
        times = (run.started_at.isoformat(), run.ended_at.isoformat())
        programs = "; ".join(map(str, run.programs))
        rows = [
            (
                *(name, metric.value, metric.unit, metric.provenance.source.value),
                *(str(metric.provenance.model or ""), metric.provenance.error_rel, metric.grade),
            )
            for name, metric in sorted(run.metrics.items())
        ]
        shared = [
            *first.values(run),
            run.verdict.text,
            run.judged_runs,
            *times,
            programs,
            software_version(),
        ]
        return TableBlock(shared, rows)

    columns = (
        "reasons judged_runs:int started_at ended_at programs farmhand metric value:float unit "
        "source model_kind error_rel:float grade"
    )
    return first.table("figures", columns, map(block, runs))


RunTelemetry = Iterable[tuple[MeasuredRun, Telemetry]]


def samples_table(first: RunColumns, runs: RunTelemetry) -> Table:
    """One row per window of consecutive steps: its start, and the times of its steps."""

    def block(run: MeasuredRun, telemetry: Telemetry) -> TableBlock:
        windows = telemetry.windows
        start_ns = windows.t_ns[0] if windows.t_ns else 0
        rows = (
            (step, n, (t_ns - start_ns) / 1e9, ns / n / 1e6 if n else None, low / 1e6, high / 1e6)
            for step, n, t_ns, ns, low, high in zip(*vars(windows).values(), strict=True)
        )
        shared = [*first.values(run), _source(run, "step_ms")]
        return TableBlock(shared, rows, numeric_only=True)

    columns = (
        "source first_step:int steps:int t_s:float step_ms:float step_min_ms:float "
        "step_max_ms:float"
    )
    return first.table("samples", columns, starmap(block, runs))


def readings_table(first: RunColumns, runs: RunTelemetry) -> Table:
    """One row per time and sampled node of a phone, as the phone reported it."""

    def block(run: MeasuredRun, telemetry: Telemetry) -> TableBlock:
        t_ns = telemetry.readings.t_ns
        rows = (
            ((moment_ns - t_ns[0]) / 1e9, path, *_value_or_text(value))
            for path, column in telemetry.readings.columns.items()
            for moment_ns, value in zip(t_ns, column, strict=False)
            if value is not None
        )
        return TableBlock([*first.values(run), _source(run, "peak_temp_c")], rows)

    columns = "source t_s:float node value:float text"
    return first.table("readings", columns, starmap(block, runs))


def _value_or_text(value: object) -> tuple[float | None, str]:
    return (None, str(value)) if isinstance(value, str) else (float(str(value)), "")


def ops_table(first: RunColumns, runs: RunTelemetry) -> Table:
    """One row per run and operation, joined with the sensors that were sampled at that time.

    Times come from the traced steps of a run. Power, load, clocks and memory come from the sampler
    and are empty where the phone does not report them; `readings` and `method` say how well the
    sampler resolved the operation. `needs` and `planned_mb` come from the plan: the operations
    whose results it reads, and the memory of all tensors in use while it runs.
    """

    def block(run: MeasuredRun, telemetry: Telemetry) -> TableBlock:
        sources = (_source(run, "step_ms"), _source(run, "energy_per_step_mj"))
        planned = _planned(run.case)
        rows = (_op_values(op) + planned.get(op.name, ("", None)) for op in op_rows(telemetry))
        return TableBlock([*first.values(run), *sources], rows)

    columns = (
        "source energy_source operation kind steps:int time_ms:float share:float readings:int "
        "method energy_mj:float power_w:float power_error_w:float util_pct:float "
        "core_util_pct gpu_util_pct:float clock_mhz gpu_clock_mhz:float memory_mb:float "
        "rails_w needs planned_mb:float"
    )
    return first.table("ops", columns, (block(run, each) for run, each in runs if each.traces))


def _planned(case: Case) -> dict[str, tuple[str, float | None]]:
    """Return what the plan of a workload knows of each operation, by name."""
    if case.manifest is not None or not is_known(case):
        return {}
    ops = planned_ops(case.workload, tuple(sorted(case.parameters.items())), case.backend)
    names = list(ops)
    return {
        name: (" ".join(names[number] for number in op.needs), _round(op.live_bytes / MIB))
        for name, op in ops.items()
    }


def _op_values(op: OpRow) -> tuple[CellValue, ...]:
    return (
        *(op.name, op.kind, op.steps, _round(op.ms), _round(op.share), op.readings),
        *(op.method.value, _round(op.energy_mj), _round(op.power_w)),
        *(_round(op.power_error_w), _round(op.util_pct)),
        " ".join(f"{cpu}:{pct:.0f}" for cpu, pct in sorted(op.core_util_pct.items())),
        _round(op.gpu_util_pct),
        " ".join(f"{policy}:{mhz:.0f}" for policy, mhz in sorted(op.clock_mhz.items())),
        *(_round(op.gpu_clock_mhz), _round(op.memory_mb)),
        " ".join(f"{rail}:{watts:.3g}" for rail, watts in sorted(op.rails_w.items())),
    )


def _source(run: MeasuredRun, metric: str) -> str:
    return str(run.metrics[metric].provenance.source) if metric in run.metrics else ""


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def outcomes_table(seed: int, outcomes: Iterable[RunOutcome]) -> Table:
    """One row per planned run, with or without metrics.

    That a run fits into memory, swaps, is killed or was never tried is a finding, too.
    """
    columns = make_columns(
        "seed:int trial repeat:int block:int position:int phone workload parameters backend "
        "protocol cores freq clock_ghz gpu_clock_ghz:float cpus start_max_c:float state verdict "
        "memory peak_rss_mb:float peak_rss_source why"
    )
    rows = (
        (
            *(outcome.trial, outcome.repeat, outcome.block, outcome.position, outcome.phone),
            *_cell_values(outcome.case, outcome.condition),
            *_clock_values(outcome.applied),
            *(outcome.state.value, str(outcome.validity or "")),
            *(str(outcome.memory_outcome or ""), outcome.peak_rss_mb),
            *(outcome.peak_rss_source, outcome.note),
        )
        for outcome in outcomes
    )
    return Table("outcomes", columns, [TableBlock([seed], rows)])


def ranking_table(seed: int, tables: Iterable[FleetTable]) -> Table:
    """One row per cell and phone, each with its provenance.

    Phones without a run that counts have a row without a rank.
    """
    columns = make_columns(
        "workload parameters backend protocol cores freq metric unit seed:int rank:int phone "
        "model soc clock_ghz gpu_clock_ghz:float cpus start_max_c:float n:int median:float "
        "low:float high:float interval ratio:float suspect:int void:int control source model_kind "
        "error_rel:float claim"
    )
    blocks = (
        TableBlock(
            [*_cell_values(group.case, group.condition), table.metric, table.unit, seed],
            _ranking_rows(group),
        )
        for table in tables
        for group in table.groups
    )
    return Table("ranking", columns, blocks)


def _ranking_rows(group: FleetGroup) -> Iterator[tuple[CellValue, ...]]:
    for row in group.rows:
        yield (
            *(row.rank, row.phone, row.model, row.soc, *_clock_values(row.applied)),
            *(row.n, row.median),
            *(*(row.interval.known_ends or (None, None)), row.interval.kind.value, row.ratio),
            *(row.suspect, row.void, str(row.control or ""), row.provenance.source.value),
            *(str(row.provenance.model or ""), row.provenance.error_rel, row.statement.text),
        )
    for phone in group.unranked:
        no_values: list[CellValue] = [None] * 3
        yield (
            *(None, phone.phone, phone.model, phone.soc, *_clock_values(phone.applied)),
            *(0, *no_values, "", None),
            *(phone.suspect, phone.void, "", "", "", None, phone.reason.value),
        )
