"""Conditions in plain numbers: the clocks, cores and start temperatures of each phone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from orchestrator.analysis.cell_axes import CORES, FREQ, value_order
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.trial_pairs import TrialPair
from workloads.protocol.condition import REST, Condition
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.phone_facts import PhoneFacts, choose_cores
from workloads.protocol.same_clocks import ClockedCell, SameClock, cell_on_phone, same_clocks

NOT_RUN, CPUS, START = "not run", "CPUS", "START °C"


@dataclass(frozen=True)
class ConditionTable:
    """What conditions are on each phone: a row per phone and core set, a column per level."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # phone, and its values


class AppliedCell(Protocol):
    """A condition as it was applied to a phone, or will be; a measured run is one."""

    @property
    def phone(self) -> str: ...
    @property
    def condition(self) -> Condition: ...
    @property
    def applied(self) -> AppliedCondition: ...


Cell = TypeVar("Cell", bound=AppliedCell)


@dataclass(frozen=True)
class PlannedCondition:
    """A condition as it will be applied to a phone."""

    phone: str
    condition: Condition
    applied: AppliedCondition


def planned_cell(facts: PhoneFacts, condition: Condition) -> PlannedCondition | None:
    """Resolve a condition on a phone; None if the phone lacks its cores or clocks."""
    found = cell_on_phone(facts, "", condition)
    if found is None:
        return None
    applied = AppliedCondition(
        cpus=choose_cores(facts, condition.cores).cpus,
        clocks_khz=found.clocks_khz,
        gpu_khz=found.gpu_khz,
    )
    return PlannedCondition(facts.serial, condition, applied)


def condition_table(cells: Sequence[AppliedCell]) -> ConditionTable:
    """Return clocks, cores and highest start temperatures, in the order of the cells."""
    found: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for cell in cells:
        condition, applied = cell.condition, cell.applied
        if not (applied.cpus or applied.clocks_khz or applied.gpu_khz):
            continue  # an old report, or an external program that chose by itself
        own = found.setdefault((cell.phone, condition.cores), {})
        values = {CPUS: format_cpus(applied.cpus), START: _start_text(cell)}
        if applied.clocks_khz:
            values[f"{condition.freq}, GHz"] = applied.clock_ghz
        if applied.gpu_clock_ghz is not None:
            values[f"GPU {condition.gpu_freq}, GHz"] = f"{applied.gpu_clock_ghz:.7g}"
        for name, value in values.items():
            # Several values: the phone changed between two runs.
            own.setdefault(name, {})[value] = None
    place = {phone: place for place, phone in enumerate(dict.fromkeys(name for name, _ in found))}
    names = dict.fromkeys(name for own in found.values() for name in own)
    columns = (CPUS, *(name for name in names if name not in (CPUS, START)), START)
    return ConditionTable(
        ("CORES", *columns),
        tuple(
            (phone, (cores, *(" or ".join(own.get(name, (NOT_RUN,))) for name in columns)))
            for (phone, cores), own in sorted(found.items(), key=lambda item: place[item[0][0]])
        ),
    )


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Sort cells by cores and clock, from little to all and from low to high."""
    cores, freq = value_order(CORES), value_order(FREQ)
    return sorted(cells, key=lambda cell: (cores(cell.condition.cores), freq(cell.condition.freq)))


def _start_text(cell: AppliedCell) -> str:
    condition, limit_c = cell.condition, cell.applied.start_max_c
    if limit_c is None and condition.start_temp_max_c == REST:
        return f"rest + {condition.above_rest_k:g}"
    limit = condition.start_temp_max_c if limit_c is None else limit_c
    return "any" if limit is None else f"{float(limit):.3g}"


def format_cpus(cpus: Sequence[int]) -> str:
    """Format core numbers: 4-7, or 0,1,4-6."""
    groups: list[list[int]] = []
    for cpu in sorted(cpus):
        if groups and groups[-1][-1] == cpu - 1:
            groups[-1].append(cpu)
        else:
            groups.append([cpu])
    return ",".join(f"{g[0]}-{g[-1]}" if len(g) > 1 else f"{g[0]}" for g in groups)


def same_applied_clocks(runs: Sequence[MeasuredRun]) -> tuple[SameClock, ...]:
    """Return the levels that were one clock on a phone."""
    return same_clocks(
        ClockedCell(
            run.facts, run.case.digest, run.condition, run.applied.clocks_khz, run.applied.gpu_khz
        )
        for run in runs
    )


def same_paired_clocks(
    pairs: Sequence[TrialPair], facts_of: Mapping[str, PhoneFacts]
) -> tuple[SameClock, ...]:
    """Return the levels of two sides that are one clock: these pairs compare a cell with itself."""
    found: dict[SameClock, None] = {}
    for pair in pairs:
        sides = [side for side in (pair.base, pair.candidate) if side.phone in facts_of]
        cells = [cell_on_phone(facts_of[s.phone], s.case.digest, s.condition) for s in sides]
        found |= dict.fromkeys(same_clocks(cell for cell in cells if cell is not None))
    return tuple(found)
