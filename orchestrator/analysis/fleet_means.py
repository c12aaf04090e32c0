"""One number per phone out of many cells: how fast it is when cold, and after ten minutes of heat.

Only cells that every phone has are used, and their medians are joined by the geometric mean: a
phone must not look fast because its slow cells are missing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow, compare_fleet
from orchestrator.analysis.measurements import MeasuredRun, weakest_provenance
from orchestrator.analysis.stats import Interval, IntervalKind, geometric_mean
from workloads.catalogue import CATALOGUE
from workloads.protocol.condition import Protocol
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.metrics import Provenance
from workloads.text import safe_text

OFF_PHONE = frozenset(name for name, workload in CATALOGUE.items() if not workload.on_phone)
CellKey = tuple[str, str]


@dataclass(frozen=True)
class FleetMean:
    """A phone's mean over all shared cells, in the metric's unit."""

    phone: str
    model: str
    value: float
    interval: Interval
    provenance: Provenance
    cells: dict[CellKey, float]
    shares_model_name: bool = False

    @property
    def name(self) -> str:
        """The phone's model; with the serial where two phones have the same model."""
        model = safe_text(self.model, 40)
        return f"{model} ({safe_text(self.phone, 64)})" if self.shares_model_name else model


@dataclass(frozen=True)
class FleetMeans:
    """Every phone's mean, best first, or the problem that prevents a comparison."""

    ranked: tuple[FleetMean, ...]
    cells_used: int = 0
    cells_all: int = 0
    problem: str = ""


def fleet_means(
    runs: Sequence[MeasuredRun], protocol: Protocol, metric: str, mix: bool = False
) -> FleetMeans:
    """Join the cells of a protocol into one mean per phone."""
    wanted = [
        run
        for run in runs
        if run.condition.protocol is protocol and run.case.workload not in OFF_PHONE
    ]
    try:
        groups = compare_fleet(wanted, metric, mix).groups
    except InvalidRequest as refused:
        return FleetMeans((), problem=safe_text(refused, 400))
    rows: dict[str, dict[CellKey, FleetRow]] = {}
    for group in groups:
        for row in group.rows:
            if row.median > 0:
                rows.setdefault(row.phone, {})[_cell_key(group)] = row
    if not rows:
        return FleetMeans((), problem=_no_rows_problem(wanted, protocol, metric))
    shared = sorted(set.intersection(*(set(cells) for cells in rows.values())))
    if not shared:
        return FleetMeans((), problem=f"no cell has a valid {protocol} run on every phone")
    means = [_mean([cells[key] for key in shared], shared) for cells in rows.values()]
    models = Counter(mean.model for mean in means)
    means = [replace(mean, shares_model_name=models[mean.model] > 1) for mean in means]
    ordered = sorted(means, key=lambda mean: (mean.value, mean.phone))
    return FleetMeans(
        tuple(ordered), len(shared), len({key for cells in rows.values() for key in cells})
    )


def fleet_scopes(runs: Sequence[MeasuredRun]) -> dict[str, list[MeasuredRun]]:
    """Split runs by backend and by external program: no mean may join two of them.

    The name of a single scope is empty.
    """
    scopes: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        program = f"{run.case.name}, " if run.case.manifest is not None else ""
        scopes.setdefault(f"{program}{run.case.backend}", []).append(run)
    return scopes if len(scopes) > 1 else {"": list(runs)}


def _no_rows_problem(runs: Sequence[MeasuredRun], protocol: Protocol, metric: str) -> str:
    if any(run.valid for run in runs):
        return f"no valid {protocol} run has {metric}"
    return f"there is no valid {protocol} run yet"


def _cell_key(group: FleetGroup) -> CellKey:
    """Identify a cell regardless of its protocol: a cold and a long run of it have the same key."""
    return group.case.label, group.condition.model_copy(update={"protocol": Protocol.COLD}).digest


def _mean(rows: Sequence[FleetRow], keys: Sequence[CellKey]) -> FleetMean:
    intervals = [row.interval for row in rows]
    lows = [interval.low for interval in intervals]
    value = geometric_mean([row.median for row in rows])
    interval = Interval(
        # A model error above 100 % makes the lower end negative.
        geometric_mean(lows) if min(lows) > 0 else 0.0,
        value,
        geometric_mean([interval.high for interval in intervals]),
        min(row.n for row in rows),
        max((interval.kind for interval in intervals), key=list(IntervalKind)[::-1].index),
        next((interval.unclear for interval in intervals if interval.unclear), None),
    )
    return FleetMean(
        phone=rows[0].phone,
        model=rows[0].model,
        value=value,
        interval=interval,
        provenance=weakest_provenance(row.provenance for row in rows),
        cells=dict(zip(keys, (row.median for row in rows), strict=True)),
    )


@dataclass(frozen=True)
class HeatSlowdown:
    """A phone's step time when cold and after ten minutes, over the cells it has in both."""

    cold: FleetMean
    cold_ms: float
    hot_ms: float

    @property
    def ratio(self) -> float:
        """How many times longer a step takes when the phone is hot."""
        return self.hot_ms / self.cold_ms


def heat_slowdown(cold: FleetMean, hot: FleetMean) -> HeatSlowdown | None:
    """Compare a phone's cold and hot runs; None when no cell was run under both protocols."""
    shared = sorted(set(cold.cells) & set(hot.cells))
    if not shared:
        return None
    cold_ms = geometric_mean([cold.cells[key] for key in shared])
    return HeatSlowdown(cold, cold_ms, geometric_mean([hot.cells[key] for key in shared]))


def heat_slowdowns(cold: FleetMeans, hot: FleetMeans) -> tuple[HeatSlowdown, ...]:
    """Return the slowdown of every phone with cold and hot runs, the fastest hot phone first."""
    before = {mean.phone: mean for mean in cold.ranked}
    pairs = [(before[mean.phone], mean) for mean in hot.ranked if mean.phone in before]
    slowdowns = [slowdown for pair in pairs if (slowdown := heat_slowdown(*pair))]
    return tuple(sorted(slowdowns, key=lambda slowdown: slowdown.hot_ms))
