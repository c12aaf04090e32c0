"""The catalogue of published studies: each one TOML file with claims, read and validated.

studies/NAME.toml has the question and the claims, studies/NAME.yaml the sweep that measures the
same on phones, and NAME.PART.yaml more of it: PART is opencl for phones whose GPU is programmable,
native for this computer as a phone (smaller, and without conditions that a computer lacks), and
native-opencl for its OpenCL device. Claims that have keys in common name a
[template.NAME] that holds them.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from orchestrator.study.experiment import Experiment
from orchestrator.study.self_check import SelfCheck
from orchestrator.study.study_figure import FigureKind, StudyFigure
from workloads.protocol.base import WireModel
from workloads.protocol.faults import BadFile, InvalidRequest

STUDIES_FOLDER = files("orchestrator.study") / "studies"
NATIVE = "native"
# What was measured: M by the TX2 study, E by EMDL'21, G by Cambridge, F by freqbench, H in smaller
# publications.
TOPICS = {
    "M1": "utilisation of each CPU core",
    "M2": "utilisation of the GPU",
    "M3": "share of time that a core is idle",
    "M4": "peak memory, by kind",
    "M5": "power, by component of the board",
    "M6": "energy per step",
    "M7": "throughput by batch size",
    "M8": "whether steps are alike",
    "M9": "operations joined with sampled clock, load and energy",
    "M10": "which models can be trained, and how the others fail",
    "M11": "a little training every day",
    "M12": "how many warm-up steps are enough",
    "M13": "what training leaves to the person",
    "E1": "time of a training step",
    "E2": "training compared with inference",
    "E3": "utilisation of the cores that train",
    "E4": "peak memory by batch size",
    "E5": "differences between phones",
    "E6": "the best phone for each model",
    "E7": "which operations take the time",
    "E8": "energy per sample",
    "E9": "core sets and clocks",
    "E10": "temperature and speed over a long run",
    "E11": "CPU compared with GPU",
    "E12": "comparison of training libraries",
    "E13": "whether heat changes the ranking of phones",
    "G1": "speed of matrix products",
    "G2": "cost of depth and of width",
    "G3": "GPU compared with CPU, by model",
    "G4": "computing compared with copying",
    "G5": "limits of the kernels",
    "F1": "energy per work over clocks",
    "F2": "work per MHz of neighbouring clock steps",
    "H1": "a small decoder trained on one core",
    "H2": "low-rank adapters compared with full training",
    "H3": "GPU compared with CPU where operands are copied",
    "H4": "the first minute compared with the thirtieth",
}

Settings = dict[str, str | int]


class QueryKind(StrEnum):
    """How a claim is evaluated; claim_evaluators has one function for each."""

    VALUE = "value"
    RATIO = "ratio"
    RATIO_CHANGE = "ratio_change"
    DIFFERENCE = "difference"
    BEST_SETTING = "best_setting"
    PARETO_FRONT = "pareto_front"
    LARGEST_BELOW = "largest_below"
    BREAKDOWN = "breakdown"
    OUTCOME = "outcome"
    PHONE_RATIO = "phone_ratio"
    BEST_PHONE = "best_phone"
    RANK_AGREEMENT = "rank_agreement"
    UNOBSERVABLE = "unobservable"


class ClaimForm(StrEnum):
    """What a published result is."""

    VALUE = "value"
    RANGE = "range"
    BOUND = "bound"
    AVERAGE = "average"


class Query(WireModel):
    """Which observations answer a claim, and how they are combined."""

    kind: QueryKind
    metric: str = ""
    where: Settings = Field(default_factory=dict, description="settings of the runs")
    first: Settings = Field(
        default_factory=dict, description="ratio, difference: settings of the first value"
    )
    second: Settings = Field(
        default_factory=dict, description="ratio, difference: settings of the second value"
    )
    second_metric: str = Field(default="", description="if the second value is another metric")
    axis: str = Field(default="", description="the setting that varies; two with a space between")
    among: tuple[str, ...] = Field(default=(), description="values on the axis; empty: all")
    larger: Settings = Field(
        default_factory=dict, description="ratio_change: settings of the upper ratio"
    )
    smaller: Settings = Field(
        default_factory=dict, description="ratio_change: settings of the lower ratio"
    )
    called: dict[str, str] = Field(
        default_factory=dict, description="outcome: what its names mean for the claim"
    )
    highest: bool = Field(default=False, description="the highest value is best, not the lowest")
    limit: float | None = Field(default=None, description="largest_below: the upper limit")
    models: tuple[str, ...] = Field(default=(), description="phone_ratio: the two phones")
    reason: str = Field(default="", description="unobservable: why")
    if_not_run: str = Field(default="", description="what to do if there is no such run")


class Claim(WireModel):
    """One published result of a study."""

    text: str
    published_on: str = Field(description="the phone that it was published for, by model name")
    model: str = Field(default="", description="what that phone calls itself, if not the same")
    query: Query
    value: float | None = None
    range: tuple[float, float] | None = None
    at_least: float | None = Field(default=None, description="a stated lower bound")
    at_most: float | None = Field(default=None, description="a stated upper bound")
    up_to: float | None = Field(default=None, description="the highest value that was observed")
    ours: bool = Field(default=False, description="not in the study: only measured here")
    average: bool = Field(default=False, description="the published number is a mean")
    on_computer: bool = Field(default=False, description="a claim about servers, not phones")
    place: str = Field(default="", description="its location, if not that of the study")
    answer: str = ""
    same_as: tuple[str, ...] = Field(default=(), description="other names of the answer here")
    unit: str = ""
    citation: str = Field(default="", description="if not the study's")
    replays_on: tuple[str, ...] = Field(
        default=(), description="models whose virtual phone was fitted or chosen with this claim"
    )
    only_this_phone: bool = Field(default=False, description="the value holds for that phone only")
    only_gpu: bool = Field(
        default=False, description="the value holds for phones' GPUs, not for a computer's device"
    )
    topic: str = Field(default="", description="key of TOPICS, if its study has several")
    self_check: SelfCheck | None = Field(
        default=None, description="arithmetic on the publication's own numbers"
    )

    @model_validator(mode="after")
    def _states_one_result(self) -> Self:
        if sum(number is not None for number in self._numbers) + bool(self.answer) > 1:
            raise ValueError("a claim has at most one of value, range, bound and answer")
        if (self.query.kind is QueryKind.UNOBSERVABLE) != bool(self.query.reason):
            raise ValueError("'reason' is required for unobservable claims, and only there")
        return self

    @property
    def own_model(self) -> str:
        """The model that it was published for."""
        return self.model or self.published_on

    @property
    def contradicts_itself(self) -> bool:
        """Whether the publication's own numbers do not agree with each other."""
        return self.self_check is not None and not self.self_check.agrees

    @property
    def states_result(self) -> bool:
        """Whether the claim has a result that can be compared."""
        return bool(self.answer) or any(number is not None for number in self._numbers)

    @property
    def _numbers(self) -> tuple[object, ...]:
        return (self.value, self.range, self.at_least, self.at_most, self.up_to)

    @property
    def form(self) -> ClaimForm | None:
        """What the published result is; None if there is none."""
        if not self.states_result:
            return None
        if self.at_least is not None or self.at_most is not None:
            return ClaimForm.BOUND
        if self.range is not None or self.up_to is not None:
            return ClaimForm.RANGE
        return ClaimForm.AVERAGE if self.average else ClaimForm.VALUE

    @property
    def published(self) -> str:
        """The published result, for a table."""
        if self.value is not None:
            average = " on average" if self.average else ""
            return f"{format_with_unit(self.value, self.unit)}{average}"
        if self.range is not None:
            low, high = self.range
            return f"{format_number(low)} to {format_with_unit(high, self.unit)}"
        if self.at_least is not None:
            return f"{format_with_unit(self.at_least, self.unit)} or more"
        if self.at_most is not None:
            return f"{format_with_unit(self.at_most, self.unit)} or less"
        if self.up_to is not None:
            return f"up to {format_with_unit(self.up_to, self.unit)}"
        return self.answer or "no number"


