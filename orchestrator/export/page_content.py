"""What a report page shows, as plain words and numbers: all layout is left to the template.

Every text that a phone had a hand in is made safe here, and escaped once more by the template.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.compare import FleetGroup, FleetRow, FleetTable, compare_fleet
from orchestrator.analysis.findings import COLD_METRIC, SUSTAINED_METRIC, Finding, findings
from orchestrator.analysis.pace import OFF_PHONE, paces_of
from orchestrator.analysis.slowdown import Slowdown, slowdowns
from orchestrator.analysis.validity import Validity, count_validity
from orchestrator.nouns import MeasuredRun
from workloads.condition import Condition, Protocol
from workloads.measure import METRICS, Model, Source
from workloads.text import safe_text
from workloads.units import format_duration, format_ms


@dataclass(frozen=True)
class Bar:
    """A bar and its interval in percent of the track."""

    width: float
    low: float
    high: float
    simulated: bool
    error_known: bool


@dataclass(frozen=True)
class Line:
    """A phone in a group."""

    rank: str
    name: str
    serial: str
    soc: str
    value: str
    interval: str
    ratio: str
    runs: str
    origin: str
    claim: str
    bar: Bar | None


@dataclass(frozen=True)
class Group:
    """A cell with its phones."""

    case: str
    condition: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Section:
    """All cells of a protocol, in one metric."""

    title: str
    text: str
    unit: str
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Heat:
    """A phone before and after ten minutes: two dots on one track."""

    name: str
    serial: str
    before: str
    after: str
    ratio: str
    start: float
    end: float
    simulated: bool


@dataclass(frozen=True)
class PhoneLine:
    """A phone and how it was held."""

    name: str
    serial: str
    soc: str
    android: str
    control: str
    uncontrolled: str
    time_from: str


@dataclass(frozen=True)
class Content:
    """The whole page."""

    title: str
    sweeps: str
    period: str
    banner: str
    unfinished: str
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]
    heat: tuple[Heat, ...]
    validity: Validity
    conditions: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    phones: tuple[PhoneLine, ...]


def content_of(title: str, runs: Sequence[MeasuredRun], mix: bool = False) -> Content:
    """Gather everything that the page says."""
    on_phone = [run for run in runs if run.case.workload not in OFF_PHONE]
    cold = [run for run in on_phone if run.condition.protocol is Protocol.COLD]
    long = [run for run in on_phone if run.condition.protocol is Protocol.ENDURANCE]
    sections = (
        _section("Cold", compare_fleet(cold, COLD_METRIC, mix)),
        _section("After ten minutes", compare_fleet(long, SUSTAINED_METRIC, mix)),
    )
    return Content(
        title=safe_text(title),
        sweeps=", ".join(sorted({safe_text(run.sweep) for run in runs})) or "no sweep",
        period=_period(runs),
        banner=_banner(runs),
        unfinished="",
        findings=findings(runs, mix),
        sections=tuple(section for section in sections if section.groups),
        heat=_heat(runs, mix),
        validity=count_validity(runs),
        conditions=_conditions(runs),
        phones=_phones(runs),
    )


def _section(title: str, table: FleetTable) -> Section:
    groups = tuple(_group(group) for group in table.groups)
    return Section(title, METRICS[table.metric].text, table.unit, groups)


def _group(group: FleetGroup) -> Group:
    most = max((row.interval.high for row in group.rows), default=1.0)
    lines = [_line(row, most) for row in group.rows]
    lines += [
        Line(
            rank="–",
            name=safe_text(absent.model, 60),
            serial=safe_text(absent.phone, 64),
            soc=safe_text(absent.soc, 40),
            value="no valid run",
            interval="",
            ratio="",
            runs=_runs(0, absent.suspect, absent.void),
            origin="",
            claim="",
            bar=None,
        )
        for absent in group.absent
    ]
    return Group(group.case.label, group.condition.label, tuple(lines))


def _line(row: FleetRow, most: float) -> Line:
    error_known = row.provenance.model is not Model.EXTRAPOLATED
    interval = f"{format_ms(row.interval.low)} – {format_ms(row.interval.high)}"
    return Line(
        rank=str(row.rank),
        name=safe_text(row.model, 60),
        serial=safe_text(row.phone, 64),
        soc=safe_text(row.soc, 40),
        value=format_ms(row.median),
        interval=interval if error_known else "error unknown",
        ratio="" if row.ratio is None or row.rank == 1 else f"{row.ratio:.2f} × the first",
        runs=_runs(row.n, row.suspect, row.void),
        origin=str(row.provenance),
        claim=row.claim,
        bar=Bar(
            _percent(row.median, most),
            _percent(row.interval.low, most),
            _percent(row.interval.high, most),
            row.provenance.source is Source.SIMULATED,
            error_known,
        ),
    )


def _runs(valid: int, suspect: int, void: int) -> str:
    words = [f"{valid} valid"]
    words += [f"{suspect} suspect"] if suspect else []
    words += [f"{void} void"] if void else []
    return ", ".join(words)


def _heat(runs: Sequence[MeasuredRun], mix: bool) -> tuple[Heat, ...]:
    cold = paces_of(runs, Protocol.COLD, COLD_METRIC, mix)
    hot = paces_of(runs, Protocol.ENDURANCE, SUSTAINED_METRIC, mix)
    found = slowdowns(cold, hot)
    most = max((max(each.cold_ms, each.hot_ms) for each in found), default=1.0)
    return tuple(_dots(each, most) for each in found)


def _dots(each: Slowdown, most: float) -> Heat:
    return Heat(
        name=safe_text(each.cold.model, 60),
        serial=safe_text(each.cold.phone, 64),
        before=format_ms(each.cold_ms),
        after=format_ms(each.hot_ms),
        ratio=f"{each.ratio:.2f} ×",
        start=_percent(each.cold_ms, most),
        end=_percent(each.hot_ms, most),
        simulated=each.cold.provenance.source is Source.SIMULATED,
    )


def _percent(value: float, most: float) -> float:
    return round(min(100.0, max(0.0, 100.0 * value / most)), 2) if most > 0 else 0.0


def _banner(runs: Iterable[MeasuredRun]) -> str:
    """Say before anything else that numbers were simulated, and how good the simulation is."""
    made = [metric.provenance for run in runs for metric in run.metrics.values()]
    simulated = [each for each in made if each.source is Source.SIMULATED]
    if not simulated:
        return ""
    which = "These numbers" if len(simulated) == len(made) else "Some of these numbers"
    text = f"{which} come from a simulation; they are not measurements of any phone."
    errors = [each.error_rel for each in simulated if each.error_rel is not None]
    if errors:
        text += f" Fitted models err by up to {max(errors):.0%}; the intervals contain that error."
    if any(each.model is Model.EXTRAPOLATED for each in simulated):
        text += " Extrapolated models have an unknown error, and nothing is claimed from them."
    return text


def _period(runs: Sequence[MeasuredRun]) -> str:
    if not runs:
        return "no runs"
    first = min(run.started_at for run in runs)
    last = max(run.ended_at for run in runs)
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} {last:%Z}".strip()


def _conditions(
    runs: Iterable[MeasuredRun],
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    conditions = {run.condition.digest: run.condition for run in runs}
    ordered = sorted(conditions.items(), key=lambda item: (item[1].label, item[0]))
    return tuple((condition.label, _terms(condition)) for _, condition in ordered)


def _terms(condition: Condition) -> tuple[tuple[str, str], ...]:
    launch = condition.launch
    return (
        ("Protocol", condition.protocol.value),
        ("Cores", condition.cores),
        ("Clock", condition.freq),
        ("Start", _start(condition)),
        ("Cooling", f"waits up to {format_duration(condition.cool_wait_max_s)}"),
        ("Battery", f"at least {condition.battery_min_pct} %"),
        (
            "Length",
            f"{launch.warmup} steps to warm up, then at least {launch.steps} steps and "
            f"{format_duration(launch.seconds)}",
        ),
    )


def _start(condition: Condition) -> str:
    if condition.start_temp_max_c is None:
        return "at any temperature"
    slope = condition.start_slope_max_c_per_min
    return f"at most {condition.start_temp_max_c:g} °C, changing by at most {slope:g} °C a minute"


def _phones(runs: Iterable[MeasuredRun]) -> tuple[PhoneLine, ...]:
    latest = {run.phone: run for run in sorted(runs, key=lambda run: run.ended_at)}
    lines = []
    for serial, run in sorted(latest.items()):
        facts = run.facts
        time_from = facts.provenance.time if facts.provenance else None
        lines.append(
            PhoneLine(
                name=safe_text(facts.model, 60),
                serial=safe_text(serial, 64),
                soc=safe_text(facts.soc, 40),
                android=safe_text(facts.android, 20),
                control=str(run.control or "unknown"),
                uncontrolled=safe_text(", ".join(facts.uncontrolled), 200),
                time_from=str(time_from) if time_from else "",
            )
        )
    return tuple(lines)
