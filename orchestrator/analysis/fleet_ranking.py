"""Ranks phones: for every cell the medians of their valid runs, best first, with a rank claim.

A group never mixes values of different sources (phone, host, simulated) or phones with different
control levels unless requested, and nothing is claimed from a model whose error is unknown.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.analysis.cell_axes import SettingValue, cell_settings
from orchestrator.analysis.measurements import (
    NOTHING_APPLIED,
    MeasuredRun,
    MeasurementKind,
    refuse_mixed_sources,
    weakest_provenance,
)
from orchestrator.analysis.rank_statement import RankStatement, rank_statement
from orchestrator.analysis.stats import Interval, interval_over_occasions, widen_by_model
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.metrics import METRICS, Provenance
from workloads.protocol.phone_facts import ControlLevel
from workloads.protocol.verdict import Validity

Parameters = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class PhoneSummary:
    """The valid runs of a phone in a group, summarised."""

    phone: str
    model: str
    soc: str
    median: float
    interval: Interval
    suspect: int
    void: int
    provenance: Provenance
    control: ControlLevel | None
    applied: AppliedCondition  # in its newest run

    @property
    def n(self) -> int:
        """The number of runs that count."""
        return self.interval.n


@dataclass(frozen=True)
class FleetRow(PhoneSummary):
    """A phone with its rank in a group."""

    rank: int
    ratio: float | None  # to the best phone
    statement: RankStatement


class UnrankedReason(StrEnum):
    """Why a phone of a group is not ranked."""

    NO_VALID_RUN = "no valid run"
    COARSE_GAUGE = "gauge too coarse"
    NOT_REPORTED = "not reported"


@dataclass(frozen=True)
class UnrankedPhone:
    """A phone of a group that has no run that counts."""

    phone: str
    model: str
    soc: str
    suspect: int
    void: int
    valid: int = 0
    coarse_runs: int = 0  # valid runs whose value is too coarse for a ranking
    applied: AppliedCondition = NOTHING_APPLIED  # in its newest run

    @property
    def reason(self) -> UnrankedReason:
        """Why it is not ranked."""
        if self.coarse_runs:
            return UnrankedReason.COARSE_GAUGE
        return UnrankedReason.NOT_REPORTED if self.valid else UnrankedReason.NO_VALID_RUN


@dataclass(frozen=True)
class FleetGroup:
    """One case under one condition: the only scope in which phones are compared."""

    case: Case
    condition: Condition
    rows: tuple[FleetRow, ...]
    unranked: tuple[UnrankedPhone, ...]

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.case.label}, {self.condition.label}"

    @property
    def settings(self) -> dict[str, SettingValue]:
        """Everything that distinguishes the cell."""
        return cell_settings(self.case, self.condition)


@dataclass(frozen=True)
class FleetTable:
    """A metric over the whole fleet."""

    metric: str
    unit: str
    groups: tuple[FleetGroup, ...]


def compare_fleet(
    runs: Sequence[MeasuredRun], metric: str = "step_ms", mix: bool = False
) -> FleetTable:
    """Rank the phones of every group by the median of their valid runs."""
    if metric not in METRICS:
        raise InvalidRequest(f"unknown metric '{metric}'; use one of {', '.join(METRICS)}")
    # Runs of a store share their case and condition objects: a key is built once for each pair.
    by_objects: dict[tuple[int, int], list[MeasuredRun]] = {}
    for run in runs:
        by_objects.setdefault((id(run.case), id(run.condition)), []).append(run)
    by_cell: dict[tuple[str, Parameters, str, Condition], list[MeasuredRun]] = {}
    for members in by_objects.values():
        case, condition = members[0].case, members[0].condition
        # The whole case: two programs of one name, or two data sets, are two cells.
        parameters = tuple(sorted(case.parameters.items()))
        key = (case.name, parameters, case.model_dump_json(), condition)
        by_cell.setdefault(key, []).extend(members)
    cells = sorted(by_cell.items(), key=lambda cell: (*cell[0][:3], cell[0][3].label))
    groups = []
    for _, members in cells:
        group = _group(members, metric, mix)
        # A cell with valid runs that do not report this metric is not part of its table.
        if group.rows or not any(run.validity_of(metric) is Validity.VALID for run in members):
            groups.append(group)
    return FleetTable(metric, METRICS[metric].unit, tuple(groups))


def _group(runs: Sequence[MeasuredRun], metric: str, mix: bool) -> FleetGroup:
    case, condition = runs[0].case, runs[0].condition
    rankable = _rankable_runs(runs, metric, mix)
    if not mix:
        kinds = (_kind(run, metric) for run in rankable)
        refuse_mixed_sources(kinds, f"{case.label}, {condition.label}: ")
    by_phone: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        by_phone.setdefault(run.phone, []).append(run)
    rows: list[PhoneSummary] = []
    unranked: list[UnrankedPhone] = []
    for phone, members in sorted(by_phone.items()):
        counted = [run for run in rankable if run.phone == phone]
        if counted:
            rows.append(_summarize(counted, members, metric))
        else:
            facts = members[0].facts
            coarse = sum(run.counts(metric) for run in members)
            valid = sum(run.validity_of(metric) is Validity.VALID for run in members)
            counts = (*_excluded_counts(members, metric), valid)
            shown = (phone, facts.model, facts.soc)
            unranked.append(UnrankedPhone(*shown, *counts, coarse, members[-1].applied))
    return FleetGroup(case, condition, _rank(rows, metric), tuple(unranked))


def _rankable_runs(runs: Sequence[MeasuredRun], metric: str, mix: bool) -> list[MeasuredRun]:
    """Return the valid runs that know the metric precisely enough to rank a phone by it."""
    known = [run for run in runs if run.counts(metric)]
    return [run for run in known if mix or run.metrics[metric].rankable]


def _summarize(
    counted: Sequence[MeasuredRun], runs: Sequence[MeasuredRun], metric: str
) -> PhoneSummary:
    values = [run.metrics[metric].value for run in counted]
    provenance = weakest_provenance(run.metrics[metric].provenance for run in counted)
    suspect, void = _excluded_counts(runs, metric)
    facts = counted[-1].facts
    times = [run.started_at for run in counted]
    interval = interval_over_occasions(values, times, [(r.host, r.boot_id) for r in counted])
    return PhoneSummary(
        phone=counted[0].phone,
        model=facts.model,
        soc=facts.soc,
        median=interval.middle,
        interval=widen_by_model(interval, provenance, METRICS[metric].is_share),
        suspect=suspect,
        void=void,
        provenance=provenance,
        control=counted[-1].control,
        applied=counted[-1].applied,
    )


def _rank(rows: Sequence[PhoneSummary], metric: str) -> tuple[FleetRow, ...]:
    higher = METRICS[metric].higher_is_better
    ordered = sorted(rows, key=lambda row: (-row.median if higher else row.median, row.phone))
    return tuple(
        FleetRow(
            **vars(row),
            rank=rank,
            ratio=_ratio(ordered[0].median, row.median, higher),
            statement=rank_statement(row, ordered, metric),
        )
        for rank, row in enumerate(ordered, start=1)
    )


def _ratio(best: float, value: float, higher_is_better: bool) -> float | None:
    """Return how many times better the best is; None at and below zero."""
    if best <= 0 or value <= 0:
        return None
    return best / value if higher_is_better else value / best


def _excluded_counts(runs: Iterable[MeasuredRun], metric: str) -> tuple[int, int]:
    counts = Counter(run.validity_of(metric) for run in runs)
    return counts[Validity.SUSPECT], counts[Validity.VOID]


def _kind(run: MeasuredRun, metric: str) -> MeasurementKind:
    """Return how a value was obtained, without the grade: coarse energies are not ranked."""
    source = run.metrics[metric].provenance.source.value
    return MeasurementKind(source, run.control.value if run.control else "unknown", "")
