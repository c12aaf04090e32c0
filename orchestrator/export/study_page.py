"""The page of a study, as one self-contained HTML file: answers, the paper's figures, all claims.

The page allows its own style by its digest and has no script. The runs behind it are in the report
of each sweep.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from orchestrator.export.study_chart import Chart, draw_panel
from orchestrator.study.claim_table import HEADINGS, ClaimRow, blank_repeats, table_notes
from orchestrator.study.experiment import ExperimentRow
from orchestrator.study.figure_panels import FigurePanel
from orchestrator.study.group_answers import GroupAnswer, group_answers
from orchestrator.study.study_catalogue import Study
from orchestrator.study.study_figure import StudyFigure
from workloads.text import safe_text

HERE = Path(__file__).parent
CELL_MAX = 400
EXPERIMENT_HEADINGS = ("Property", "In the study", "Here", "Difference")


@dataclass(frozen=True)
class StudyPage:
    """Everything that the template shows."""

    study: Study
    answers: tuple[GroupAnswer, ...]
    simulated: bool
    unfinished: str
    charts: tuple[tuple[str, tuple[Chart, ...]], ...]  # by figure
    headings: tuple[str, ...]
    claims: tuple[tuple[str, ...], ...]
    experiment: tuple[ExperimentRow, ...]
    notes: tuple[str, ...]
    sweeps: tuple[str, ...]


def render_study_page(
    study: Study,
    rows: Sequence[ClaimRow],
    figures: Sequence[tuple[StudyFigure, Sequence[FigurePanel]]],
    experiment: Sequence[ExperimentRow],
    sweeps: Sequence[str],
    simulated: bool,
    unfinished: str = "",
) -> str:
    """Render the page."""
    cells = blank_repeats([row.cells for row in rows])
    page = StudyPage(
        study,
        tuple(group_answers(study, rows)),
        simulated,
        unfinished,
        tuple((f.title, tuple(draw_panel(f, panel) for panel in panels)) for f, panels in figures),
        tuple(heading.capitalize() for heading in HEADINGS),
        tuple(tuple(safe_text(cell, CELL_MAX) for cell in row) for row in cells),
        tuple(experiment),
        tuple(table_notes(study, rows)),
        tuple(sweeps),
    )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (HERE / "study_page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return environment.get_template("study_page.html").render(
        page=page, style=style, policy=policy, experiment_headings=EXPERIMENT_HEADINGS
    )
