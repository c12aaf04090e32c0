"""The report as one self-contained HTML file, which needs no network and has no script.

The page allows its own style by its digest (Content-Security-Policy), so a browser loads and runs
nothing else. Images and their values are links with the content inside.
"""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2

from orchestrator.analysis.findings import Finding, energy_finding, fleet_findings
from orchestrator.export.escape import text_cell
from orchestrator.export.report import (
    axis_section,
    methods,
    rankings,
    run_details,
    setting_charts,
)
from orchestrator.export.report.methods import VerdictHead
from orchestrator.export.report.report_data import (
    ReportData,
    ReportInput,
    Section,
    collect_report_data,
)
from orchestrator.export.report.svg import Drawing
from workloads.text import natural_sort_key, safe_text

HERE = Path(__file__).parent
SECTIONS = (
    axis_section.axis_section,
    rankings.matrix_section,
    rankings.heat_section,
    rankings.ranking_section,
    setting_charts.pareto_section,
    run_details.trace_section,
    run_details.operation_section,
    run_details.step_section,
    setting_charts.processor_section,
    rankings.fleet_section,
    methods.validity_section,
    methods.variance_section,
    methods.conditions_section,
    methods.clocks_section,
    methods.provenance_section,
    methods.repeat_section,
)
PALETTE = (
    *("#2f6f9f", "#d1622b", "#3f8f57", "#b23a48", "#c99a1e"),
    *("#7b5aa6", "#3a9aa0", "#a0628a", "#7a7f3c", "#8a9099"),
)
# From light to dark, so that a picture can be read in grey.
SHADES = (
    *("#f1f6fb", "#d9e7f3", "#bcd6ea", "#98c2df", "#6da9cf"),
    *("#468dbd", "#2a6fa3", "#14517f", "#0a3357"),
)
VERDICTS = ("#b9dcc2", "#e2a63a", "#b0472f", "#5c1524", "#8a9099")
BARS = ("#14517f", "#98c2df", "#468dbd", "#d9e7f3", "#2a6fa3", "#bcd6ea")
DASHES = ("none", "6 3", "2 2.5", "8 3 2 3", "1 3", "10 4")
_RULE, _CLASS = re.compile(r"([^{}]+)\{([^{}]*)\}"), re.compile(r"\.([a-z]\w*)")
_CLASSES = re.compile(r' class="([^"]*)"')
SHADE_DARK = 5  # text inside this shade and darker ones is white


@dataclass(frozen=True)
class ReportPage:
    """Everything that the template shows."""

    title: str
    subtitle: str
    banner: str
    unfinished: str
    head: VerdictHead
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]
    not_shown: tuple[str, ...]
    phones: tuple[tuple[str, str], ...]
    workloads: tuple[str, ...]


def build_page(
    title: str, data: ReportData, unfinished: str = "", first: Section | None = None
) -> ReportPage:
    """Build the page; a section without content becomes one sentence at the end.

    `first` is placed before all other sections; without any run it is the only one.
    """
    runs = data.runs
    only_first = first is not None and not runs
    sections = [*([first] if first else []), *(s(data) for s in SECTIONS if not only_first)]
    ids = {run.sweep for run in runs} or {sweep.id for sweep in data.sweeps}
    sweeps = ", ".join(sorted(map(safe_text, ids))) or "no sweep"
    return ReportPage(
        title=safe_text(title),
        subtitle="" if only_first else _subtitle(data, sweeps),
        banner=methods.simulation_banner(runs),
        unfinished=unfinished,
        head=methods.verdict_head(data),
        findings=() if only_first else _findings(data),
        sections=tuple(section for section in sections if not section.is_empty),
        not_shown=tuple(f"{item.title}: {item.note}" for item in sections if item.is_empty),
        phones=tuple(data.names.items()),
        workloads=tuple(sorted({run.case.name for run in runs if run.valid}, key=natural_sort_key)),
    )


def _findings(data: ReportData) -> tuple[Finding, ...]:
    cold, hot, cohort = fleet_findings(data.runs, data.mix)
    return cold, hot, energy_finding(data.runs, data.mix), cohort


def _subtitle(data: ReportData, sweeps: str) -> str:
    runs, phones = len(data.runs), len(data.names)
    if not runs:
        return f"{sweeps} · no runs"
    counts = f"{runs} run{'s' * (runs != 1)} on {phones} phone{'s' * (phones != 1)}"
    return f"{sweeps} · {methods.period_text(data.runs)} · {counts}"


