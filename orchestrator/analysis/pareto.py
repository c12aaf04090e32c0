"""Operating points of phones, and their Pareto front in time and energy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.measurements import MeasuredRun, weakest_provenance
from orchestrator.analysis.stats import median
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import Provenance
from workloads.text import natural_sort_key

TIME, ENERGY = "step_ms", "energy_per_sample_mj"


@dataclass(frozen=True)
class OperatingPoint:
    """A phone with a core set and a clock, and the time and energy of a case there."""

    case: str
    workload: str
    phone: str
    model: str
    setting: str
    time_ms: float
    energy_mj: float
    provenance: Provenance


def operating_points(runs: Iterable[MeasuredRun]) -> list[OperatingPoint]:
    """Return every setting with both a time and an energy from valid cold runs, by case."""
    cells: dict[tuple[str, str, str], list[MeasuredRun]] = {}
    for run in runs:
        if (
            run.counts(TIME)
            and run.counts(ENERGY)
            and run.metrics[ENERGY].rankable
            and run.condition.protocol is Protocol.COLD
        ):
            ghz = f" ({run.applied.clock_ghz} GHz)" if run.applied.clock_ghz else ""
            setting = f"{run.condition.cores} {run.condition.freq}{ghz}"
            cells.setdefault((run.case.label, run.phone, setting), []).append(run)
    return [
        OperatingPoint(
            *(case, members[0].case.name, phone, members[0].facts.model, setting),
            median([run.metrics[TIME].value for run in members]),
            median([run.metrics[ENERGY].value for run in members]),
            weakest_provenance(
                run.metrics[name].provenance for run in members for name in (TIME, ENERGY)
            ),
        )
        for (case, phone, setting), members in sorted(cells.items(), key=_sort_key)
        if all(run.metrics[name].value > 0 for run in members for name in (TIME, ENERGY))
    ]


def _sort_key(cell: tuple[tuple[str, str, str], object]) -> tuple[object, ...]:
    case, *rest = cell[0]
    return natural_sort_key(case), *rest


def pareto_front(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return the points that no other point beats in both time and energy, the fastest first."""
    front: list[OperatingPoint] = []
    for point in sorted(points, key=lambda point: (point.time_ms, point.energy_mj)):
        if not front or point.energy_mj < front[-1].energy_mj:
            front.append(point)
    return front
