"""One time per phone out of many cells: how fast it is cold, and how fast after ten minutes.

Only cells that every phone has are used, and their medians are joined by the geometric mean: a
phone must not look fast because its slow cells are missing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.compare import FleetGroup, FleetRow, compare_fleet
from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.stats import Interval, IntervalKind, geometric_mean
from orchestrator.nouns import MeasuredRun
from workloads.catalogue import CATALOGUE
from workloads.condition import Protocol
from workloads.fault import Refused
from workloads.measure import Provenance
from workloads.text import safe_text

OFF_PHONE = frozenset(name for name, workload in CATALOGUE.items() if not workload.on_phone)
CellKey = tuple[str, str]


@dataclass(frozen=True)
class Pace:
    """A phone's time over all shared cells, in the metric's unit."""

    phone: str
    model: str
    value: float
    interval: Interval
    provenance: Provenance
    cells: dict[CellKey, float]
    has_twin: bool = False

    @property
    def name(self) -> str:
        """How a sentence calls the phone: by its serial as well where two are of one model."""
        model = safe_text(self.model, 40)
        return f"{model} ({safe_text(self.phone, 64)})" if self.has_twin else model


@dataclass(frozen=True)
class Paces:
    """Every phone's pace, best first, or the trouble that keeps them from being compared."""

    ranked: tuple[Pace, ...]
    cells_used: int = 0
    cells_all: int = 0
    trouble: str = ""


def paces_of(
    runs: Sequence[MeasuredRun], protocol: Protocol, metric: str, mix: bool = False
) -> Paces:
    """Join the cells of a protocol into one pace per phone."""
    wanted = [
        run
        for run in runs
        if run.condition.protocol is protocol and run.case.workload not in OFF_PHONE
    ]
    try:
        groups = compare_fleet(wanted, metric, mix).groups
    except Refused as refused:
        return Paces((), trouble=safe_text(refused, 400))
    rows: dict[str, dict[CellKey, FleetRow]] = {}
    for group in groups:
        for row in group.rows:
            if row.median > 0:
                rows.setdefault(row.phone, {})[_key(group)] = row
    if not rows:
        known = any(run.valid for run in wanted)
        missing = f"no valid {protocol} run knows its {metric}"
        return Paces((), trouble=missing if known else f"there is no valid {protocol} run yet")
    shared = set.intersection(*(set(cells) for cells in rows.values()))
    everything = {key for cells in rows.values() for key in cells}
    if not shared:
        return Paces((), trouble=f"no cell has a valid {protocol} run on every phone")
    paces = [
        _pace([cells[key] for key in sorted(shared)], sorted(shared)) for cells in rows.values()
    ]
    models = Counter(pace.model for pace in paces)
    paces = [replace(pace, has_twin=models[pace.model] > 1) for pace in paces]
    ordered = sorted(paces, key=lambda pace: (pace.value, pace.phone))
    return Paces(tuple(ordered), len(shared), len(everything))


def _key(group: FleetGroup) -> CellKey:
    """What a cold and a long run of the same cell have in common."""
    return group.case.label, group.condition.model_copy(update={"protocol": Protocol.COLD}).digest


def _pace(rows: Sequence[FleetRow], keys: Sequence[CellKey]) -> Pace:
    lows = [row.interval.low for row in rows]
    interval = Interval(
        geometric_mean(lows) if min(lows) > 0 else 0.0,  # a model may be wrong by more than all
        geometric_mean([row.interval.high for row in rows]),
        min(row.n for row in rows),
        IntervalKind.BOOTSTRAP
        if all(row.interval.kind is IntervalKind.BOOTSTRAP for row in rows)
        else IntervalKind.RANGE,
    )
    return Pace(
        phone=rows[0].phone,
        model=rows[0].model,
        value=geometric_mean([row.median for row in rows]),
        interval=interval,
        provenance=weakest(row.provenance for row in rows),
        cells=dict(zip(keys, (row.median for row in rows), strict=True)),
    )
