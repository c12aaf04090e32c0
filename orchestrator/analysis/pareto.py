"""What is worth choosing: settings that no other beats in both time and energy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.stats import median
from orchestrator.nouns import MeasuredRun
from workloads.condition import Protocol
from workloads.measure import Provenance
from workloads.text import natural

TIME, ENERGY = "step_ms", "energy_per_sample_mj"


@dataclass(frozen=True)
class Choice:
    """A phone with cores and a clock, and what a case costs on it."""

    case: str
    workload: str
    phone: str
    model: str
    setting: str
    time_ms: float
    energy_mj: float
    provenance: Provenance


def choices_of(runs: Iterable[MeasuredRun]) -> list[Choice]:
    """Every setting with both a time and an energy of valid cold runs, by case."""
    cells: dict[tuple[str, str, str], list[MeasuredRun]] = {}
    for run in runs:
        known = TIME in run.metrics and ENERGY in run.metrics
        if (
            run.valid
            and known
            and run.metrics[ENERGY].ranks
            and run.condition.protocol is Protocol.COLD
        ):
            setting = f"{run.condition.cores} {run.condition.freq}"
            cells.setdefault((run.case.label, run.phone, setting), []).append(run)
    return [
        Choice(
            *(case, own[0].case.name, phone, own[0].facts.model, setting),
            median([run.metrics[TIME].value for run in own]),
            median([run.metrics[ENERGY].value for run in own]),
            weakest(run.metrics[name].provenance for run in own for name in (TIME, ENERGY)),
        )
        for (case, phone, setting), own in sorted(cells.items(), key=_in_order)
        if all(run.metrics[name].value > 0 for run in own for name in (TIME, ENERGY))
    ]


def _in_order(cell: tuple[tuple[str, str, str], object]) -> tuple[object, ...]:
    case, *rest = cell[0]
    return natural(case), *rest


def front_of(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that none beats in both, the quickest first."""
    front: list[Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.time_ms, choice.energy_mj)):
        if not front or choice.energy_mj < front[-1].energy_mj:
            front.append(choice)
    return front
