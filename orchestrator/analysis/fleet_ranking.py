"""The fleet, side by side: for every cell which phone is ahead, by how much, and how surely.

A group never mixes numbers of different making (phone, host, simulated) or phones under different
control unless that was asked for, and no claim is made on a model whose error nobody knows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.claim import claim_of
from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.stats import Interval, median, median_interval
from orchestrator.nouns import MeasuredRun
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.fault import Refused
from workloads.measure import METRICS, Provenance, Standing
from workloads.phone import ControlLevel

Parameters = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class FleetRow:
    """A phone in a group: what its valid runs say."""

    rank: int
    phone: str
    model: str
    soc: str
    median: float
    interval: Interval
    ratio: float | None
    suspect: int
    void: int
    provenance: Provenance
    control: ControlLevel | None
    claim: str = ""

    @property
    def n(self) -> int:
        """How many runs count."""
        return self.interval.n


@dataclass(frozen=True)
class Absent:
    """A phone that was in the group, but has no run that counts."""

    phone: str
    model: str
    soc: str
    suspect: int
    void: int
    coarse: int = 0  # valid runs whose figure is too coarse to rank anybody

    @property
    def why(self) -> str:
        """Why it is not ranked."""
        return "gauge too coarse" if self.coarse else "no valid run"


@dataclass(frozen=True)
class FleetGroup:
    """One case under one condition: the only place where phones may be compared."""

    case: Case
    condition: Condition
    rows: tuple[FleetRow, ...]
    absent: tuple[Absent, ...]

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.case.label}, {self.condition.label}"


@dataclass(frozen=True)
class FleetTable:
    """A metric over the whole fleet."""

    metric: str
    unit: str
    higher_is_better: bool
    groups: tuple[FleetGroup, ...]


def compare_fleet(
    runs: Sequence[MeasuredRun], metric: str = "step_ms", mix: bool = False
) -> FleetTable:
    """Rank the phones of every group by the median of their valid runs."""
    if metric not in METRICS:
        raise Refused(f"there is no metric '{metric}'; there are {', '.join(METRICS)}")
    by_cell: dict[tuple[str, Parameters, str, Condition], list[MeasuredRun]] = {}
    for run in runs:
        case, parameters = run.case, tuple(sorted(run.case.parameters.items()))
        # The whole of it: two programs of one name, or two data sets, are two cells.
        key = (case.name, parameters, case.model_dump_json(), run.condition)
        by_cell.setdefault(key, []).append(run)
    cells = sorted(by_cell.items(), key=lambda cell: (*cell[0][:3], cell[0][3].label))
    groups = []
    for _, members in cells:
        group = _group(members, metric, mix)
        # A cell that ran well and knows nothing of this metric has no place in its table.
        if group.rows or not any(run.valid for run in members):
            groups.append(group)
    return FleetTable(metric, METRICS[metric].unit, METRICS[metric].higher_is_better, tuple(groups))


def _group(runs: Sequence[MeasuredRun], metric: str, mix: bool) -> FleetGroup:
    case, condition = runs[0].case, runs[0].condition
    counting = _counting(runs, metric, mix)
    if not mix:
        _refuse_mixture(f"{case.label}, {condition.label}", metric, counting)
    by_phone: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        by_phone.setdefault(run.phone, []).append(run)
    rows: list[FleetRow] = []
    absent: list[Absent] = []
    for phone, members in sorted(by_phone.items()):
        own = [run for run in counting if run.phone == phone]
        if own:
            rows.append(_row(own, members, metric))
        else:
            facts = members[0].facts
            coarse = sum(run.valid and metric in run.metrics for run in members)
            absent.append(Absent(phone, facts.model, facts.soc, *_left_out(members), coarse))
    return FleetGroup(case, condition, _ranked(rows, metric), tuple(absent))


def _counting(runs: Sequence[MeasuredRun], metric: str, mix: bool) -> list[MeasuredRun]:
    """The valid runs that know the metric well enough to rank a phone by it."""
    known = [run for run in runs if run.valid and metric in run.metrics]
    return [run for run in known if mix or run.metrics[metric].ranks]


def _row(counting: Sequence[MeasuredRun], runs: Sequence[MeasuredRun], metric: str) -> FleetRow:
    values = [run.metrics[metric].value for run in counting]
    provenance = weakest(run.metrics[metric].provenance for run in counting)
    suspect, void = _left_out(runs)
    facts = counting[-1].facts
    return FleetRow(
        rank=0,
        phone=counting[0].phone,
        model=facts.model,
        soc=facts.soc,
        median=median(values),
        interval=median_interval(values).widened(provenance.error_rel or 0.0),
        ratio=None,
        suspect=suspect,
        void=void,
        provenance=provenance,
        control=counting[-1].control,
    )


def _ranked(rows: Sequence[FleetRow], metric: str) -> tuple[FleetRow, ...]:
    higher = METRICS[metric].higher_is_better
    ordered = sorted(rows, key=lambda row: (-row.median if higher else row.median, row.phone))
    return tuple(
        replace(
            row,
            rank=rank,
            ratio=_ratio(ordered[0].median, row.median, higher),
            claim=claim_of(row, ordered, metric),
        )
        for rank, row in enumerate(ordered, start=1)
    )


def _ratio(best: float, value: float, higher_is_better: bool) -> float | None:
    """How many times the best is ahead; nothing can be said around zero."""
    if best <= 0 or value <= 0:
        return None
    return best / value if higher_is_better else value / best


def _left_out(runs: Iterable[MeasuredRun]) -> tuple[int, int]:
    standings = Counter(run.verdict.standing for run in runs)
    return standings[Standing.SUSPECT], standings[Standing.VOID]


def _refuse_mixture(label: str, metric: str, runs: Sequence[MeasuredRun]) -> None:
    sources = sorted({run.metrics[metric].provenance.source.value for run in runs})
    if len(sources) > 1:
        raise Refused(
            f"{label}: {metric} comes from {' and '.join(sources)}; compare them apart, "
            "or say that the mixture is meant"
        )
    levels = sorted({run.control.value if run.control else "unknown" for run in runs})
    if len(levels) > 1:
        raise Refused(
            f"{label}: the control levels are {' and '.join(levels)}; compare them apart, "
            "or say that the mixture is meant"
        )
