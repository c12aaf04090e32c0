"""Report sections that rank phones: by cell, cold and hot, with intervals, and the fleet itself."""

import math
from collections.abc import Iterable, Sequence

from orchestrator.analysis.ab_comparison import Comparison
from orchestrator.analysis.findings import COLD_METRIC, SUSTAINED_METRIC
from orchestrator.analysis.fleet_means import (
    FleetMean,
    FleetMeans,
    fleet_means,
    fleet_scopes,
    heat_slowdowns,
)
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.pareto import ENERGY
from orchestrator.analysis.rank_statement import RankStatement, provenance_prefix
from orchestrator.analysis.split_half import phone_label, split_half_check
from orchestrator.analysis.trial_series import trial_series
from orchestrator.analysis.verdict_counts import count_verdicts
from orchestrator.export.report.charts import Bar, draw_bars, draw_slopes
from orchestrator.export.report.report_data import (
    Card,
    MatrixCell,
    MatrixRow,
    RankingMatrix,
    ReportData,
    Section,
    metric_text,
    unit_of,
)
from orchestrator.export.report.svg import format_short
from workloads.protocol.condition import Protocol
from workloads.text import natural_sort_key
from workloads.units import format_ms

NOTE_MAX = 26  # characters beside a bar
COLUMNS_MAX = 6  # a wider table is preceded by a summary
COARSE = MatrixCell("–", "gauge too slow", -1, "the gauge gave too few values in this short run")
NOT_RUN = MatrixCell("–", "not run", -1, "this phone has no run of this cell")
QUESTIONS = (
    (Protocol.COLD, COLD_METRIC, "Cold: step time"),
    (Protocol.ENDURANCE, SUSTAINED_METRIC, "After ten minutes of heat: step time"),
    (Protocol.SOAKED, COLD_METRIC, "Steady heat: step time"),
    (Protocol.COLD, ENERGY, "Cold: energy per sample"),
    (Protocol.ENDURANCE, ENERGY, "Ten minutes: energy per sample"),
)


def matrix_section(data: ReportData) -> Section:
    """Show which phone is best for which model: phones and cells, in time and in energy."""
    summaries, matrices = [], []
    for protocol, metric, title in QUESTIONS:
        groups = data.groups(protocol, metric)
        if len(groups) > COLUMNS_MAX:
            summaries.append(_summary_matrix(data, title, metric, protocol))
        if groups:
            matrices.append(_matrix(data, title, metric, groups))
    return Section(
        "matrix",
        "Which phone for which model",
        "Medians over valid runs, and their ratio to the best of the column. ★ marks the best; the "
        "warmer the colour, the larger the ratio. Where the order differs between columns, no "
        "phone is best for everything. Energies from a gauge that is too slow for the run are not "
        "ranked.",
        matrices=(*summaries, *matrices),
        note="" if matrices else "There is no valid run yet, so no phone can be ranked.",
    )


def _matrix(data: ReportData, title: str, metric: str, groups: list[FleetGroup]) -> RankingMatrix:
    columns = [{row.phone: row for row in group.rows} for group in groups]
    coarse = [{phone.phone for phone in group.unranked if phone.coarse_runs} for group in groups]
    unranked = {phone.phone for group in groups for phone in group.unranked}
    order = sorted(
        data.names,
        key=lambda phone: [c[phone].rank if phone in c else math.inf for c in columns],
    )
    rows = [
        MatrixRow(
            data.names[phone],
            phone,
            data.colours[phone],
            tuple(
                COARSE
                if phone in too_coarse
                else _matrix_cell(column[phone], metric)
                if phone in column
                else _missing_cell(data.cell_runs(phone, group.case, group.condition), metric)
                for column, too_coarse, group in zip(columns, coarse, groups, strict=True)
            ),
        )
        for phone in order
        if any(phone in column for column in columns) or phone in unranked
    ]
    headings = tuple((group.case.name, _settings(group), group.condition.label) for group in groups)
    return RankingMatrix(title, unit_of(metric), headings, tuple(rows))


