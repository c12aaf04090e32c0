"""The section of a study: its claims beside what was seen here."""

from collections.abc import Sequence

from orchestrator.export.report.scene import Section
from orchestrator.study.answers import HEADINGS, Line, notes
from orchestrator.study.catalogue import Study
from workloads.text import safe_text


def study_section(study: Study, lines: Sequence[Line], kernels: bool = False) -> Section:
    """Claim by claim, each with where it stands written and where ours comes from."""
    headings = (*(heading.capitalize() for heading in HEADINGS), "Stands in")
    return Section(
        "study",
        study.question,
        study.caution,
        headings=headings,
        lines=tuple(
            tuple(safe_text(cell, 400) for cell in (*line.cells, study.source_of(line.claim)))
            for line in lines
        ),
        note=" ".join(notes(study, lines, kernels)[1:]),
    )
