"""The sections that rank: who is best for what, before the heat and after it, and how surely."""

import math
from collections.abc import Iterable, Sequence

from orchestrator.analysis.findings import COLD_METRIC, SUSTAINED_METRIC
from orchestrator.analysis.fleet_means import FleetMean, FleetMeans, fleet_means, heat_slowdowns
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.rank_statement import RankStatement, provenance_prefix
from orchestrator.analysis.split_half import phone_label, split_half_check
from orchestrator.analysis.trial_series import trial_series
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
from orchestrator.export.report.svg import Bar, ranked, short, slopes
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import SimulationModel
from workloads.text import natural_sort_key
from workloads.units import format_ms

ENERGY = "energy_per_sample_mj"
NOTE_MAX = 26  # characters beside a bar
MANY = 6  # columns; beyond them a table is too wide to be seen at once
COARSE = MatrixCell("–", "gauge too slow", -1, "its gauge gave too few values in so short a run")
QUESTIONS = (
    (Protocol.COLD, COLD_METRIC, "Cold: time of a step"),
    (Protocol.ENDURANCE, SUSTAINED_METRIC, "After ten minutes of heat: time of a step"),
    (Protocol.SOAKED, COLD_METRIC, "Steady heat: time of a step"),
    (Protocol.COLD, ENERGY, "Cold: energy of a sample"),
    (Protocol.ENDURANCE, ENERGY, "Ten minutes: energy of a sample"),
)


def interaction(scene: ReportData) -> Section:
    """Which phone for which model: phones against cells, in time and in energy."""
    summaries, matrices = [], []
    for protocol, metric, title in QUESTIONS:
        groups = scene.groups(protocol, metric)
        if len(groups) > MANY:
            summaries.append(_by_workload(scene, title, metric, protocol))
        if groups:
            matrices.append(_matrix(scene, title, metric, groups))
    return Section(
        "matrix",
        "Which phone for which model",
        "Medians over valid runs, and how many times the best of the column. ★ is the best; the "
        "warmer the colour, the farther from it. Where the order differs between columns, no phone "
        "is best for everything. An energy of a gauge too slow for its run ranks nobody.",
        matrices=(*summaries, *matrices),
        note="" if matrices else "There is no valid run yet, so nobody can be ranked.",
    )


def _matrix(scene: ReportData, title: str, metric: str, groups: list[FleetGroup]) -> RankingMatrix:
    columns = [{row.phone: row for row in group.rows} for group in groups]
    coarse = [{each.phone for each in group.unranked if each.coarse_runs} for group in groups]
    order = sorted(scene.names, key=lambda phone: [_rank(column.get(phone)) for column in columns])
    rows = [
        MatrixRow(
            scene.names[phone],
            phone,
            scene.colours[phone],
            tuple(
                COARSE if phone in slow else _matrix_cell(column.get(phone), metric)
                for column, slow in zip(columns, coarse, strict=True)
            ),
        )
        for phone in order
        if any(phone in known for known in (*columns, *coarse))
    ]
    headings = tuple((group.case.name, _settings(group), group.condition.label) for group in groups)
    return RankingMatrix(title, unit_of(metric), headings, tuple(rows))


def _by_workload(scene: ReportData, title: str, metric: str, protocol: Protocol) -> RankingMatrix:
    """Many cells in one look: a workload a column, over the cells that its phones share."""
    workloads = sorted(
        {run.case.name for run in scene.runs_of(protocol) if run.valid}, key=natural_sort_key
    )
    paces = {
        name: fleet_means([run for run in scene.runs if run.case.name == name], protocol, metric)
        for name in workloads
    }
    columns = {name: found for name, found in paces.items() if found.ranked}
    rows = [
        MatrixRow(
            scene.names[phone],
            phone,
            scene.colours[phone],
            tuple(_pace_cell(phone, found, metric) for found in columns.values()),
        )
        for phone in sorted(scene.names, key=lambda phone: _distance(phone, columns.values()))
        if any(pace.phone == phone for found in columns.values() for pace in found.ranked)
    ]
    headings = tuple(
        (name, "", "one cell" if found.cells_used == 1 else f"mean of {found.cells_used} cells")
        for name, found in columns.items()
    )
    return RankingMatrix(f"{title}, by model", unit_of(metric), headings, tuple(rows))


def _distance(phone: str, columns: Iterable[FleetMeans]) -> tuple[int, float]:
    """How far a phone is from the best, over all columns; who lacks some comes later."""
    ratios = [
        pace.value / found.ranked[0].value
        for found in columns
        for pace in found.ranked
        if pace.phone == phone
    ]
    return -len(ratios), sum(map(math.log, ratios))


def _pace_cell(phone: str, found: FleetMeans, metric: str) -> MatrixCell:
    pace = next((pace for pace in found.ranked if pace.phone == phone), None)
    if pace is None:
        return MatrixCell("–", "", -1, "no valid run with this figure")
    ratio = pace.value / found.ranked[0].value
    tip = (
        f"{pace.name}: {format_ms(pace.value)} {unit_of(metric)}, geometric mean of "
        f"{found.cells_used} of {found.cells_all} cells ({pace.provenance})"
    )
    return MatrixCell(
        format_ms(pace.value), _times(ratio, pace is found.ranked[0]), _warmth(ratio), tip
    )


def _warmth(ratio: float) -> int:
    return min(9, max(0, round(5 * math.log2(ratio)))) if ratio > 0 else 9


def _times(ratio: float, first: bool) -> str:
    return "★ best" if first else f"{ratio:.2f} ×"


def _settings(group: FleetGroup) -> str:
    """The parameters of a cell, beside its workload."""
    return group.case.label.removeprefix(group.case.name).strip()


def _rank(row: FleetRow | None) -> float:
    return row.rank if row else math.inf


