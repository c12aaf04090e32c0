"""The axes of a sweep as its results show them: which settings differ between its cells.

A cell has every axis, so a picture or a table that follows the axes never joins two cells.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.text import natural_sort_key

SettingValue = int | float | str
CellSettings = Mapping[str, SettingValue]

WORKLOAD, BACKEND, PROTOCOL, CORES, FREQ = "workload", "backend", "protocol", "cores", "freq"
NOT_SET = "default"
_TITLES = {
    "workload": "model",
    "freq": "CPU clock",
    "gpu_freq": "GPU clock",
    "batch_size": "batch size, samples",
    "start_temp_max_c": "start temperature, °C",
    "time_min_s": "measured time, s",
    "steps_min": "measured steps",
    "sample_hz": "sensor readings per second",
}
_CLOCK_ORDER = {"low": 0, "mid": 1, "high": 2, "fixed": 3, "free": 4}
_CLOCKS = ("freq", "gpu_freq")
_CORES = re.compile(r"(little|big|prime|all)(\d*)")
_NUMBER = re.compile(r"\d+(\.\d+)?")


def cell_settings(case: Case, condition: Condition) -> dict[str, SettingValue]:
    """Return everything that distinguishes a cell, by the name of the setting."""
    settings: dict[str, SettingValue] = {"workload": case.name, **case.settings}
    if case.manifest is not None:
        settings["program"] = case.digest[:8]  # two programs of one name are two cells
    if case.data is not None:
        settings["data"] = case.data[:8]
    settings["backend"] = case.backend
    for name, value in condition.model_dump(mode="json").items():
        settings[name] = NOT_SET if value is None else value
    return settings


@dataclass(frozen=True)
class CellAxis:
    """A setting that differs between cells, with its values in order."""

    name: str
    values: tuple[SettingValue, ...]

    @property
    def title(self) -> str:
        """Its name with its unit, for the axis of a chart."""
        return _TITLES.get(self.name, self.name.replace("_", " "))

    @property
    def plain_title(self) -> str:
        """Its name without its unit, for a sentence."""
        return self.title.partition(",")[0]

    @property
    def is_numeric(self) -> bool:
        """Whether its values have distances, so that a line may join them."""
        return all(not isinstance(value, str) or _NUMBER.fullmatch(value) for value in self.values)


def varying_axes(cells: Iterable[CellSettings]) -> tuple[CellAxis, ...]:
    """Return the settings that differ between cells, without those that follow from another."""
    known = list(cells)
    names = list(dict.fromkeys(name for cell in known for name in cell))
    found: list[CellAxis] = []
    for name in names:
        values = {cell[name] for cell in known if name in cell}
        if len(values) > 1 and not any(_determines(axis.name, name, known) for axis in found):
            found.append(CellAxis(name, tuple(sorted(values, key=value_order(name)))))
    return tuple(found)


def value_order(name: str) -> "_ValueOrder":
    """Return the key that sorts the values of a setting."""
    return _ValueOrder(name in _CLOCKS)


def _determines(first: str, second: str, cells: Sequence[CellSettings]) -> bool:
    """Whether every value of one setting goes with a single value of another."""
    both: dict[SettingValue, set[SettingValue]] = {}
    for cell in cells:
        if first in cell and second in cell:
            both.setdefault(cell[first], set()).add(cell[second])
        elif second in cell:
            return False
    return all(len(values) == 1 for values in both.values())


@dataclass(frozen=True)
class _ValueOrder:
    """Sorts values: numbers by size, clocks by height, other names naturally."""

    is_clock: bool

    def __call__(self, value: SettingValue) -> tuple[float, tuple[tuple[int, str], ...]]:
        if self.is_clock and value in _CLOCK_ORDER:
            return 1e12 + _CLOCK_ORDER[str(value)], ()
        if not isinstance(value, str) or _NUMBER.fullmatch(value):
            return float(value), ()
        if cores := _CORES.fullmatch(value):
            kinds = ("little", "big", "prime", "all")
            return 1e12 + 100 * kinds.index(cores[1]) + int(cores[2] or 1), ()
        return 2e12, natural_sort_key(value)
