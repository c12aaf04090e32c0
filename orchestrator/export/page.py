"""The report page: one HTML file that needs no network, runs no script and looks the same for ever.

Autoescape is on for everything, and the page forbids its own reader's browser to load anything.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jinja2

from orchestrator.export.page_content import content_of
from orchestrator.nouns import MeasuredRun


def render_page(
    title: str, runs: Sequence[MeasuredRun], mix: bool = False, unfinished: str = ""
) -> str:
    """Write the report of some runs as a self-contained page; say so when more are to come."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    content = replace(content_of(title, runs, mix), unfinished=unfinished)
    return environment.get_template("page.html").render(page=content)