def _matrix_cell(row: FleetRow | None, metric: str) -> MatrixCell:
    if row is None:
        return MatrixCell("–", "", -1, "no valid run with this figure")
    ratio = row.ratio or 1.0
    best = _times(ratio, row.rank == 1)
    return MatrixCell(
        format_ms(row.median), best, _warmth(ratio), metric_text(row, unit_of(metric))
    )


def ranking(scene: ReportData) -> Section:
    """Every cell with its phones, best first, with intervals."""
    cards = []
    for protocol, metric in ((p, m) for p, m, _ in QUESTIONS if m != ENERGY):
        for group in scene.groups(protocol, metric):
            bars = [_bar(scene, row, unit_of(metric)) for row in group.rows]
            text = f"{group.condition.label}; {unit_of(metric)} a step, shorter is better"
            cards.append(Card(group.case.label, text, ranked(group.label, bars), group.case.name))
    return Section(
        "ranking",
        "Ranking, with intervals",
        "A bar is the median over runs; the line across its end is the 95 % interval of that "
        "median (of fewer than three runs their range). A phone is called fastest only with four "
        "runs on either side, intervals that do not touch, and numbers whose error is known.",
        cards=tuple(cards),
        note="" if cards else "There is no valid run to rank.",
    )


def _bar(scene: ReportData, row: FleetRow, unit: str) -> Bar:
    known = row.provenance.model is not SimulationModel.EXTRAPOLATED
    return Bar(
        name=f"{row.rank}. {scene.names[row.phone]}",
        phone=row.phone,
        colour=scene.colours[row.phone],
        value=row.median,
        low=row.interval.low if known or row.n > 1 else None,
        high=row.interval.high if known or row.n > 1 else None,
        shown=f"{format_ms(row.median)} {unit}",
        note=_bar_note(row.statement),
        tip=f"{metric_text(row, unit)}; {row.statement.text}",
    )


def _bar_note(statement: RankStatement) -> str:
    if len(statement.text) <= NOTE_MAX:
        return statement.text
    return provenance_prefix(statement.provenance).rstrip(": ") or statement.short_text


def heat(scene: ReportData) -> Section:
    """Burst against sustained: what ten minutes of heat do to the order."""
    cold = fleet_means(scene.runs, Protocol.COLD, COLD_METRIC, scene.mix)
    hot = fleet_means(scene.runs, Protocol.ENDURANCE, SUSTAINED_METRIC, scene.mix)
    found = heat_slowdowns(cold, hot)
    rows = [
        (
            scene.names[each.cold.phone],
            each.cold.phone,
            scene.colours[each.cold.phone],
            each.cold_ms,
            each.hot_ms,
            f"{each.cold.name}: {format_ms(each.cold_ms)} ms cold, {format_ms(each.hot_ms)} ms "
            f"after ten minutes, {each.ratio:.2f} times as long ({each.cold.provenance})",
        )
        for each in found
    ]
    changed = _changes(cold.ranked, hot.ranked)
    card = (
        Card("Milliseconds a step, cold and hot", changed, slopes("cold to hot", rows))
        if rows
        else None
    )
    return Section(
        "heat",
        "Burst and sustained",
        "The same work from a cool phone and in the tenth minute without a pause (geometric mean "
        "of the cells that every phone has); the top is the fastest.",
        cards=(card,) if card else (),
        note="" if card else "No phone has both a valid cold run and a valid run of ten minutes.",
        wide=True,
    )


def _changes(cold: Sequence[FleetMean], hot: Sequence[FleetMean]) -> str:
    before = [pace.phone for pace in cold]
    after = [pace.phone for pace in hot]
    moved = sum(before.index(p) != at for at, p in enumerate(after) if p in before)
    if not moved:
        return "The order is the same before and after the heat."
    return f"{moved} of {len(after)} phones change their place in the order."


def fleet(scene: ReportData) -> Section:
    """Every phone: how it was held, what it did, and whether it equals itself."""
    itself = {row.label: row for row in split_half_check(trial_series(scene.runs)).rows}
    latest = {run.phone: run for run in sorted(scene.runs, key=lambda run: run.ended_at)}
    lines = []
    for phone, run in sorted(latest.items(), key=lambda item: scene.names[item[0]]):
        own = [each for each in scene.runs if each.phone == phone]
        facts = run.facts
        same = itself.get(phone_label(facts.model, phone))
        time_from = facts.provenance.time if facts.provenance else None
        spread = f", {same.low:.3f} to {same.high:.3f}" if same and same.low and same.high else ""
        check = f"{same.ratio:.3f}{spread}: {same.verdict}" if same else "too few runs"
        lines.append(
            (
                f"{scene.names[phone]} · {phone}",
                f"{facts.soc}, Android {facts.android}, {facts.ram_mb / 1024:.1f} GB",
                f"{run.control or 'unknown'}"
                + (f"; not held: {', '.join(facts.uncontrolled)}" if facts.uncontrolled else ""),
                f"{sum(each.valid for each in own)} of {len(own)}",
                _hottest(own),
                check,
                str(time_from or "unknown"),
            )
        )
    return Section(
        "fleet",
        "The fleet",
        "Against itself: odd blocks of a phone's runs against even ones, which should be the same "
        "(1.000). A phone that differs from itself was not held still.",
        headings=(
            *("Phone", "What it is", "Control", "Valid runs", "Hottest"),
            *("Against itself", "Times come from"),
        ),
        rows=tuple(lines),
        note="" if lines else "There are no runs.",
    )


def _hottest(runs: Sequence[MeasuredRun]) -> str:
    temps = [run.metrics["peak_temp_c"].value for run in runs if "peak_temp_c" in run.metrics]
    return f"{short(max(temps))} °C" if temps else "not told"
