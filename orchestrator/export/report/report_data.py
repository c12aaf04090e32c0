"""The data that all sections of a report use: the runs, and a name and a colour for each phone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

from orchestrator.analysis.fleet_means import OFF_PHONE
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow, compare_fleet
from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.analysis.set_clocks import same_applied_clocks
from orchestrator.export.report.svg import Drawing
from workloads.catalogue import Case
from workloads.protocol.condition import HEADLINES, Condition, Protocol
from workloads.protocol.metrics import METRICS
from workloads.protocol.same_clocks import SameClock, same_clock_texts
from workloads.protocol.telemetry import Telemetry
from workloads.text import safe_text
from workloads.units import format_ms

LARGE, SMALL = 1e4, 0.1  # values beyond are shown with another prefix of their unit
_LARGER, _SMALLER = {"ms": "s", "mJ": "J"}, {"ms": "µs", "mJ": "µJ"}
COLOURS = 70  # ten colours with seven shapes


@dataclass(frozen=True)
class Card:
    """A chart with its heading; the page filters charts by workload."""

    title: str
    text: str
    drawing: Drawing
    workload: str = ""


@dataclass(frozen=True)
class MatrixCell:
    """The value of a phone in a column, and its ratio to the best."""

    text: str
    ratio: str
    shade: int  # 0: the best, 9: the farthest from it, -1: no value
    tip: str


@dataclass(frozen=True)
class MatrixRow:
    """The row of a phone."""

    name: str
    phone: str
    colour: int
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True)
class RankingMatrix:
    """Phones as rows, cells as columns."""

    title: str
    unit: str
    columns: tuple[tuple[str, str, str], ...]  # workload, parameters, condition
    rows: tuple[MatrixRow, ...]


@dataclass(frozen=True)
class Section:
    """A part of the page: charts, tables, or a note with the reason why there are none."""

    id: str
    title: str
    text: str
    cards: tuple[Card, ...] = ()
    matrices: tuple[RankingMatrix, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    files: tuple[tuple[str, str], ...] = ()  # name and text
    note: str = ""
    wide: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.cards or self.matrices or self.rows)


@dataclass(frozen=True)
class SweepRecord:
    """A sweep as it was submitted, for the reader who wants to repeat it."""

    id: str
    name: str
    source: str
    seed: int


@dataclass(frozen=True)
class ReportInput:
    """What a report is made of: runs with their verdicts, telemetry of some, failures, sweeps."""

    runs: Sequence[MeasuredRun]
    telemetry: Sequence[tuple[MeasuredRun, Telemetry]] = ()
    failures: Sequence[RunOutcome] = ()
    sweeps: Sequence[SweepRecord] = ()
    mix: bool = False
    version: str = ""


CellKey = tuple[str, str, str]  # phone, digests of case and condition


@dataclass(frozen=True)
class ReportData(ReportInput):
    """All runs of a report, and the names and colours of their phones."""

    names: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, int] = field(default_factory=dict)
    _groups: dict[tuple[Protocol, str], list[FleetGroup]] = field(default_factory=dict)

    def runs_of(self, protocol: Protocol) -> list[MeasuredRun]:
        """Return the runs of a protocol on phones."""
        return [
            run
            for run in self.runs
            if run.condition.protocol is protocol and run.case.workload not in OFF_PHONE
        ]

    def groups_of(self, protocol: Protocol, metric: str) -> list[FleetGroup]:
        """Return the cells of a protocol in a metric, also those without a valid run."""
        key = protocol, metric
        if key not in self._groups:
            table = compare_fleet(self.runs_of(protocol), metric, self.mix)
            self._groups[key] = list(table.groups)
        return self._groups[key]

    def groups(self, protocol: Protocol, metric: str) -> list[FleetGroup]:
        """Return the cells of a protocol that have ranked phones in a metric."""
        return [group for group in self.groups_of(protocol, metric) if group.rows]

    def all_groups(self) -> list[FleetGroup]:
        """Return every cell, in the headline metric of its protocol."""
        return [
            g for protocol, metric in HEADLINES.items() for g in self.groups_of(protocol, metric)
        ]

    @cached_property
    def same_clocks(self) -> tuple[SameClock, ...]:
        """The levels that were one clock on a phone."""
        return same_applied_clocks(self.runs)

    @cached_property
    def _by_cell(self) -> dict[CellKey, list[MeasuredRun]]:
        cells: dict[CellKey, list[MeasuredRun]] = {}
        for run in self.runs:
            key = run.phone, run.case.digest, run.condition.digest
            cells.setdefault(key, []).append(run)
        return cells

    def cell_runs(self, phone: str, case: Case, condition: Condition) -> list[MeasuredRun]:
        """Return the runs of a cell on a phone."""
        return self._by_cell.get((phone, case.digest, condition.digest), [])


def collect_report_data(given: ReportInput) -> ReportData:
    """Assign a name and a colour to every phone."""
    models = {run.phone: safe_text(run.facts.model, 40) for run in given.runs}
    models |= {
        failed.phone: failed.phone for failed in given.failures if failed.phone not in models
    }
    same: dict[str, list[str]] = {}
    for phone, model in sorted(models.items()):
        same.setdefault(model, []).append(phone)
    names = {
        phone: model if len(phones) == 1 else f"{safe_text(model, 24)} ({_serial(phone, phones)})"
        for model, phones in same.items()
        for phone in phones
    }
    colours = {phone: index % COLOURS for index, phone in enumerate(names)}
    return ReportData(**vars(given), names=names, colours=colours)


def _serial(phone: str, phones: Sequence[str]) -> str:
    """Return the part of a serial number in which phones of one model differ."""
    columns = zip(*phones, strict=False)
    same = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return safe_text(phone, 14) if same <= 3 else f"…{safe_text(phone[same - 3 :], 13)}"


def metric_text(row: FleetRow, unit: str) -> str:
    """Format a ranked value with its interval and its provenance."""
    interval = f"{format_ms(row.interval.low)} to {format_ms(row.interval.high)}"
    known = not row.provenance.error_unknown
    shown = interval if known else f"{interval} in these runs; the model's error is unknown"
    runs = f"{row.n} {'run' if row.n == 1 else 'runs'}"
    clock = f"{row.applied.clock_ghz} GHz; " if row.applied.clock_ghz else ""
    return f"{row.model}: {format_ms(row.median)} {unit} ({shown}; {runs}; {clock}{row.provenance})"


def same_clocks_text(found: Iterable[SameClock]) -> str:
    """Say which levels are one clock, and what their difference means."""
    texts = same_clock_texts(found)
    return " ".join(f"{text}, so their results differ only by chance." for text in texts)


def readable_unit(unit: str, values: Iterable[float]) -> tuple[str, float]:
    """Return the unit in which all values have few digits, and the factor that converts to it."""
    known = [value for value in values if value > 0]
    if known and min(known) >= LARGE and unit in _LARGER:
        return _LARGER[unit], 1e-3
    if known and max(known) < SMALL and unit in _SMALLER:
        return _SMALLER[unit], 1e3
    return unit, 1.0


def unit_of(metric: str) -> str:
    """Return the unit of a metric."""
    return METRICS[metric].unit
