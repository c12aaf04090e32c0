"""What can be exported as a table: figures, samples, readings, operations, outcomes, the ranking.

Every row names its run and the place of that run in the order: seed, block and position.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.analysis.compare import FleetGroup, FleetRow, FleetTable
from orchestrator.export.table import Block, Cell, Table, columns
from orchestrator.nouns import MeasuredRun, RunOutcome
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.timeline import OpRow

_RUN = columns(
    sweep=str,
    seed=int,
    trial=str,
    repeat=int,
    attempt=int,
    block=int,
    position=int,
    phone=str,
    model=str,
    soc=str,
    host=str,
    workload=str,
    parameters=str,
    backend=str,
    protocol=str,
    cores=str,
    freq=str,
    control=str,
    verdict=str,
)


def _what(case: Case, condition: Condition) -> tuple[Cell, ...]:
    """What was run, and under which condition: workload to freq."""
    parameters = json.dumps(case.parameters, sort_keys=True)
    asked = (condition.protocol.value, condition.cores, condition.freq)
    return (case.name, parameters, case.backend, *asked)


def _run(seed: int, run: MeasuredRun) -> list[Cell]:
    return [
        run.sweep,
        seed,
        run.trial,
        run.repeat,
        run.attempt,
        run.block,
        run.position,
        run.phone,
        run.facts.model,
        run.facts.soc,
        run.host,
        *_what(run.case, run.condition),
        str(run.control or ""),
        run.verdict.standing.value,
    ]


def figures_table(seed: int, runs: Iterable[MeasuredRun]) -> Table:
    """One row per run and metric, so that no unit hides in a heading."""
    own = columns(
        reasons=str,
        started_at=str,
        ended_at=str,
        metric=str,
        value=float,
        unit=str,
        source=str,
        model_kind=str,
        error_rel=float,
        grade=str,
    )
    return Table("figures", (*_RUN, *own), (_figures(seed, run) for run in runs))


def _figures(seed: int, run: MeasuredRun) -> Block:
    times = (run.started_at.isoformat(), run.ended_at.isoformat())
    shared = [*_run(seed, run), "; ".join(run.verdict.reasons), *times]
    rows = [
        (
            name,
            metric.value,
            metric.unit,
            metric.provenance.source.value,
            str(metric.provenance.model or ""),
            metric.provenance.error_rel,
            metric.grade,
        )
        for name, metric in sorted(run.metrics.items())
    ]
    return Block(shared, rows)


Told = Iterable[tuple[MeasuredRun, dict[str, Any]]]  # runs with their unpacked telemetry


def samples_table(seed: int, runs: Told) -> Table:
    """One row per window of consecutive steps: when it began, and how long its steps took."""
    own = columns(
        source=str,
        first_step=int,
        steps=int,
        t_s=float,
        step_ms=float,
        step_min_ms=float,
        step_max_ms=float,
    )
    return Table("samples", (*_RUN, *own), (_samples(seed, run, told) for run, told in runs))


def _samples(seed: int, run: MeasuredRun, told: dict[str, Any]) -> Block:
    windows = told.get("windows", {})
    names = ("first", "n", "t_ns", "ns", "ns_min", "ns_max")
    lists = [windows.get(name, []) for name in names]
    began = lists[2][0] if lists[2] else 0
    rows = (
        (first, n, (t - began) / 1e9, ns / n / 1e6 if n else None, least / 1e6, most / 1e6)
        for first, n, t, ns, least, most in zip(*lists, strict=False)
    )
    return Block([*_run(seed, run), _source(run, "step_ms")], rows, plain=True)


def readings_table(seed: int, runs: Told) -> Table:
    """One row per moment and sampled node of a phone, as the phone told it."""
    own = columns(source=str, t_s=float, node=str, value=float, text=str)
    return Table("readings", (*_RUN, *own), (_readings(seed, run, told) for run, told in runs))


def _readings(seed: int, run: MeasuredRun, told: dict[str, Any]) -> Block:
    readings = told.get("readings", {})
    moments = readings.get("t_ns", [])
    rows = (
        ((t - moments[0]) / 1e9, path, *_value_or_text(value))
        for path, column in zip(
            readings.get("paths", []), readings.get("columns", []), strict=False
        )
        for t, value in zip(moments, column, strict=False)
        if value is not None
    )
    return Block([*_run(seed, run), _source(run, "peak_temp_c")], rows)


def _value_or_text(value: object) -> tuple[float | None, str]:
    return (None, str(value)) if isinstance(value, str) else (float(str(value)), "")


def ops_table(seed: int, runs: Iterable[tuple[MeasuredRun, tuple[OpRow, ...]]]) -> Table:
    """One row per run and operation, joined with what was sampled beside it.

    Times come from the traced steps of a run; energy, load and clock are what the sampler saw
    while the operation ran, and are empty where the phone offers none.
    """
    own = columns(
        source=str,
        energy_source=str,
        operation=str,
        kind=str,
        steps=int,
        time_ms=float,
        share=float,
        energy_mj=float,
        power_w=float,
        util_pct=float,
        clock_mhz=str,
        rails_w=str,
    )
    return Table("ops", (*_RUN, *own), (_ops(seed, run, ops) for run, ops in runs))


def _ops(seed: int, run: MeasuredRun, ops: tuple[OpRow, ...]) -> Block:
    shared = [*_run(seed, run), _source(run, "step_ms"), _source(run, "energy_j")]
    rows = [
        (
            op.name,
            op.kind,
            op.steps,
            _rounded(op.ms),
            _rounded(op.share),
            _rounded(op.energy_mj),
            _rounded(op.power_w),
            _rounded(op.util_pct),
            " ".join(f"{policy}:{mhz:.0f}" for policy, mhz in sorted(op.clock_mhz.items())),
            " ".join(f"{rail}:{watts:.3g}" for rail, watts in sorted(op.rails_w.items())),
        )
        for op in ops
    ]
    return Block(shared, rows)


def _source(run: MeasuredRun, metric: str) -> str:
    return str(run.metrics[metric].provenance.source) if metric in run.metrics else ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def outcomes_table(seed: int, outcomes: Iterable[RunOutcome]) -> Table:
    """One row per run that was planned, whether it came to figures or not.

    What fits, what swaps, what is killed and what was never tried are findings like any other.
    """
    own = columns(
        seed=int,
        trial=str,
        repeat=int,
        block=int,
        position=int,
        phone=str,
        workload=str,
        parameters=str,
        backend=str,
        protocol=str,
        cores=str,
        freq=str,
        state=str,
        verdict=str,
        memory=str,
        peak_rss_mb=float,
        why=str,
    )
    rows = (
        (
            each.trial,
            each.repeat,
            each.block,
            each.position,
            each.phone,
            *_what(each.case, each.condition),
            each.state.value,
            str(each.verdict or ""),
            str(each.fit or ""),
            each.peak_rss_mb,
            each.why,
        )
        for each in outcomes
    )
    return Table("outcomes", own, [Block([seed], rows)])


def ranking_table(seed: int, tables: Iterable[FleetTable]) -> Table:
    """One row per cell and phone, each saying where its number comes from.

    Phones without a run that counts stand there too, without a rank.
    """
    own = columns(
        workload=str,
        parameters=str,
        backend=str,
        protocol=str,
        cores=str,
        freq=str,
        metric=str,
        unit=str,
        seed=int,
        rank=int,
        phone=str,
        model=str,
        soc=str,
        n=int,
        median=float,
        low=float,
        high=float,
        interval=str,
        ratio=float,
        suspect=int,
        void=int,
        control=str,
        source=str,
        model_kind=str,
        error_rel=float,
        claim=str,
    )
    blocks = (
        Block([*_cell(table, group), seed], _ranked(group))
        for table in tables
        for group in table.groups
    )
    return Table("ranking", own, blocks)


def _cell(table: FleetTable, group: FleetGroup) -> list[Cell]:
    return [*_what(group.case, group.condition), table.metric, table.unit]


def _ranked(group: FleetGroup) -> Iterator[tuple[Cell, ...]]:
    for row in group.rows:
        yield (
            *(row.rank, row.phone, row.model, row.soc, row.n, row.median),
            *(row.interval.low, row.interval.high, row.interval.kind.value, row.ratio),
            *(row.suspect, row.void, str(row.control or ""), row.provenance.source.value),
            *(str(row.provenance.model or ""), row.provenance.error_rel, row.claim),
        )
    for absent in group.absent:
        nothing: list[Cell] = [None] * 3
        yield (
            *(None, absent.phone, absent.model, absent.soc, 0, *nothing, "", None),
            *(absent.suspect, absent.void, "", "", "", None, absent.why),
        )


def paper_table(name: str, tables: Iterable[FleetTable]) -> Table:
    """The ranking as people print it: what a reader needs, and a caption that says the rest."""
    own = columns(workload=str, condition=str, metric=str, phone=str, soc=str)
    own += columns(median=float, interval=str, times_the_best=float, runs=int)
    tables = list(tables)
    blocks = [
        Block([group.case.label, group.condition.label, table.metric], rows)
        for table in tables
        for group in table.groups
        if (rows := [_printed(row) for row in group.rows])
    ]
    made = sorted({str(r.provenance) for t in tables for g in t.groups for r in g.rows})
    caption = (
        f"Sweep {name}: medians over valid runs with their 95 % intervals (of fewer than three "
        "runs their range); "
        f"source of the figures: {', '.join(made)}."
    )
    return Table("ranking", own, blocks, caption)


def _printed(row: FleetRow) -> tuple[Cell, ...]:
    from workloads.units import format_ms

    interval = f"{format_ms(row.interval.low)} to {format_ms(row.interval.high)}"
    return (row.model, row.soc, row.median, interval, row.ratio, row.n)
