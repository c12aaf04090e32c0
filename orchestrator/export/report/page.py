"""The report as one self-contained HTML file, which needs no network.

The page allows its own style and its one small script by their digests (Content-Security-Policy),
so a browser loads nothing else. Without scripts the page still shows everything.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from orchestrator.analysis.findings import Finding, energy_finding, fleet_findings
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.verdict_counts import count_verdicts
from orchestrator.export.report import methods, rankings, run_details, setting_charts
from orchestrator.export.report.report_data import (
    ReportData,
    Section,
    collect_report_data,
)
from workloads.protocol.telemetry import Telemetry
from workloads.text import natural_sort_key, safe_text

HERE = Path(__file__).parent
SECTIONS = (
    rankings.matrix_section,
    rankings.heat_section,
    rankings.ranking_section,
    setting_charts.pareto_section,
    setting_charts.batch_section,
    run_details.trace_section,
    run_details.operation_section,
    run_details.step_section,
    setting_charts.processor_section,
    rankings.fleet_section,
    methods.validity_section,
    methods.variance_section,
    methods.conditions_section,
    methods.provenance_section,
)


@dataclass(frozen=True)
class ReportPage:
    """Everything that the template shows."""

    title: str
    subtitle: str
    banner: str
    unfinished: str
    left_out: str
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]
    not_shown: tuple[str, ...]
    phones: tuple[tuple[str, str, int], ...]
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
    sweeps = ", ".join(sorted({safe_text(run.sweep) for run in runs})) or "no sweep"
    return ReportPage(
        title=safe_text(title),
        subtitle="" if only_first else _subtitle(data, sweeps),
        banner=methods.simulation_banner(runs),
        unfinished=unfinished,
        left_out=_left_out(data),
        findings=() if only_first else _findings(data),
        sections=tuple(section for section in sections if not section.is_empty),
        not_shown=tuple(f"{item.title}: {item.note}" for item in sections if item.is_empty),
        phones=tuple((phone, name, data.colours[phone]) for phone, name in data.names.items()),
        workloads=tuple(sorted({run.case.name for run in runs if run.valid}, key=natural_sort_key)),
    )


def _findings(data: ReportData) -> tuple[Finding, ...]:
    cold, hot, cohort = fleet_findings(data.runs, data.mix)
    return cold, hot, energy_finding(data.runs, data.mix), cohort


def _left_out(data: ReportData) -> str:
    text = count_verdicts(data.runs).left_out.text
    return f"{text}. See 'Which runs count'." if text else ""


def _subtitle(data: ReportData, sweeps: str) -> str:
    runs, phones = len(data.runs), len(data.names)
    counts = f"{runs} run{'s' * (runs != 1)} on {phones} phone{'s' * (phones != 1)}"
    return f"{sweeps} · {methods.period_text(data.runs)} · {counts}"


def render_page(
    title: str,
    runs: Sequence[MeasuredRun],
    telemetry: Sequence[tuple[MeasuredRun, Telemetry]] = (),
    mix: bool = False,
    unfinished: str = "",
    first: Section | None = None,
) -> str:
    """Render the report of some runs, with the telemetry of some of them, as a page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = build_page(title, collect_report_data(runs, telemetry, mix), unfinished, first)
    return environment.get_template("page.html").render(
        page=page, style=style, script=script, policy=policy
    )


def _digest(text: str) -> str:
    """Return the digest of an inline style or script, as a Content-Security-Policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
