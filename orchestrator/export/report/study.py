"""The section of a study: its claims beside what was seen here."""

from collections.abc import Sequence

from orchestrator.export.report.scene import Section
from orchestrator.study.answers import HEADINGS, Line, notes, said_once
from orchestrator.study.catalogue import Study
from workloads.text import safe_text


def study_section(study: Study, lines: Sequence[Line], kernels: bool = False) -> Section:
    """Claim by claim, each with where ours comes from; below, where theirs stand written."""
    rows = said_once([line.cells for line in lines])
    return Section(
        "study",
        study.question,
        study.caution,
        headings=tuple(heading.capitalize() for heading in HEADINGS),
        lines=tuple(tuple(safe_text(cell, 400) for cell in row) for row in rows),
        note=" ".join(notes(study, lines, kernels)[1:]),
    )
