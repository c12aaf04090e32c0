"""The report section of a study: its claims with the results of this lab."""

from collections.abc import Sequence

from orchestrator.export.report.report_data import Section
from orchestrator.study.claim_table import HEADINGS, ClaimRow, blank_repeats, table_notes
from orchestrator.study.study_catalogue import Study
from workloads.text import safe_text


def study_section(study: Study, rows: Sequence[ClaimRow]) -> Section:
    """Build the table of claims, with the citations below it."""
    cells = blank_repeats([row.cells for row in rows])
    return Section(
        "study",
        study.question,
        study.caveat,
        headings=tuple(heading.capitalize() for heading in HEADINGS),
        rows=tuple(tuple(safe_text(cell, 400) for cell in row) for row in cells),
        note=" ".join(table_notes(study, rows)[1:]),
    )
