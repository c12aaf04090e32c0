"""What a workload is: its parameters, the step it repeats, and the study it comes from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from workloads.run_options import RunOption
from workloads.step_cost import Step

BoundParameters = Mapping[str, int]  # a value for every parameter


@dataclass(frozen=True)
class Parameter:
    """A whole number that a sweep may choose."""

    name: str
    default: int
    min: int
    max: int
    text: str
    choices: tuple[int, ...] = ()  # where not every number from min to max is possible


@dataclass(frozen=True)
class WorkloadSource:
    """A study that workloads come from, and how many warm-up steps it left out of its figures."""

    name: str
    text: str
    warmup: int


class FixedLength(NamedTuple):
    """The length of a workload that ends by itself: warm-up steps and measured steps."""

    warmup: int
    steps: int


BUILT_IN = WorkloadSource("built-in", "workloads of Farmhand itself", warmup=5)


@dataclass(frozen=True)
class Workload:
    """A named measurement with parameters."""

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    step: Callable[[BoundParameters], Step]
    on_phone: bool = True
    threads: int | None = None  # None: one per core
    study: WorkloadSource = BUILT_IN
    notes: str = ""  # where its settings come from, and how to read its results
    stated: str = ""  # the size that its study gives, which its code or its paper may contradict
    options: tuple[RunOption, ...] = ()
    # None: the condition decides how long a run takes
    length: Callable[[BoundParameters], FixedLength] | None = None
