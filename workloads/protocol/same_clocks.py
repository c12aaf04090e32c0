"""Levels of a clock that a phone does not distinguish: one cell of a sweep under two names.

A level is a step of the phone's ladder, so two levels are the same clock where the ladder has no
step in between. Cells are the same if they differ in nothing but the names of their clocks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from workloads.protocol.condition import Condition
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import (
    FREE,
    PhoneFacts,
    choose_clocks,
    choose_cores,
    choose_gpu_clock,
)
from workloads.text import list_text, natural_sort_key, safe_text
from workloads.units import format_ghz

PHONES_NAMED, CORES_NAMED = 6, 4


class ClockedCell(NamedTuple):
    """A cell on a phone, with the clocks that it sets there."""

    facts: PhoneFacts
    case: str  # digest
    condition: Condition
    clocks_khz: Mapping[int, int]  # by policy
    gpu_khz: int | None


@dataclass(frozen=True)
class SameClock:
    """Levels of a setting that are one clock on a phone."""

    setting: str  # freq or gpu_freq
    levels: tuple[str, ...]
    phone: str
    model: str
    cores: str  # whose clock it is; empty: the GPU
    clocks_khz: tuple[int, ...]  # of the clusters, by policy

    @property
    def text(self) -> str:
        """The cores and their clock."""
        return f"{self.cores or 'GPU'}: {format_ghz(self.clocks_khz)} GHz"


def cell_on_phone(facts: PhoneFacts, case: str, condition: Condition) -> ClockedCell | None:
    """Return a cell with the clocks that a phone has for it; None if the phone lacks them."""
    try:
        clocks = choose_clocks(facts, choose_cores(facts, condition.cores), condition.freq)
        gpu_khz = choose_gpu_clock(facts, condition.gpu_freq)
    except (InvalidRequest, ValueError):  # a phone whose cores are unknown, too
        return None
    return ClockedCell(facts, case, condition, clocks, gpu_khz)


def same_clocks(cells: Iterable[ClockedCell]) -> tuple[SameClock, ...]:
    """Return the levels that are one clock; levels that set no clock are all different."""
    rest: dict[Condition, Condition] = {}  # conditions without the names of their clocks
    names: dict[tuple[object, ...], tuple[ClockedCell, set[str], set[str]]] = {}
    for cell in cells:
        condition = cell.condition
        if condition not in rest:
            rest[condition] = condition.model_copy(update={"freq": FREE, "gpu_freq": None})
        clocks = tuple(sorted(cell.clocks_khz.items())) or condition.freq
        gpu_freq = condition.gpu_freq or FREE
        key = (cell.facts.serial, cell.case, rest[condition], clocks, cell.gpu_khz or gpu_freq)
        _, freqs, gpu_freqs = names.setdefault(key, (cell, set(), set()))
        freqs.add(condition.freq)
        gpu_freqs.add(gpu_freq)
    found: dict[SameClock, None] = {}
    for cell, freqs, gpu_freqs in names.values():
        phone = (cell.facts.serial, safe_text(cell.facts.model, 40))
        if len(freqs) > 1:
            khz = tuple(khz for _, khz in sorted(cell.clocks_khz.items()))
            same = SameClock("freq", _in_order(freqs), *phone, cell.condition.cores, khz)
            found[same] = None
        if len(gpu_freqs) > 1 and cell.gpu_khz is not None:
            found[SameClock("gpu_freq", _in_order(gpu_freqs), *phone, "", (cell.gpu_khz,))] = None
    return tuple(found)


def _in_order(levels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(levels, key=natural_sort_key))


def same_clock_texts(found: Iterable[SameClock]) -> list[str]:
    """Name every group of levels once, with its phones."""
    groups: dict[tuple[str, tuple[str, ...]], dict[str, dict[str, None]]] = {}
    for same in found:
        models = groups.setdefault((same.setting, same.levels), {})
        models.setdefault(same.model, {})[same.text] = None
    texts = []
    for (setting, levels), models in groups.items():
        phones = [f"{model} ({list_text([*own], CORES_NAMED)})" for model, own in models.items()]
        names = f"{', '.join(levels[:-1])} and {levels[-1]}"
        where = list_text(phones, PHONES_NAMED)
        texts.append(f"{setting}: {names} are the same clock on {where}")
    return texts
