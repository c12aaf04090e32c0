"""The marks of a paper's figure, from the evidence of each phone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.analysis.stats import median
from orchestrator.study.claim_evaluators import is_same_model
from orchestrator.study.evidence import RunSettings, StudyEvidence
from orchestrator.study.study_figure import FigureKind, StudyFigure


class FigureMark(NamedTuple):
    """A point of a line, with a name if it has one."""

    x: float
    y: float
    label: str = ""


@dataclass(frozen=True)
class FigurePanel:
    """What one phone shows: lines of results, and the published points beside them."""

    phone: str
    lines: Mapping[str, Sequence[FigureMark]]
    published: Mapping[str, Sequence[FigureMark]] = field(default_factory=dict)


def figure_panels(figure: StudyFigure, evidence: StudyEvidence) -> list[FigurePanel]:
    """Return one panel per phone that has something to show."""
    panels = []
    for phone, model in sorted(evidence.phones.items(), key=lambda item: (item[1], item[0])):
        if figure.kind is FigureKind.TRACE:
            lines = {
                name: [FigureMark(*p) for p in t]
                for name, t in evidence.traces.get(phone, {}).items()
            }
        else:
            lines = _lines(figure, evidence, phone)
        if lines:
            panels.append(FigurePanel(model, lines, _published(figure, model)))
    return panels


def _published(figure: StudyFigure, model: str) -> dict[str, list[FigureMark]]:
    published: dict[str, list[FigureMark]] = {}
    for point in figure.points:
        if not point.phone or is_same_model(point.phone, model):
            published.setdefault(point.line, []).append(FigureMark(point.x, point.y, point.label))
    return published


def _lines(figure: StudyFigure, evidence: StudyEvidence, phone: str) -> dict[str, list[FigureMark]]:
    found: dict[str, dict[float, list[FigureMark]]] = {}
    for line in figure.lines:
        for observation in evidence.find(phone, line.metric, line.where):
            x = _x_of(figure, evidence, phone, observation.settings)
            if x is None:
                continue
            name = str(observation.settings.get(line.each, "")) if line.each else line.name
            words = (str(observation.settings.get(key, "")) for key in figure.label.split())
            mark = FigureMark(x, median(observation.values), " ".join(words).strip())
            found.setdefault(name, {}).setdefault(x, []).append(mark)
    return {name: _merged(by_x, figure.kind) for name, by_x in sorted(found.items())}


def _merged(by_x: Mapping[float, Sequence[FigureMark]], kind: FigureKind) -> list[FigureMark]:
    """Return one mark per x of a curve, from the cell that was repeated most; all marks else."""
    if kind is FigureKind.POINTS:
        return [mark for x in sorted(by_x) for mark in by_x[x]]
    return [by_x[x][0] for x in sorted(by_x)]


def _x_of(
    figure: StudyFigure, evidence: StudyEvidence, phone: str, settings: RunSettings
) -> float | None:
    if figure.kind is FigureKind.CURVE:
        value = settings.get(figure.x)
        return float(value) if isinstance(value, int) else None
    others = evidence.find(phone, figure.x, settings)
    return median(others[0].values) if others else None
