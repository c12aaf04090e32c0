"""The report as one self-contained HTML file, which needs no network and has no script.

The page allows its own style by its digest (Content-Security-Policy), so a browser loads and runs
nothing else. Figures and their values are links with the content inside.
"""

import base64
import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

from orchestrator.export.escape import text_cell
from orchestrator.export.report import details, methods
from orchestrator.export.report.answers import Answer, sweep_answers
from orchestrator.export.report.axis_figures import axis_figures
from orchestrator.export.report.figure import (
    NARROW,
    PANEL,
    WIDE,
    Figure,
    join_panels,
    legend_picture,
)
from orchestrator.export.report.picture_files import (
    FILE_KINDS,
    figure_file,
    page_css,
    page_svg,
    saved_svg,
)
from orchestrator.export.report.report_data import (
    ReportData,
    ReportInput,
    Section,
    collect_report_data,
)
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text, suggestion
from workloads.units import count_text

HERE = Path(__file__).parent
_STYLE = page_css() + (HERE / "page.css").read_text(encoding="utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
)
SECTIONS = (
    details.cells_section,
    details.heat_section,
    details.operation_section,
    methods.left_out_section,
    methods.conditions_section,
    methods.clocks_section,
    details.phones_section,
    methods.variance_section,
    methods.provenance_section,
    methods.repeat_section,
)


@dataclass(frozen=True)
class ReportPage:
    """Everything that the template shows."""

    title: str
    subtitle: str
    source: str
    caveat: str
    unfinished: str
    head: Answer | None
    first: Section | None  # of a study: its claims
    findings: tuple[Answer, ...]
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    stamp: str


def build_page(
    title: str, data: ReportData, unfinished: str = "", first: Section | None = None
) -> ReportPage:
    """Build the page; a section without content is left out.

    `first` takes the place of the sweep's own question; without any run it is all there is.
    """
    only_first = first is not None and not data.runs
    sections = [] if only_first else [section(data) for section in SECTIONS]
    answers = [] if only_first else sweep_answers(data)
    heads = answers[:1] if first is None else []
    return ReportPage(
        title=safe_text(title),
        subtitle="" if only_first else _subtitle(data, title),
        source=methods.source_words(data.runs),
        caveat=methods.caveat(data.runs),
        unfinished=unfinished,
        head=heads[0] if heads else None,
        first=first,
        findings=tuple(answers[len(heads) :]),
        figures=() if only_first else tuple(axis_figures(data)),
        sections=tuple(s for s in sections if not s.is_empty or s.id == "left-out"),
        stamp=data.stamp,
    )


def _subtitle(data: ReportData, title: str) -> str:
    runs, phones = len(data.runs), len(data.names)
    if not runs:
        return f"{safe_text(title)} · no runs"
    valid = sum(run.valid for run in data.runs)
    counts = f"{count_text(runs, 'run')}, {valid:,} valid · {count_text(phones, 'phone')}"
    return f"{safe_text(title)} · {counts} · {methods.period_text(data.runs)}"


def stamp_of(given: ReportInput) -> str:
    """Return what every figure says about its numbers: their source, the version, the sweep."""
    ids = {run.sweep for run in given.runs} or {sweep.id for sweep in given.sweeps}
    source = methods.source_words(given.runs).replace("simulated", "SIMULATED")
    errors = [m.provenance for run in given.runs for m in run.metrics.values()]
    if any(provenance.error_unknown for provenance in errors):
        source += ", error unknown"
    named = " ".join(sorted(ids)[:2]) + " …" * (len(ids) > 2)
    parts = (source, f"Farmhand {given.version}" if given.version else "Farmhand", named)
    return " · ".join(filter(None, map(safe_text, parts)))


def report_figures(given: ReportInput) -> list[Figure]:
    """Return every figure of a report as on its page; the first is that of the first screen."""
    page = build_page("", collect_report_data(given))
    answers = [*([page.head] if page.head else []), *page.findings]
    figures = [*(answer.figure for answer in answers), *page.figures]
    figures += [figure for section in page.sections for figure in section.figures]
    return list({figure.name: figure for figure in figures}.values())


def choose_figure(figures: Sequence[Figure], name: str) -> Figure:
    """Return a figure by its name; without a name, the main one."""
    if not figures:
        raise InvalidRequest("this sweep has no figure yet: it has no valid run")
    known = {figure.name: figure for figure in figures}
    if name and name not in known:
        hint = suggestion(name, list(known))
        raise InvalidRequest(f"there is no figure '{safe_text(name, 60)}'; {hint}")
    return known[name] if name else figures[0]


def write_figure(figure: Figure, kind: str, given: ReportInput) -> bytes:
    """Return a figure as a file for a paper."""
    if kind not in FILE_KINDS:
        raise InvalidRequest(f"a figure can be a {', '.join(FILE_KINDS)} file, not '{kind[:20]}'")
    return figure_file(figure, kind, stamp_of(given))


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
    stamp = stamp_of(given)
    page = build_page(title, collect_report_data(given, stamp), unfinished, first)
    shown = _FigureView(stamp, page.source)
    return environment.get_template("page.html").render(
        page=page, style=_STYLE, policy=CONTENT_POLICY, view=shown
    )


@dataclass(frozen=True)
class _FigureView:
    """Figures as the page shows them, and as links that save them."""

    stamp: str
    source: str

    def head(self, figure: Figure) -> Markup:
        """Return the figure of the first screen, for wide and for narrow screens."""
        wide = page_svg(join_panels(figure, self.stamp, WIDE), figure.title, "wide")
        return wide + page_svg(join_panels(figure, self.stamp, NARROW), figure.title, "narrow")

    def panels(self, figure: Figure) -> Markup:
        """Return a figure as panels side by side, as many as fit."""
        if figure.panels == 1:
            return page_svg(join_panels(figure, self.stamp, NARROW), figure.title)
        drawn = [page_svg(panel, figure.title) for panel in figure.draw(PANEL)]
        below = page_svg(legend_picture(figure.legend, self.stamp, PANEL), "legend", "legend")
        return Markup("").join([*drawn, below])

    def svg(self, figure: Figure) -> str:
        """Return a link that saves the figure."""
        return _data_link("image/svg+xml", saved_svg(join_panels(figure, self.stamp), figure.title))

    def csv(self, figure: Figure) -> str:
        """Return a link that saves the values of the figure."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*figure.headings, "source"))
        writer.writerows((*_csv_row(row), self.source) for row in figure.rows)
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
