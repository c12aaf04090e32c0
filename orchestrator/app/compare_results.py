"""Compares results: two sides, a sweep with itself, the phones of a fleet, a phone over time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from orchestrator.analysis.ab_comparison import (
    Comparison,
    ComparisonTable,
    ComparisonVerdict,
    GroupBy,
    compare_sides,
)
from orchestrator.analysis.failure_rates import FailureComparison, FailureVerdict, compare_failures
from orchestrator.analysis.findings import fleet_sentences, phone_figures, round_of
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow, compare_fleet
from orchestrator.analysis.measurements import (
    MeasuredRun,
    NothingMatches,
    NothingToCompare,
    TrialSeries,
)
from orchestrator.analysis.set_clocks import (
    AppliedCell,
    condition_table,
    in_order,
    same_applied_clocks,
    same_paired_clocks,
)
from orchestrator.analysis.side_filter import parse_side, why_no_match
from orchestrator.analysis.split_half import split_half_check
from orchestrator.analysis.stats import median
from orchestrator.analysis.trend import RUNS_PER_SIDE, MetricHistory, metric_histories
from orchestrator.analysis.trial_pairs import PairedTrials, pair_trials
from orchestrator.analysis.trial_series import group_by_trial
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.store import phone_queries
from orchestrator.store.metric_rows import attempt_outcomes, metric_values
from workloads.protocol.condition import HEADLINES
from workloads.protocol.faults import InvalidRequest

__all__ = ["RUNS_PER_SIDE", "Comparison", "ComparisonVerdict", "FailureVerdict", "FleetRow"]
__all__ += ["AppliedCell", "condition_table", "fleet_sentences", "in_order", "median"]
__all__ += ["phone_figures", "round_of", "same_applied_clocks"]


@dataclass(frozen=True)
class CompareRequest:
    """How two sides are compared."""

    metric: str = ""  # empty: the headline metric of each protocol
    group_by: GroupBy = GroupBy.CELL
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.02
    allow_mixed: bool = False


@operation(Role.VIEWER)
def compare_results(
    lab: LabConnection, base: str, candidate: str, request: CompareRequest
) -> ComparisonTable:
    """Compare two sides, each SWEEP, SWEEP:KEY=VALUE,... or KEY=VALUE,... of the other's sweep."""
    paired = _pair_sides(lab, base, candidate, request)
    table = _refuse_empty(compare_sides(paired, request.group_by, request.margin))
    facts_of = {phone.serial: phone.facts for phone in phone_queries.known_phones(lab.store)}
    same = same_paired_clocks(paired.pairs, facts_of)
    failures = _compare_failures(lab, base, candidate)
    return replace(table, same_clocks=same, starts_c=_starts_c(lab, paired), failures=failures)


@operation(Role.VIEWER)
def check_split_half(lab: LabConnection, sweep: str, request: CompareRequest) -> ComparisonTable:
    """Compare odd with even blocks of every phone of a sweep."""
    series = _trial_series(lab, sweep, request.metric)
    return _refuse_empty(split_half_check(series, request.margin))


@operation(Role.VIEWER)
def list_trends(lab: LabConnection, filter_text: str = "", metric: str = "") -> list[MetricHistory]:
    """Return every phone and workload over all sweeps, with its changes."""
    if filter_text and "=" not in filter_text:
        raise InvalidRequest(f"'{filter_text}' is not KEY=VALUE; trends always cover all sweeps")
    trials = group_by_trial(metric_values(lab.store, metric))
    if filter_text:
        side = parse_side(filter_text)
        matching = [trial for trial in trials if side.matches(trial)]
        if not matching:
            raise NothingMatches(why_no_match(side, trials))
        trials = matching
    histories = metric_histories(trial for trial in trials if trial.values)
    if not histories:
        of_metric = f" with {metric}" if metric else ""
        raise NothingMatches(f"this lab has no valid run{of_metric} yet")
    return histories


def fleet_groups(runs: Sequence[MeasuredRun]) -> list[FleetGroup]:
    """Rank the phones of a sweep: one group per cell, by the headline metric of its protocol."""
    groups: list[FleetGroup] = []
    for protocol, metric in HEADLINES.items():
        found = compare_fleet(runs, metric).groups
        groups += [group for group in found if group.condition.protocol is protocol]
    return groups


def exclusions_text(table: ComparisonTable) -> str:
    """What a comparison left out, with the number of pairs or trials per reason."""
    return ", ".join(f"{count} {reason.text}" for reason, count in table.left_out)


def _compare_failures(lab: LabConnection, base: str, candidate: str) -> FailureComparison | None:
    sides = parse_side(base), parse_side(candidate)
    named = next(side.sweep for side in sides if side.sweep)
    outcomes = {
        name: attempt_outcomes(lab.store, find_sweep(lab, name).id)
        for name in {side.sweep or named for side in sides}
    }
    of_base, of_candidate = (outcomes[side.sweep or named] for side in sides)
    return compare_failures(of_base, of_candidate, sides)


def _pair_sides(
    lab: LabConnection, base: str, candidate: str, request: CompareRequest
) -> PairedTrials:
    """Read both sides; a side without a sweep belongs to the sweep of the other side."""
    sides = parse_side(base), parse_side(candidate)
    sweeps = [side.sweep for side in sides if side.sweep]
    if not sweeps:
        raise InvalidRequest("neither side names a sweep; write SWEEP:KEY=VALUE on one of them")
    if sides[0].sweep == sides[1].sweep and sides[0].patterns == sides[1].patterns:
        raise InvalidRequest("both sides are the same; use 'farm compare SWEEP --split-half'")
    series = {name: _trial_series(lab, name, request.metric) for name in dict.fromkeys(sweeps)}
    of_base, of_candidate = (series[side.sweep or sweeps[0]] for side in sides)
    return pair_trials(of_base, of_candidate, sides, request.allow_mixed)


def _starts_c(lab: LabConnection, paired: PairedTrials) -> tuple[tuple[str, float, float], ...]:
    """The range of start temperatures of each phone: phones at rest differ by many degrees."""
    sides = [side for pair in paired.pairs for side in (pair.base, pair.candidate)]
    phones: dict[str, list[float]] = {}
    for sweep in dict.fromkeys(side.sweep for side in sides):
        for found in metric_values(lab.store, "start_temp_c", sweep):
            if found.value is not None:
                phones.setdefault(found.trial.phone, []).append(found.value)
    compared = dict.fromkeys(side.phone for side in sides)
    return tuple(
        (each, min(phones[each]), max(phones[each])) for each in compared if each in phones
    )


def _trial_series(lab: LabConnection, sweep: str, metric: str) -> list[TrialSeries]:
    return group_by_trial(metric_values(lab.store, metric, find_sweep(lab, sweep).id))


def _refuse_empty(table: ComparisonTable) -> ComparisonTable:
    if not table.rows:
        reason = exclusions_text(table) or "there are no runs"
        raise NothingToCompare(f"nothing can be compared: {reason}")
    return table
