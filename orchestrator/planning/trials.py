"""Trials and planned runs: what a sweep expands to on a set of phones."""

from dataclasses import dataclass

from workloads.catalogue import Case
from workloads.protocol.condition import Condition


@dataclass(frozen=True)
class Trial:
    """One case, under one condition, on one phone: the unit of completeness."""

    id: str
    case: Case
    condition: Condition
    phone: str


@dataclass(frozen=True)
class PlannedRun:
    """One run of a trial, with its repeat number, randomised block and position on the phone."""

    trial: str
    repeat: int
    block: int
    position: int
