"""The experiment of a paper beside the sweeps that repeat it: a table with every deviation."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from pydantic import Field

from workloads.catalogue import Case
from workloads.protocol.base import WireModel
from workloads.protocol.condition import Condition

NOT_STATED = "not stated"


class PlannedCell(NamedTuple):
    """A cell of a study's sweep, and how often it runs."""

    case: Case
    condition: Condition
    repeats: int


class Experiment(WireModel):
    """What a publication says of its experiment; what it does not say is empty."""

    image_size: tuple[int, ...] = ()
    size: tuple[int, ...] = Field(default=(), description="of square matrices")
    batch_size: tuple[int, ...] = ()
    readings_per_s: tuple[int, ...] = ()
    backend: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    warmup_steps: tuple[int, ...] = ()
    steps: tuple[int, ...] = Field(default=(), description="measured, at least")
    repeats: tuple[int, ...] = ()
    deviations: dict[str, str] = Field(
        default_factory=dict, description="why the sweeps do not do the same, by row"
    )


class ExperimentRow(NamedTuple):
    """One property: in the paper, here, and why they differ."""

    name: str
    paper: str
    here: str
    deviation: str
    is_same: bool


class _Property(NamedTuple):
    title: str
    of: Callable[[PlannedCell], int | str | None]  # None: this cell has no such property
    at_least: bool = False  # more than stated is as good


def _setting(name: str) -> Callable[[PlannedCell], int | str | None]:
    return lambda cell: cell.case.settings.get(name)


PROPERTIES: dict[str, _Property] = {
    "image_size": _Property("image size", _setting("image_size")),
    "size": _Property("matrix size", _setting("n")),
    "batch_size": _Property("batch size", _setting("batch_size")),
    "readings_per_s": _Property(
        "readings per second", lambda cell: round(1000 / cell.condition.sample_period_ms), True
    ),
    "backend": _Property("trained on", lambda cell: cell.case.backend),
    "cores": _Property("cores", lambda cell: cell.condition.cores),
    "warmup_steps": _Property("warm-up steps", lambda cell: cell.condition.launch.warmup, True),
    "steps": _Property("measured steps", lambda cell: cell.condition.launch.steps, True),
    "repeats": _Property("runs per cell", lambda cell: cell.repeats, True),
}
_NAMES = {"cpu": "CPU", "opencl": "GPU"}


def experiment_rows(
    paper: Experiment, cells: Sequence[PlannedCell], rates: Sequence[float] = ()
) -> list[ExperimentRow]:
    """Hold the paper's experiment against cells; `rates` are the rates that runs really had."""
    rows = []
    for name, known in PROPERTIES.items():
        here = _values(known, cells)
        stated: tuple[int | str, ...] = getattr(paper, name)
        if not stated and not here:
            continue
        is_same = _is_repeated(stated, here, known.at_least)
        texts = (_list(stated) or NOT_STATED, _list(here) or "none")
        if name == "readings_per_s" and rates:
            texts = (texts[0], f"{texts[1]} (measured: {min(rates):.3g} to {max(rates):.3g})")
        rows.append(ExperimentRow(known.title, *texts, paper.deviations.get(name, ""), is_same))
    return rows


def unexplained(paper: Experiment, cells: Sequence[PlannedCell]) -> set[str]:
    """Return the properties that deviate without a reason, or have a reason without deviating."""
    deviating = {
        name
        for name, known in PROPERTIES.items()
        if not _is_repeated(getattr(paper, name), _values(known, cells), known.at_least)
    }
    return deviating ^ set(paper.deviations)


def _values(known: _Property, cells: Iterable[PlannedCell]) -> set[int | str]:
    return {value for cell in cells if (value := known.of(cell)) is not None}


def _is_repeated(stated: Iterable[int | str], here: set[int | str], at_least: bool) -> bool:
    """Return whether every stated value is repeated here, or exceeded in every cell."""
    if at_least:
        numbers = [value for value in here if isinstance(value, int)]
        return all(isinstance(value, int) and value <= min(numbers, default=0) for value in stated)
    return set(stated) <= here


def _list(values: Iterable[int | str]) -> str:
    """Name values in order; an even ladder of numbers is shortened to its ends and its step."""
    names = sorted(values, key=lambda value: (isinstance(value, str), value))
    numbers = [value for value in names if isinstance(value, int)]
    steps = {after - before for before, after in pairwise(numbers)}
    if len(numbers) == len(names) > 4 and len(steps) == 1:
        return f"{numbers[0]} to {numbers[-1]} in steps of {steps.pop()}"
    return ", ".join(_NAMES.get(str(name), str(name)) for name in names)