def render_page(
    title: str, given: ReportInput, unfinished: str = "", first: Section | None = None
) -> str:
    """Render the report of some runs as a page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = build_page(title, collect_report_data(given), unfinished, first)
    figure_style = _figure_style()
    page_style = (HERE / "page.css").read_text(encoding="utf-8")
    style = f"{figure_style}{page_style}{_filter_style(page)}"
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    links = _FigureLinks(figure_style)
    return environment.get_template("page.html").render(
        page=page, style=style, policy=policy, links=links
    )


def _figure_style() -> str:
    """Return the style of the images, without variables, which many programs do not support."""
    colours = [
        f".fill.p{i}{{fill:{c}}}.stroke.p{i}{{stroke:{c}}}.dot.p{i}{{background:{c}}}"
        for i, c in enumerate(PALETTE)
    ]
    shades = [
        f".{kind}{i}{{fill:{c}}}"
        for kind, values in (("h", SHADES), ("s", VERDICTS), ("b", BARS))
        for i, c in enumerate(values)
    ]
    inside = [f".i{i}{{fill:{'#fff' if i >= SHADE_DARK else '#1d2126'}}}" for i in range(9)]
    dashes = [f".d{i}{{stroke-dasharray:{value}}}" for i, value in enumerate(DASHES)]
    rules = (HERE / "figure.css").read_text(encoding="utf-8")
    return rules + "".join((*colours, *shades, *inside, *dashes)) + "\n"


def _filter_style(page: ReportPage) -> str:
    """Return the rules that highlight the chosen phone and hide other workloads."""
    rules = []
    for index, (phone, _) in enumerate(page.phones):
        chosen = f"main:has(#phone option:nth-child({index + 2}):checked)"
        rules.append(f'{chosen} [data-phone]:not([data-phone="{_css_text(phone)}"])')
    dim = f"{','.join(rules)}{{opacity:.13}}" if rules else ""
    hidden = [
        f"main:has(#workload option:nth-child({index + 2}):checked) "
        f'[data-workload]:not([data-workload="{_css_text(name)}"],[data-workload=""])'
        for index, name in enumerate(page.workloads)
    ]
    return dim + (f"{','.join(hidden)}{{display:none}}" if hidden else "")


def _css_text(text: str) -> str:
    """Escape a text for a selector: every character that is not a letter or digit."""
    plain = safe_text(text, 200)
    return "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in plain)


class _FigureLinks:
    """The content of downloads, as links."""

    def __init__(self, style: str) -> None:
        self._rules = [
            (frozenset(_CLASS.findall(selector)), f"{selector.strip()}{{{rule}}}")
            for selectors, rule in _RULE.findall(style)
            for selector in selectors.split(",")
        ]
        self._names: dict[str, int] = {}

    def name(self, title: str) -> str:
        """Return a file name for a figure; no two figures of a page share one."""
        words = "".join(c.lower() if c.isascii() and c.isalnum() else "-" for c in title)
        stem = "-".join(filter(None, words.split("-")))[:60] or "figure"
        self._names[stem] = self._names.get(stem, 0) + 1
        return stem if self._names[stem] == 1 else f"{stem}-{self._names[stem]}"

    def svg(self, drawing: Drawing) -> str:
        """Return an image as a separate file, with its style inside."""
        fonts = 'font-family="Helvetica, Arial, sans-serif" font-size="11"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {fonts}'
        body = str(drawing.svg).removeprefix("<svg")
        opening, _, rest = body.partition(">")
        used = {name for names in _CLASSES.findall(body) for name in names.split()}
        style = "".join(rule for classes, rule in self._rules if classes <= used)
        text = f"{head}{opening}><style>{style}</style>{rest}"
        return _data_link("image/svg+xml", text)

    def csv(self, drawing: Drawing) -> str:
        """Return the values of an image as CSV."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(drawing.headings)
        writer.writerows(_csv_row(row) for row in drawing.rows)
        return _data_link("text/csv", file.getvalue())

    def text(self, content: str) -> str:
        """Return a text as a file."""
        return _data_link("text/plain", content)


def _csv_row(row: Iterable[str | float | None]) -> list[str | float | None]:
    return [
        text_cell(cell) if isinstance(cell, str) else float(f"{cell:.6g}") if cell else cell
        for cell in row
    ]


def _data_link(kind: str, text: str) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
