"""The catalogue of studies: each a folder's worth of data, read and checked.

studies/NAME.toml has the question and the claims, studies/NAME.yaml the sweep that asks the same of
phones. NAME.opencl*.yaml beside it are for phones whose GPU can be programmed, NAME.native.yaml for
this computer as a phone: smaller, and asking for nothing that a computer lacks. Claims of one kind
say under [like.KIND] what they have in common.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from workloads.fault import BadFile, Refused
from workloads.noun import Noun

HERE = files("orchestrator.study") / "studies"
NATIVE, OPENCL = "native", "opencl"
# What the three studies measured: the TX2's, EMDL'21's and Cambridge's.
ROWS = {
    "M1": "load of each CPU core",
    "M2": "load of the GPU",
    "M3": "share of time that a core is idle",
    "M4": "peak memory, by kind",
    "M5": "power, by part of the board",
    "M6": "energy of a step",
    "M7": "throughput over batch sizes",
    "M8": "whether steps repeat themselves",
    "M9": "operations joined with what was sampled beside them",
    "M10": "what can be trained at all, and how the rest ends",
    "M11": "a little training every day",
    "M12": "how many steps of warm-up are enough",
    "E1": "time of a training step",
    "E2": "training against inference",
    "E3": "load of the cores that train",
    "E4": "peak memory over batch sizes",
    "E5": "how far phones are apart",
    "E6": "which phone for which model",
    "E7": "which operations take the time",
    "E8": "energy of a sample",
    "E9": "core sets and clocks",
    "E10": "heat over a long run",
    "E11": "CPU against GPU",
    "E12": "one library against another",
    "E13": "whether heat reorders phones",
    "G1": "speed of matrix products",
    "G2": "cost of depth and of width",
    "G3": "GPU by CPU, model by model",
    "G4": "computing against copying",
    "G5": "what kernels cannot do",
}

Cell = dict[str, str | int]


class Ask(Noun):
    """How a claim is put to what was observed: a function of kinds.py, and what it looks at."""

    kind: Literal[
        "value",
        "ratio",
        "change",
        "best",
        "between",
        "winner",
        "agreement",
        "front",
        "largest",
        "outcome",
        "makeup",
        "never",
    ]
    metric: str = ""
    at: Cell = Field(default_factory=dict)
    of: Cell = Field(default_factory=dict, description="of a ratio or a change: what is above")
    over: Cell = Field(default_factory=dict, description="and what is below")
    over_metric: str = Field(default="", description="where that is another figure")
    along: str = Field(default="", description="the axis that is chosen from, or gone along")
    most: bool = Field(default=False, description="the highest is looked for, not the lowest")
    limit: float | None = Field(default=None, description="of the largest: what may be reached")
    models: tuple[str, ...] = Field(default=(), description="the two phones that were compared")
    why: str = Field(default="", description="why this can never be observed here")
    without: str = Field(default="", description="what to do where nothing of the kind was run")


class Claim(Noun):
    """One thing that a study says it saw."""

    text: str
    seen_on: str = Field(description="the phone, by its model's name, or whatever it was")
    model: str = Field(default="", description="what that phone calls itself, where not that")
    ask: Ask
    on_kernels: Ask | None = Field(default=None, description="the same of the OpenCL harness")
    value: float | None = None
    within: tuple[float, float] | None = None
    least: float | None = None
    word: str = ""
    means: tuple[str, ...] = Field(default=(), description="what that is called here")
    unit: str = ""
    source: str = Field(default="", description="where not the study's own")
    fitted: str = Field(default="", description="the model whose twin was fitted to this")
    absolute: bool = Field(default=False, description="holds for that phone only")
    row: str = Field(
        default="", description="which of ROWS it answers, where its study has several"
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        said = (self.value, self.within, self.least, self.word or None)
        if sum(each is not None for each in said) > 1:
            raise ValueError("a claim is a value, a range, a least or a word, or none of them")
        if (self.ask.kind == "never") != bool(self.ask.why):
            raise ValueError("'why' is for what can never be observed, and only for that")
        return self

    @property
    def own_model(self) -> str:
        """The model that it was seen on."""
        return self.model or self.seen_on

    @property
    def theirs(self) -> str:
        """What was claimed, for a table."""
        if self.value is not None:
            return with_unit(self.value, self.unit)
        if self.within is not None:
            low, high = self.within
            return f"{number(low)} to {with_unit(high, self.unit)}"
        if self.least is not None:
            return f"{with_unit(self.least, self.unit)} or more"
        return self.word or "no number"


class Study(Noun):
    """What somebody once asked of phones, and what they say they saw."""

    name: str
    title: str
    question: str
    source: str
    covers: tuple[str, ...]
    claims: tuple[Claim, ...] = Field(min_length=1)
    caution: str = Field(description="what has to be known before ours is held against theirs")
    phones: tuple[str, ...] = Field(default=(), description="virtual ones, where nobody has others")
    kernels: Literal["", "products", "training"] = Field(
        default="", description="what of the OpenCL harness answers it on this computer"
    )

    @model_validator(mode="after")
    def _covers_known_rows(self) -> Self:
        if unknown := set(self.covers) - set(ROWS):
            raise ValueError(f"there is no {', '.join(sorted(unknown))}")
        if {self.row_of(claim) for claim in self.claims} != set(self.covers):
            raise ValueError("every row that it covers has a claim, and every claim such a row")
        return self

    def row_of(self, claim: Claim) -> str:
        """Which of ROWS a claim belongs to."""
        return claim.row or self.covers[0]

    def source_of(self, claim: Claim) -> str:
        """Where a claim stands written."""
        return claim.source or self.source

    def figures(self, row: str) -> list[str]:
        """What its claims of a row look at."""
        own = [claim for claim in self.claims if self.row_of(claim) == row]
        asks = [ask for claim in own for ask in (claim.ask, claim.on_kernels) if ask]
        found = [name for ask in asks for name in (ask.metric, ask.over_metric) if name]
        found += ["outcome" for ask in asks if ask.kind == "outcome"]
        return [name.partition(".")[0] for name in found]

    def sweeps(self, native: bool = False) -> tuple[str, ...]:
        """The texts of its sweeps; none where this kind of phone cannot be asked."""
        begin = f"{self.name}.{NATIVE}" if native else f"{self.name}.{OPENCL}"
        plain = () if native else (f"{self.name}.yaml",)
        others = sorted(each.name for each in HERE.iterdir() if each.name.startswith(begin))
        return tuple(text for file in (*plain, *others) if (text := _text(file)))


def number(value: float) -> str:
    """Three digits that mean something, and no powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def with_unit(value: float, unit: str) -> str:
    """A figure with its unit."""
    return f"{number(value)} {unit}".strip()


