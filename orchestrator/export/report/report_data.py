"""What all parts of a report use: runs, the values of models, and the parts of the page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from statistics import median

from orchestrator.analysis.cell_axes import CellAxis, cell_settings, varying_axes
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow, compare_fleet
from orchestrator.analysis.measurements import MeasuredRun, RunOutcome, weakest_provenance
from orchestrator.analysis.set_clocks import same_applied_clocks
from orchestrator.export.report.figure import Figure, number_text
from workloads.catalogue import CATALOGUE, Case
from workloads.protocol.condition import HEADLINES, Condition, Protocol
from workloads.protocol.metrics import METRICS, Provenance
from workloads.protocol.same_clocks import SameClock, same_clock_texts
from workloads.protocol.telemetry import Telemetry
from workloads.text import safe_text

LARGE, SMALL = 1e4, 0.1  # values beyond are shown with another prefix of their unit
_LARGER, _SMALLER = {"ms": "s", "mJ": "J"}, {"ms": "µs", "mJ": "µJ"}
ENERGY = "energy_per_sample_mj"
OFF_PHONE = frozenset(name for name, workload in CATALOGUE.items() if not workload.on_phone)


@dataclass(frozen=True)
class Section:
    """A part of the page that is folded: figures, a table, files, or why there is nothing."""

    id: str
    title: str
    text: str
    figures: tuple[Figure, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    files: tuple[tuple[str, str], ...] = ()  # name and text
    note: str = ""
    is_open: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.figures or self.rows)


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


@dataclass(frozen=True)
class ModelValue:
    """A cell's value on the phones of one model.

    The interval of one phone, or the least and the largest of several.
    """

    model: str
    value: float
    low: float
    high: float
    units: tuple[float, ...]
    runs: int  # of the phone with the fewest
    ghz: str
    provenance: Provenance

    @property
    def known_ends(self) -> tuple[float | None, float | None]:
        """Both ends, for all that shows them; None if the error of one phone is unknown."""
        is_unknown = self.provenance.error_unknown and len(self.units) == 1
        return (None, None) if is_unknown else (self.low, self.high)

    @property
    def spread(self) -> str:
        """Both ends for a table."""
        low, high = self.known_ends
        if low is None or high is None:
            return "simulated, error unknown"
        return f"{number_text(low)} to {number_text(high)}"

    @property
    def text(self) -> str:
        """The value with its spread, for a pointer and a table."""
        units = f"; {len(self.units)} phones" if len(self.units) > 1 else ""
        return f"{number_text(self.value)} ({self.spread}{units})"

    def times(self, factor: float) -> "ModelValue":
        """Return the same in another unit."""
        units = tuple(factor * unit for unit in self.units)
        value, low, high = self.value * factor, self.low * factor, self.high * factor
        return replace(self, value=value, low=low, high=high, units=units)


CellKey = tuple[str, str, str]  # phone, digests of case and condition


@dataclass(frozen=True)
class ReportData(ReportInput):
    """All runs of a report, the names of their phones, and how its figures are stamped."""

    names: Mapping[str, str] = field(default_factory=dict)
    stamp: str = ""  # source, version and sweep, for every figure
    _groups: dict[tuple[Protocol, str], list[FleetGroup]] = field(default_factory=dict)

    def groups_of(self, protocol: Protocol, metric: str) -> list[FleetGroup]:
        """Return the cells of a protocol in a metric, also those without a valid run."""
        key = protocol, metric
        if key not in self._groups:
            runs = [
                run
                for run in self.runs
                if run.condition.protocol is protocol and run.case.workload not in OFF_PHONE
            ]
            self._groups[key] = list(compare_fleet(runs, metric, self.mix).groups)
        return self._groups[key]

    def groups(self, protocol: Protocol, metric: str = "") -> list[FleetGroup]:
        """Return the cells of a protocol that have values, by default in its headline."""
        found = self.groups_of(protocol, metric or HEADLINES[protocol])
        return [group for group in found if group.rows]

    def all_groups(self) -> list[FleetGroup]:
        """Return every cell, in the headline metric of its protocol."""
        return [
            g for protocol, metric in HEADLINES.items() for g in self.groups_of(protocol, metric)
        ]

    def values(self, group: FleetGroup, metric: str = "") -> dict[str, ModelValue]:
        """Return the values of a cell by model, the least first; `metric` asks for another one."""
        if metric:
            found = self.groups_of(group.condition.protocol, metric)
            same = [g for g in found if g.label == group.label and g.settings == group.settings]
            return pooled_values(same[0]) if same else {}
        return pooled_values(group)

    @cached_property
    def axes(self) -> tuple[CellAxis, ...]:
        """What differs between the cells of the sweep."""
        cells = [group.settings for group in self.all_groups()]
        cells += [cell_settings(failed.case, failed.condition) for failed in self.failures]
        return varying_axes(cells)

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

    def model_median(self, group: FleetGroup, metric: str) -> dict[str, float]:
        """Return the median of a metric over the valid runs of a cell, by model."""
        found: dict[str, list[float]] = {}
        for row in group.rows:
            for run in self.cell_runs(row.phone, group.case, group.condition):
                if run.counts(metric):
                    found.setdefault(model_name(row), []).append(run.metrics[metric].value)
        return {model: median(values) for model, values in found.items()}


def model_name(row: FleetRow) -> str:
    """Return the name of a phone's model."""
    return safe_text(row.model, 40)


def pooled_values(group: FleetGroup) -> dict[str, ModelValue]:
    """Join the phones of one model: the median of their values, and their spread."""
    members: dict[str, list[FleetRow]] = {}
    for row in group.rows:
        members.setdefault(model_name(row), []).append(row)
    found = {}
    for model, rows in members.items():
        units = tuple(sorted(row.median for row in rows))
        one = rows[0].interval
        low, high = (one.low, one.high) if len(rows) == 1 else (units[0], units[-1])
        ghz = " or ".join(dict.fromkeys(row.applied.clock_ghz for row in rows))
        source = weakest_provenance(row.provenance for row in rows)
        runs = min(row.n for row in rows)
        found[model] = ModelValue(model, median(units), low, high, units, runs, ghz, source)
    return dict(sorted(found.items(), key=lambda item: item[1].value))


def collect_report_data(given: ReportInput, stamp: str = "") -> ReportData:
    """Assign a name to every phone."""
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
    return ReportData(**vars(given), names=names, stamp=stamp)


def _serial(phone: str, phones: Sequence[str]) -> str:
    """Return the part of a serial number in which phones of one model differ."""
    columns = zip(*phones, strict=False)
    same = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return safe_text(phone, 14) if same <= 3 else f"…{safe_text(phone[same - 3 :], 13)}"


def same_clocks_text(found: Iterable[SameClock]) -> str:
    """Say which levels are one clock, and what their difference means."""
    texts = same_clock_texts(found)
    return " ".join(f"{text}, so their results differ only by chance." for text in texts)


def readable_unit(unit: str, values: Iterable[float]) -> tuple[str, float]:
    """Return the unit in which all values have few digits, and the factor that converts to it."""
    known = [value for value in values if value > 0]
    if known and min(known) >= LARGE and unit in _LARGER:
        return _LARGER[unit], 1e-3
    if known and min(known) < SMALL and max(known) < 1 and unit in _SMALLER:
        return _SMALLER[unit], 1e3
    return unit, 1.0


def unit_of(metric: str) -> str:
    """Return the unit of a metric."""
    return METRICS[metric].unit
