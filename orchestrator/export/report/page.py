"""The report as one HTML file that needs no network and looks the same for ever.

Its own style and its one small script are allowed by their digests, and nothing else is: the page
forbids its reader's browser to load anything. Without scripts it still shows everything.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from orchestrator.analysis.findings import Finding, energy_finding, fleet_findings
from orchestrator.analysis.measurements import MeasuredRun
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
    rankings.interaction,
    rankings.heat,
    rankings.ranking,
    setting_charts.pareto,
    setting_charts.batches,
    run_details.traces,
    run_details.operations,
    setting_charts.processors,
    rankings.fleet,
    methods.validity,
    methods.conditions,
    methods.provenance,
)


@dataclass(frozen=True)
class ReportPage:
    """Everything that the template shows."""

    title: str
    subtitle: str
    banner: str
    unfinished: str
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]
    absent: tuple[str, ...]
    phones: tuple[tuple[str, str, int], ...]
    workloads: tuple[str, ...]


def build_page(
    title: str, scene: ReportData, unfinished: str = "", first: Section | None = None
) -> ReportPage:
    """Gather the page; a section without anything to show is one sentence at the end.

    `first` stands before all others; without any run it stands alone.
    """
    runs = scene.runs
    alone = first is not None and not runs
    made = [*([first] if first else []), *(s(scene) for s in SECTIONS if not alone)]
    sweeps = ", ".join(sorted({safe_text(run.sweep) for run in runs})) or "no sweep"
    shown = tuple(section for section in made if not section.empty)
    return ReportPage(
        title=safe_text(title),
        subtitle="" if alone else _subtitle(scene, sweeps),
        banner=methods.banner(runs),
        unfinished=unfinished,
        findings=() if alone else _findings(scene),
        sections=shown,
        absent=tuple(f"{section.title}: {section.note}" for section in made if section.empty),
        phones=tuple((phone, name, scene.colours[phone]) for phone, name in scene.names.items()),
        workloads=tuple(sorted({run.case.name for run in runs if run.valid}, key=natural_sort_key)),
    )


def _findings(scene: ReportData) -> tuple[Finding, ...]:
    cold, hot, together = fleet_findings(scene.runs, scene.mix)
    return cold, hot, energy_finding(scene.runs, scene.mix), together


def _subtitle(scene: ReportData, sweeps: str) -> str:
    runs, phones = len(scene.runs), len(scene.names)
    made = f"{runs} run{'s' * (runs != 1)} on {phones} phone{'s' * (phones != 1)}"
    return f"{sweeps} · {methods.period(scene.runs)} · {made}"


def render_page(
    title: str,
    runs: Sequence[MeasuredRun],
    telemetry: Sequence[tuple[MeasuredRun, Telemetry]] = (),
    mix: bool = False,
    unfinished: str = "",
    first: Section | None = None,
) -> str:
    """Write the report of some runs, with the telemetry of some of them, as a page."""
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
    """How a policy names a piece of the page that may stay."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