class Study(WireModel):
    """A published study: its question and its claims."""

    name: str
    title: str
    question: str
    citation: str
    place: str = Field(description="location of its claims: section, table, figure or file")
    covers: tuple[str, ...]
    claims: tuple[Claim, ...] = Field(min_length=1)
    caveat: str = Field(description="what to know before comparing with the published results")
    virtual_phones: tuple[str, ...] = Field(
        default=(), description="used with --virtual; empty: the default fleet"
    )
    experiment: Experiment = Field(
        default_factory=Experiment, description="what the publication says of its experiment"
    )
    figures: tuple[StudyFigure, ...] = Field(default=(), description="its figures, drawn again")

    @model_validator(mode="after")
    def _covers_known_topics(self) -> Self:
        if unknown := set(self.covers) - set(TOPICS):
            raise ValueError(f"unknown topic {', '.join(sorted(unknown))}")
        if {self.topic_of(claim) for claim in self.claims} != set(self.covers):
            raise ValueError("'covers' must list the topics of the claims, and no others")
        return self

    def topic_of(self, claim: Claim) -> str:
        """Return the key of TOPICS that a claim belongs to."""
        return claim.topic or self.covers[0]

    @property
    def metrics(self) -> set[str]:
        """The metrics that its claims and figures ask for."""
        queries = [claim.query for claim in self.claims]
        names = {name for query in queries for name in (query.metric, query.second_metric)}
        return names | {line.metric for figure in self.figures for line in figure.lines}

    @property
    def traced(self) -> Settings | None:
        """The settings of the runs whose steps are drawn over time; None: it draws none."""
        traces = [f.lines[0].where for f in self.figures if f.kind is FigureKind.TRACE]
        return traces[0] if traces else None

    def citation_of(self, claim: Claim) -> str:
        """Return where a claim was published."""
        return claim.citation or self.citation

    def place_of(self, claim: Claim) -> str:
        """Return the location of a claim in its publication; empty for Farmhand's own claims."""
        return "" if claim.ours else claim.place or self.place

    def sweeps(self, native: bool = False) -> tuple[str, ...]:
        """Return the texts of its sweeps; empty if it has none for this kind of phone."""
        own = [file.name for file in STUDIES_FOLDER.iterdir() if self._has_sweep(file.name)]
        chosen = [file for file in own if file.split(".")[1].startswith(NATIVE) == native]
        return tuple(_text(file) for file in sorted(chosen, key=lambda file: (len(file), file)))

    def _has_sweep(self, file: str) -> bool:
        return file.startswith(f"{self.name}.") and file.endswith(".yaml")


