"""The clocks that were set for runs, as their reports state them, and levels that are one clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.cell_axes import CORES, FREQ, value_order
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.trial_pairs import TrialPair
from workloads.protocol.phone_facts import PhoneFacts
from workloads.protocol.same_clocks import ClockedCell, SameClock, cell_on_phone, same_clocks

NOT_RUN = "not run"


@dataclass(frozen=True)
class ClockTable:
    """The clock in GHz of every phone under every name of a clock; without columns none was set."""

    columns: tuple[str, ...]  # core set and level
    rows: dict[str, tuple[str, ...]]  # by phone


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


def clock_table(runs: Sequence[MeasuredRun]) -> ClockTable:
    """Return the clocks that were set, by phone and level."""
    found: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for run in runs:
        condition, applied = run.condition, run.applied
        levels = [((condition.cores, condition.freq), applied.clock_ghz)]
        if applied.gpu_clock_ghz is not None:
            levels.append((("GPU", condition.gpu_freq or ""), f"{applied.gpu_clock_ghz:.7g}"))
        for level, ghz in levels:
            # Several values: the phone changed between two runs.
            found.setdefault(level, {}).setdefault(run.phone, {})[ghz or condition.freq] = None
    is_set = {(run.condition.cores, run.condition.freq) for run in runs if run.applied.clocks_khz}
    shown = [level for level in found if level in is_set or level[0] == "GPU"]
    shown.sort(key=lambda level: (value_order(CORES)(level[0]), value_order(FREQ)(level[1])))
    phones = dict.fromkeys(run.phone for run in runs)
    return ClockTable(
        tuple(" ".join(level) for level in shown),
        {
            phone: tuple(" or ".join(found[level].get(phone, (NOT_RUN,))) for level in shown)
            for phone in phones
        }
        if shown
        else {},
    )
