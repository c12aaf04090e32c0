"""A figure of a paper: which observations make its lines, and the published points beside them.

A curve has a setting on its horizontal axis, points have a metric there, and a trace has time.
"""

from enum import StrEnum

from pydantic import Field

from workloads.protocol.base import WireModel


class FigureKind(StrEnum):
    """What is on the horizontal axis."""

    CURVE = "curve"
    POINTS = "points"
    TRACE = "trace"


class FigureLine(WireModel):
    """One line, or one for each value of a setting."""

    name: str = ""
    metric: str = ""
    where: dict[str, str | int] = Field(default_factory=dict)
    each: str = Field(default="", description="setting with one line per value, named by it")


class PublishedPoint(WireModel):
    """A number of the publication that belongs to a line."""

    line: str = ""
    x: float
    y: float
    phone: str = Field(default="", description="model; empty: every phone")
    label: str = ""


class StudyFigure(WireModel):
    """A figure or table of the publication."""

    title: str
    kind: FigureKind = FigureKind.CURVE
    x: str = Field(default="", description="setting of a curve, metric of points")
    x_title: str
    y_title: str
    lines: tuple[FigureLine, ...] = ()
    points: tuple[PublishedPoint, ...] = ()
    label: str = Field(default="", description="settings that name a point")
    log_x: bool = False
    log_y: bool = False