def format_number(value: float) -> str:
    """Format with three significant digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def format_with_unit(value: float, unit: str) -> str:
    """Format a value with its unit."""
    return f"{format_number(value)} {unit}".strip()


@cache
def all_studies() -> dict[str, Study]:
    """Return every study by name."""
    names = sorted(file.name.removesuffix(".toml") for file in STUDIES_FOLDER.iterdir())
    return {name: _read(name) for name in names if (STUDIES_FOLDER / f"{name}.toml").is_file()}


def find_study(name: str) -> Study:
    """Return a study by its name."""
    studies = all_studies()
    if name in studies:
        return studies[name]
    close = get_close_matches(name, studies, n=1)
    hint = f"did you mean '{close[0]}'?" if close else "'farm study list' shows all"
    raise InvalidRequest(f"unknown study '{name[:60]}'; {hint}")


def _read(name: str) -> Study:
    content: dict[str, Any] = tomllib.loads(_text(f"{name}.toml"))
    templates = content.pop("template", {})
    content["claims"] = [
        _merge(templates.get(claim.pop("template", ""), {}), claim)
        for claim in content.get("claims", [])
    ]
    try:
        return Study.model_validate({"name": name} | content)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        raise BadFile(f"study {name}: {path}: {first['msg']}") from error


def _merge(template: Mapping[str, Any], claim: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a claim into its template; nested tables are merged, other keys replaced."""
    nested = {
        key: _merge(template[key], claim[key])
        for key in template.keys() & claim.keys()
        if isinstance(template[key], dict)
    }
    return {**template, **claim, **nested}


def _text(file: str) -> str:
    path = STUDIES_FOLDER / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""
