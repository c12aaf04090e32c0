"""What a workload is: a name, what may be chosen of it, the step that follows, and its study."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from workloads.work import Step

Given = Mapping[str, int]  # every parameter, bound


@dataclass(frozen=True)
class Parameter:
    """A whole number that a sweep may choose."""

    name: str
    default: int
    least: int
    most: int
    text: str
    only: tuple[int, ...] = ()  # where not every number in between will do


@dataclass(frozen=True)
class Study:
    """Where workloads come from, and how many first steps it left out of its figures."""

    name: str
    text: str
    warmup: int


class Length(NamedTuple):
    """How long a workload takes that has an end: steps to get ready, and steps to measure."""

    warmup: int
    steps: int


HOUSE = Study("house", "what the farm brings itself", warmup=5)


@dataclass(frozen=True)
class Workload:
    """A named, parameterised measurement."""

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    step: Callable[[Given], Step]
    on_phone: bool = True
    threads: int | None = None  # None: one a core
    study: Study = HOUSE
    notes: str = ""  # where its settings come from, and what is to be known of it
    length: Callable[[Given], Length] | None = None  # None: as long as the condition says