def _summary_matrix(data: ReportData, title: str, metric: str, protocol: Protocol) -> RankingMatrix:
    """Summarise many cells: one column per workload and backend, over the cells it shares."""
    runs = data.runs_of(protocol)
    kinds = {(run.case.name, run.case.backend) for run in runs if run.valid}
    columns: dict[tuple[str, str], FleetMeans] = {}
    for kind in sorted(kinds, key=lambda kind: (natural_sort_key(kind[0]), kind[1])):
        own = [run for run in runs if (run.case.name, run.case.backend) == kind]
        means = fleet_means(own, protocol, metric, data.mix)
        columns |= {kind: means} if means.ranked else {}
    rows = [
        MatrixRow(
            data.names[phone],
            phone,
            data.colours[phone],
            tuple(
                _mean_cell(phone, means, metric)
                or _missing_cell(
                    [
                        run
                        for run in runs
                        if run.phone == phone and (run.case.name, run.case.backend) == kind
                    ],
                    metric,
                )
                for kind, means in columns.items()
            ),
        )
        for phone in sorted(data.names, key=lambda phone: _distance(phone, columns.values()))
        if any(mean.phone == phone for means in columns.values() for mean in means.ranked)
    ]
    headings = tuple(
        (
            name,
            "" if backend == "cpu" else backend,
            "one cell" if means.cells_used == 1 else f"mean of {means.cells_used} cells",
        )
        for (name, backend), means in columns.items()
    )
    return RankingMatrix(f"{title}, by model", unit_of(metric), headings, tuple(rows))


def _distance(phone: str, columns: Iterable[FleetMeans]) -> tuple[int, float]:
    """Return the sort key of a phone: the number of its columns, then its distance to the best."""
    ratios = [
        mean.value / means.ranked[0].value
        for means in columns
        for mean in means.ranked
        if mean.phone == phone
    ]
    return -len(ratios), sum(map(math.log, ratios))


def _mean_cell(phone: str, means: FleetMeans, metric: str) -> MatrixCell | None:
    mean = next((mean for mean in means.ranked if mean.phone == phone), None)
    if mean is None:
        return None
    ratio = mean.value / means.ranked[0].value
    tip = (
        f"{mean.name}: {format_ms(mean.value)} {unit_of(metric)}, geometric mean of "
        f"{means.cells_used} of {means.cells_all} cells ({mean.provenance})"
    )
    ratio_text = _ratio_text(ratio, mean is means.ranked[0])
    return MatrixCell(format_ms(mean.value), ratio_text, _shade(ratio), tip)


def _shade(ratio: float) -> int:
    return min(9, max(0, round(5 * math.log2(ratio)))) if ratio > 0 else 9


def _ratio_text(ratio: float, is_best: bool) -> str:
    return "★ best" if is_best else f"{ratio:.2f} ×"


def _settings(group: FleetGroup) -> str:
    """Return the parameters of a cell without its workload."""
    return group.case.label.removeprefix(group.case.name).strip()


def _missing_cell(runs: Sequence[MeasuredRun], metric: str) -> MatrixCell:
    """Say why a phone has no value: it did not run, its runs do not count, or lack the metric."""
    if not runs:
        return NOT_RUN
    counts = count_verdicts(runs)
    if counts.valid:
        return MatrixCell("–", "not reported", -1, f"its valid runs do not report {metric}")
    return MatrixCell("–", counts.left_out.counts, -1, counts.left_out.text)


def _matrix_cell(row: FleetRow, metric: str) -> MatrixCell:
    ratio = row.ratio or 1.0
    ratio_text, tip = _ratio_text(ratio, row.rank == 1), metric_text(row, unit_of(metric))
    return MatrixCell(format_ms(row.median), ratio_text, _shade(ratio), tip)


def ranking_section(data: ReportData) -> Section:
    """Show every cell with its phones, best first, with intervals."""
    cards = []
    for protocol, metric in ((p, m) for p, m, _ in QUESTIONS if m != ENERGY):
        for group in data.groups(protocol, metric):
            bars = [_bar(data, row, unit_of(metric)) for row in group.rows]
            text = f"{group.condition.label}; lower is better"
            drawing = draw_bars(group.label, bars, f"step time, {unit_of(metric)}")
            cards.append(Card(group.case.label, text, drawing, group.case.name))
    return Section(
        "ranking",
        "Ranking, with intervals",
        "A bar is the median over runs; the line across its end is the 95 % interval of that "
        "median (for fewer than three runs, the range). A phone is called fastest only with four "
        "runs on either side, a difference beyond both intervals, and numbers of known error.",
        cards=tuple(cards),
        note="" if cards else "There is no valid run to rank.",
    )


