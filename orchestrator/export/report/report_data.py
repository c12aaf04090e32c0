"""What the sections of a report share: the runs, a colour and a name for each phone, the pieces."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from orchestrator.analysis.fleet_means import OFF_PHONE
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow, compare_fleet
from orchestrator.analysis.measurements import MeasuredRun
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import METRICS, SimulationModel
from workloads.protocol.telemetry import Telemetry
from workloads.text import safe_text
from workloads.units import format_ms

COLOURS = 10


@dataclass(frozen=True)
class Card:
    """A picture with its heading; the filter knows it by its workload."""

    title: str
    text: str
    svg: Markup
    workload: str = ""
    legend: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class MatrixCell:
    """A figure of a phone in a column, and how far it is from the best."""

    text: str
    ratio: str
    warmth: int  # 0 the best, 9 the farthest from it; -1 nothing
    tip: str


@dataclass(frozen=True)
class MatrixRow:
    """A phone."""

    name: str
    phone: str
    colour: int
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True)
class RankingMatrix:
    """Phones against cells."""

    title: str
    unit: str
    columns: tuple[tuple[str, str, str], ...]  # workload, parameters, condition
    rows: tuple[MatrixRow, ...]


@dataclass(frozen=True)
class Section:
    """A part of the page: pictures, tables, or a sentence that says why there are none."""

    id: str
    title: str
    text: str
    cards: tuple[Card, ...] = ()
    matrices: tuple[RankingMatrix, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    wide: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.cards or self.matrices or self.rows)


@dataclass(frozen=True)
class ReportData:
    """All runs of a report."""

    runs: Sequence[MeasuredRun]
    telemetry: Sequence[tuple[MeasuredRun, Telemetry]] = ()
    mix: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, int] = field(default_factory=dict)

    def runs_of(self, protocol: Protocol) -> list[MeasuredRun]:
        """The runs of a protocol that take place on a phone."""
        return [
            run
            for run in self.runs
            if run.condition.protocol is protocol and run.case.workload not in OFF_PHONE
        ]

    def groups(self, protocol: Protocol, metric: str) -> list[FleetGroup]:
        """The cells of a protocol in a metric, each with its phones ranked."""
        found = compare_fleet(self.runs_of(protocol), metric, self.mix).groups
        return [group for group in found if group.rows]


def collect_report_data(
    runs: Sequence[MeasuredRun],
    telemetry: Sequence[tuple[MeasuredRun, Telemetry]] = (),
    mix: bool = False,
) -> ReportData:
    """Give every phone a name and a colour."""
    models = {run.phone: safe_text(run.facts.model, 40) for run in runs}
    shared = Counter(models.values())
    names = {
        phone: model if shared[model] == 1 else f"{model} ({safe_text(phone, 24)})"
        for phone, model in sorted(models.items())
    }
    colours = {phone: at % COLOURS for at, phone in enumerate(names)}
    return ReportData(runs, telemetry, mix, names, colours)


def metric_text(row: FleetRow, unit: str) -> str:
    """A ranked figure in words, with where it comes from."""
    interval = f"{format_ms(row.interval.low)} to {format_ms(row.interval.high)}"
    known = row.provenance.model is not SimulationModel.EXTRAPOLATED
    within = interval if known else f"{interval} in these runs; the model's error is unknown"
    runs = f"{row.n} {'run' if row.n == 1 else 'runs'}"
    return f"{row.model}: {format_ms(row.median)} {unit} ({within}; {runs}; {row.provenance})"


def unit_of(metric: str) -> str:
    """The unit of a metric, as a heading says it."""
    return METRICS[metric].unit
