"""Draws one panel of a study's figure as SVG: what was seen, with rings where it was published."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from orchestrator.study.figure_panels import FigureMark, FigurePanel
from orchestrator.study.study_catalogue import format_number
from orchestrator.study.study_figure import FigureKind, StudyFigure

WIDTH, HEIGHT = 400, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 38
COLOURS = 10
TICKS = 5


class LegendItem(NamedTuple):
    """A line's name and colour."""

    name: str
    colour: int


@dataclass(frozen=True)
class Chart:
    """A drawn panel."""

    title: str
    svg: Markup
    legend: tuple[LegendItem, ...]
    has_published: bool


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float  # pixels
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = (self._at(number) for number in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start)

    def _at(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.log else value

    def ticks(self) -> list[float]:
        """Return round values within the scale."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            factors = (1, 2, 5) if len(powers) < TICKS else (1,)
            return [
                factor * 10.0**power
                for power in powers
                for factor in factors
                if self.low <= factor * 10.0**power <= self.high
            ]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) or 1.0))
        while (self.high - self.low) / step < TICKS - 1:
            step /= 2
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step) + 1)]


def draw_panel(figure: StudyFigure, panel: FigurePanel) -> Chart:
    """Draw what one phone shows."""
    names = [*panel.lines, *(name for name in panel.published if name not in panel.lines)]
    marks = [mark for group in (panel.lines, panel.published) for m in group.values() for mark in m]
    x = _scale([mark.x for mark in marks], LEFT, WIDTH - RIGHT, figure.log_x)
    y = _scale([mark.y for mark in marks], HEIGHT - BOTTOM, TOP, figure.log_y)
    parts = [*_axes(figure, x, y)]
    for index, name in enumerate(names):
        colour = index % COLOURS
        parts += _results(figure, panel.lines.get(name, ()), x, y, colour)
        parts += [
            f'<circle class="open c{colour}" cx="{x(m.x):.1f}" cy="{y(m.y):.1f}" r="4.5">'
            f"<title>published: {escape(f'{name} {m.label}'.strip())}, {format_number(m.y)}</title>"
            "</circle>"
            for m in panel.published.get(name, ())
        ]
    label = escape(f"{figure.title}, {panel.phone}")
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    legend = tuple(LegendItem(name or "results", i % COLOURS) for i, name in enumerate(names))
    svg = Markup(f"{head}{''.join(parts)}</svg>")
    return Chart(panel.phone, svg, legend, bool(panel.published))


def _results(
    figure: StudyFigure, marks: Sequence[FigureMark], x: _Scale, y: _Scale, colour: int
) -> Iterable[str]:
    if figure.kind is not FigureKind.POINTS and len(marks) > 1:
        points = " ".join(f"{x(mark.x):.1f},{y(mark.y):.1f}" for mark in marks)
        yield f'<polyline class="line c{colour}" points="{points}"/>'
    if figure.kind is FigureKind.TRACE:
        return
    for mark in marks:
        text = escape(f"{mark.label} {format_number(mark.x)}, {format_number(mark.y)}".strip())
        yield (
            f'<circle class="f{colour}" cx="{x(mark.x):.1f}" cy="{y(mark.y):.1f}" r="2.6">'
            f"<title>{text}</title></circle>"
        )
        if mark.label:
            at = f'x="{x(mark.x) + 5:.1f}" y="{y(mark.y) - 4:.1f}"'
            yield f"<text {at}>{escape(mark.label)}</text>"


def _scale(values: Sequence[float], start: float, end: float, log: bool) -> _Scale:
    low, high = min(values), max(values)
    if log:
        return _Scale(max(low, 1e-9) / 1.15, max(high, 1e-9) * 1.15, start, end, log)
    low = min(low, 0.0)
    return _Scale(low, high + (0.05 * (high - low) or 1.0), start, end, log)


def _axes(figure: StudyFigure, x: _Scale, y: _Scale) -> Iterable[str]:
    bottom = HEIGHT - BOTTOM
    yield f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>'
    for value in x.ticks():
        yield (
            f'<text x="{x(value):.1f}" y="{bottom + 13}" text-anchor="middle">'
            f"{format_number(value)}</text>"
        )
    for value in y.ticks():
        yield (
            f'<path class="axis" d="M{LEFT} {y(value):.1f}h{WIDTH - LEFT - RIGHT}" opacity=".4"/>'
            f'<text x="{LEFT - 5}" y="{y(value) + 3:.1f}" text-anchor="end">'
            f"{format_number(value)}</text>"
        )
    middle = (TOP + bottom) / 2
    yield (
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(figure.x_title)}</text>"
    )
    yield (
        f'<text transform="translate(11 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(figure.y_title)}</text>"
    )
