"""The numbers in what a foreign program printed.

It owes us nothing, so its word is read strictly: what cannot be a time is refused.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workloads.external import (
    PER_SECOND,
    SIZES_KB,
    UNITS_NS,
    Manifest,
    NumberRule,
    StepRule,
    Values,
    value_of,
)
from workloads.fault import BadOutput
from workloads.text import safe_text

LINE_MAX = 1024  # characters of a line that a regex gets to see
STEPS_MAX = 1_000_000


@dataclass(frozen=True)
class Steps:
    """Some consecutive steps: how many, how long together, the shortest and the longest."""

    n: int
    ns: int
    ns_min: int
    ns_max: int


@dataclass(frozen=True)
class Numbers:
    """What a program told of its run."""

    steps: tuple[Steps, ...]
    losses: tuple[float, ...] = ()
    peak_rss_kb: int | None = None

    @property
    def ns(self) -> int:
        """All steps together."""
        return sum(steps.ns for steps in self.steps)


def read_numbers(manifest: Manifest, values: Values, out: str, err: str = "") -> Numbers:
    """Find a program's numbers in what it printed; BadOutput where they are missing or absurd."""
    printed = _Printed(out, err)
    steps = list(_read_steps(manifest.step, values, printed))
    steps = _taken(steps, manifest.step.take)
    steps = _without_first(steps, value_of(manifest.step.skip, values))
    if not steps:
        raise BadOutput(f"No step was found in what {manifest.name} printed.")
    losses = tuple(_numbers(manifest.loss, printed)) if manifest.loss else ()
    if manifest.loss and len(losses) < 2:
        raise BadOutput(f"{manifest.name} told {len(losses)} losses; a fall takes two.")
    return Numbers(tuple(steps), losses, _peak_kb(manifest, printed))


class _Printed:
    """What a program printed, taken apart once for each way of reading."""

    def __init__(self, out: str, err: str) -> None:
        self._out = out
        self._err = err

    def lines(self) -> Iterator[str]:
        """Both streams: many a program puts its figures on the second."""
        for text in (self._out, self._err):
            for line in text.splitlines():
                yield line[:LINE_MAX]

    def objects(self) -> Iterator[dict[str, Any]]:
        """The JSON objects on stdout: one document, or an object a line between other lines."""
        whole = _json(self._out)
        if whole is None:
            found = [
                _json(line) for line in self._out.splitlines() if line.lstrip().startswith("{")
            ]
        else:
            found = whole if isinstance(whole, list) else [whole]
        return (each for each in found if isinstance(each, dict))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _at(found: Any, path: str) -> Iterator[Any]:
    """What stands at a path; of a list, each item."""
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            return
        found = found[key]
    yield from found if isinstance(found, list) else [found]


def _read_steps(rule: StepRule, values: Values, printed: _Printed) -> Iterator[Steps]:
    n = value_of(rule.n, values)
    if rule.json_path is not None:
        for found in printed.objects():
            for value in _at(found, rule.json_path):
                yield _steps(n, _time_ns(value, rule.unit))
        return
    compiled = re.compile(rule.regex or "")
    for line in printed.lines():
        for match in compiled.finditer(line):
            said = match.groupdict() or {"time": match[1]}
            counted = n if said.get("n") is None else _count(said["n"])
            extremes = [
                _time_ns(said[name], rule.unit) for name in ("min", "max") if said.get(name)
            ]
            yield _steps(counted, _time_ns(said["time"], rule.unit), extremes)


def _steps(n: int, mean_ns: float, extremes: list[float] | None = None) -> Steps:
    if not 1 <= n <= STEPS_MAX:
        raise BadOutput(f"{n} steps cannot be; there are 1 to {STEPS_MAX}.")
    # A rate turns the extremes round, and figures that are printed short may cross a little.
    around = [*(extremes or ()), mean_ns]
    if extremes and not 0.99 * min(extremes) <= mean_ns <= 1.01 * max(extremes):
        raise BadOutput("A mean lies outside its least and its most.")
    ns = max(1, round(n * mean_ns))
    return Steps(
        n, ns, min(math.floor(min(around)), ns // n), max(math.ceil(max(around)), -(-ns // n))
    )


def _time_ns(said: object, unit: str) -> float:
    value = _number(said)
    if not (math.isfinite(value) and value > 0):
        raise BadOutput(f"'{safe_text(said, 40)}' is no time.")
    ns = 1e9 / value if unit == PER_SECOND else value * UNITS_NS[unit]
    if not 1e-3 <= ns <= 1e15:
        raise BadOutput(f"A step cannot take {ns:g} ns; is the unit right?")
    return ns


def _number(said: object) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        raise BadOutput(f"'{safe_text(said, 40)}' is no number.")
    try:
        return float(said)
    except (ValueError, OverflowError):
        raise BadOutput(f"'{safe_text(said, 40)}' is no number.") from None


def _count(said: object) -> int:
    value = _number(said)
    if value != int(value) if math.isfinite(value) else True:
        raise BadOutput(f"'{safe_text(said, 40)}' is no count.")
    return int(value)


def _taken(steps: list[Steps], take: str) -> list[Steps]:
    return {"all": steps, "first": steps[:1], "last": steps[-1:]}[take]


def _without_first(steps: list[Steps], skip: int) -> list[Steps]:
    """Leave the first steps out, a whole group at a time."""
    left = list(steps)
    while left and skip > 0:
        skip -= left.pop(0).n
    return left


def _numbers(rule: NumberRule, printed: _Printed) -> Iterator[float]:
    if rule.json_path is not None:
        found = (value for each in printed.objects() for value in _at(each, rule.json_path))
        yield from map(_number, found)
    else:
        compiled = re.compile(rule.regex or "")
        for line in printed.lines():
            yield from (_number(match[1]) for match in compiled.finditer(line))


def _peak_kb(manifest: Manifest, printed: _Printed) -> int | None:
    if manifest.peak_rss is None:
        return None
    scale = SIZES_KB[manifest.peak_rss.unit or "kB"]
    found = [value * scale for value in _numbers(manifest.peak_rss, printed)]
    if not found:
        raise BadOutput(f"{manifest.name} did not tell its memory.")
    if not all(0 <= value < 2**40 for value in found):
        raise BadOutput("Memory cannot be that much; is the unit right?")
    return round(max(found))