@cache
def studies() -> dict[str, Study]:
    """Every study by name."""
    names = sorted(each.name.removesuffix(".toml") for each in HERE.iterdir())
    return {name: _read(name) for name in names if (HERE / f"{name}.toml").is_file()}


def find_study(name: str) -> Study:
    """A study by its name."""
    known = studies()
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "'farm study list' shows all"
    raise Refused(f"there is no study '{name[:60]}'; {hint}")


def coverage() -> str:
    """Which study answers which row of the three, and by which figures, as a Markdown table."""
    lines = ["| row | what was measured | study | figures |", "|---|---|---|---|"]
    for row, what in ROWS.items():
        own = [study for study in studies().values() if row in study.covers]
        names = ", ".join(f"`{study.name}`" for study in own)
        figures = dict.fromkeys(figure for study in own for figure in study.figures(row))
        lines.append(f"| {row} | {what} | {names} | {', '.join(f'`{each}`' for each in figures)} |")
    return "\n".join(lines)


def _read(name: str) -> Study:
    content: dict[str, Any] = tomllib.loads(_text(f"{name}.toml"))
    alike = content.pop("like", {})
    content["claims"] = [_merged(alike.get(each.pop("like", ""), {}), each)
                         for each in content.get("claims", [])]  # fmt: skip
    try:
        return Study.model_validate({"name": name} | content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadFile(f"study {name}: {where}: {first['msg']}") from error


def _merged(usual: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What claims of a kind have in common, and what one of them says itself."""
    both = {
        key: _merged(usual[key], own[key])
        for key in usual.keys() & own.keys()
        if isinstance(usual[key], dict)
    }
    return {**usual, **own, **both}


def _text(file: str) -> str:
    path = HERE / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""