def _bar(data: ReportData, row: FleetRow, unit: str) -> Bar:
    known = not row.provenance.error_unknown
    return Bar(
        name=f"{row.rank}. {data.names[row.phone]}",
        phone=row.phone,
        colour=data.colours[row.phone],
        value=row.median,
        low=row.interval.low if known or row.n > 1 else None,
        high=row.interval.high if known or row.n > 1 else None,
        shown=f"{format_ms(row.median)} {unit}",
        note=_bar_note(row.statement),
        tip=f"{metric_text(row, unit)}; {row.statement.text}",
        source=str(row.provenance),
    )


def _bar_note(statement: RankStatement) -> str:
    if len(statement.text) <= NOTE_MAX:
        return statement.text
    return provenance_prefix(statement.provenance).rstrip(": ") or statement.short_text


def heat_section(data: ReportData) -> Section:
    """Show how ten minutes of heat change the order of the phones."""
    cards = []
    for scope, runs in fleet_scopes(data.runs).items():
        cold = fleet_means(runs, Protocol.COLD, COLD_METRIC, data.mix)
        hot = fleet_means(runs, Protocol.ENDURANCE, SUSTAINED_METRIC, data.mix)
        rows = [
            (
                data.names[item.cold.phone],
                item.cold.phone,
                data.colours[item.cold.phone],
                item.cold_ms,
                item.hot_ms,
                f"{item.cold.name}: {format_ms(item.cold_ms)} ms cold, {format_ms(item.hot_ms)} ms "
                f"after ten minutes, {item.ratio:.2f} times as long ({item.cold.provenance})",
            )
            for item in heat_slowdowns(cold, hot)
        ]
        if rows:
            title = f"Step time, cold and hot{f', {scope}' if scope else ''}"
            changes = _rank_changes(cold.ranked, hot.ranked)
            cards.append(Card(title, changes, draw_slopes("cold to hot", rows)))
    return Section(
        "heat",
        "Burst and sustained",
        "The same work on a cool phone and in the tenth minute without a pause (geometric mean of "
        "the cells that every phone has); the fastest is at the top.",
        cards=tuple(cards),
        note="" if cards else "No phone has both a valid cold run and a valid ten-minute run.",
        wide=True,
    )


def _rank_changes(cold: Sequence[FleetMean], hot: Sequence[FleetMean]) -> str:
    before = [mean.phone for mean in cold]
    after = [mean.phone for mean in hot]
    moved = sum(before.index(p) != rank for rank, p in enumerate(after) if p in before)
    if not moved:
        return "The order is the same cold and hot."
    return f"{moved} of {len(after)} phones change their rank."


def fleet_section(data: ReportData) -> Section:
    """Show every phone: its hardware, its control level, and its split-half check."""
    halves = {row.label: row for row in split_half_check(trial_series(data.runs)).rows}
    latest = {run.phone: run for run in sorted(data.runs, key=lambda run: run.ended_at)}
    rows = []
    for phone, run in sorted(latest.items(), key=lambda item: data.names[item[0]]):
        own = [other for other in data.runs if other.phone == phone]
        facts = run.facts
        source = facts.provenance.time if facts.provenance else None
        limits = f"; except: {', '.join(facts.uncontrolled)}" if facts.uncontrolled else ""
        rows.append(
            (
                f"{data.names[phone]} · {phone}",
                f"{facts.soc}, Android {facts.android}, {facts.ram_mb / 1024:.1f} GB",
                f"{run.control or 'unknown'}{limits}",
                f"{sum(other.valid for other in own)} of {len(own)}",
                _max_temperature(own),
                _split_half_text(halves.get(phone_label(facts.model, phone))),
                str(source or "unknown"),
            )
        )
    return Section(
        "fleet",
        "The fleet",
        "Split-half check: the odd blocks of a phone's runs compared with the even ones; the ratio "
        "should be 1.000. If it is not, the conditions of the phone were not stable.",
        headings=(
            *("Phone", "Hardware", "Control", "Valid runs", "Maximum temperature"),
            *("Split-half check", "Source of times"),
        ),
        rows=tuple(rows),
        note="" if rows else "There are no runs.",
    )


def _split_half_text(row: Comparison | None) -> str:
    if row is None:
        return "too few runs"
    interval = f", {row.low:.3f} to {row.high:.3f}" if row.low and row.high else ""
    return f"{row.ratio:.3f}{interval}: {row.verdict}"


def _max_temperature(runs: Sequence[MeasuredRun]) -> str:
    metrics = [run.metrics for run in runs if run.valid]
    temps = [each["peak_temp_c"].value for each in metrics if "peak_temp_c" in each]
    return f"{format_short(max(temps))} °C" if temps else "unknown"
