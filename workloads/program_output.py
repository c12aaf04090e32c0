"""Parse the output of an external program: step times, losses and peak memory.

The program is not trusted: output that cannot be right is rejected as BadOutput.
"""

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workloads.external_program import (
    PER_SECOND,
    SIZES_KB,
    UNITS_NS,
    Manifest,
    NumberRule,
    StepRule,
    Values,
    resolve_count,
)
from workloads.protocol.faults import BadOutput
from workloads.text import safe_text

LINE_MAX = 1024  # characters of a line that a regex is applied to
STEPS_MAX = 1_000_000


@dataclass(frozen=True)
class StepGroup:
    """Consecutive steps: their number, total time, shortest and longest step."""

    n: int
    ns: int
    ns_min: int
    ns_max: int


@dataclass(frozen=True)
class ProgramFigures:
    """What a program reported about its run."""

    steps: tuple[StepGroup, ...]
    losses: tuple[float, ...] = ()
    peak_rss_kb: int | None = None

    @property
    def ns(self) -> int:
        """The total time of all steps."""
        return sum(steps.ns for steps in self.steps)


def parse_program_output(
    manifest: Manifest, values: Values, out: str, err: str = ""
) -> ProgramFigures:
    """Parse a program's output; raise BadOutput if numbers are missing or impossible."""
    output = _ProgramOutput(out, err)
    steps = list(_step_groups(manifest.step, values, output))
    steps = {"all": steps, "first": steps[:1], "last": steps[-1:]}[manifest.step.take]
    steps = _without_warmup(steps, resolve_count(manifest.step.skip, values))
    if not steps:
        raise BadOutput(
            f"no step time found in the output of {manifest.name}: {output.last_line}; "
            "correct 'read.steps' of its manifest, or the program"
        )
    losses = tuple(_numbers(manifest.loss, output)) if manifest.loss else ()
    if manifest.loss and len(losses) < 2:
        raise BadOutput(
            f"only {len(losses)} loss values found in the output of {manifest.name}; at least 2 "
            "are needed, correct 'read.loss' of its manifest, or the program"
        )
    if not all(map(math.isfinite, losses)):
        raise BadOutput(f"a loss of {manifest.name} is not finite; lower its learning rate")
    return ProgramFigures(tuple(steps), losses, _peak_kb(manifest, output))


class _ProgramOutput:
    """The output of a program, as lines and as JSON objects."""

    def __init__(self, out: str, err: str) -> None:
        self._out = out
        self._err = err

    def lines(self) -> Iterator[str]:
        """Yield the lines of both streams: many programs print their figures to stderr."""
        for text in (self._out, self._err):
            for line in text.splitlines():
                yield line[:LINE_MAX]

    @property
    def last_line(self) -> str:
        """What was printed last, as text for an error."""
        lines = [line for line in self.lines() if line.strip()]
        return f"its last line is '{safe_text(lines[-1].strip(), 120)}'" if lines else "it is empty"

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects on stdout: one document, or objects on lines between others."""
        document = _json(self._out)
        if document is None:
            lines = self._out.splitlines()
            values = [_json(line) for line in lines if line.lstrip().startswith("{")]
        else:
            values = document if isinstance(document, list) else [document]
        return (value for value in values if isinstance(value, dict))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _values_at(value: Any, path: str) -> Iterator[Any]:
    """Yield the value at a path of keys; of a list, each item."""
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return
        value = value[key]
    yield from value if isinstance(value, list) else [value]


def _step_groups(rule: StepRule, values: Values, output: _ProgramOutput) -> Iterator[StepGroup]:
    n = resolve_count(rule.n, values)
    if rule.json_path is not None:
        for content in output.objects():
            for value in _values_at(content, rule.json_path):
                yield _step_group(n, _time_ns(value, rule.unit))
        return
    compiled = re.compile(rule.regex or "")
    for line in output.lines():
        for match in compiled.finditer(line):
            groups = match.groupdict() or {"time": match[1]}
            count = n if groups.get("n") is None else _count(groups["n"])
            extremes = [
                _time_ns(groups[name], rule.unit) for name in ("min", "max") if groups.get(name)
            ]
            yield _step_group(count, _time_ns(groups["time"], rule.unit), extremes)


def _step_group(n: int, mean_ns: float, extremes: list[float] | None = None) -> StepGroup:
    if not 1 <= n <= STEPS_MAX:
        raise BadOutput(f"the number of steps must be 1 to {STEPS_MAX}, got {n}")
    # A rate swaps minimum and maximum, and rounded figures may exceed each other slightly.
    if extremes and not 0.99 * min(extremes) <= mean_ns <= 1.01 * max(extremes):
        raise BadOutput("a mean step time is not between its minimum and maximum")
    times = [*(extremes or ()), mean_ns]
    ns = max(1, round(n * mean_ns))
    return StepGroup(
        n, ns, min(math.floor(min(times)), ns // n), max(math.ceil(max(times)), -(-ns // n))
    )


def _time_ns(text: object, unit: str) -> float:
    value = _number(text)
    if not (math.isfinite(value) and value > 0):
        raise BadOutput(f"'{safe_text(text, 40)}' is not a time")
    ns = 1e9 / value if unit == PER_SECOND else value * UNITS_NS[unit]
    if not 1e-3 <= ns <= 1e15:
        raise BadOutput(f"a step time of {ns:g} ns is not plausible; check the unit")
    return ns


def _number(text: object) -> float:
    if not isinstance(text, bool) and isinstance(text, int | float | str):
        with suppress(ValueError, OverflowError):
            return float(text)
    raise BadOutput(f"'{safe_text(text, 40)}' is not a number")


def _count(text: object) -> int:
    value = _number(text)
    if not math.isfinite(value) or value != int(value):
        raise BadOutput(f"'{safe_text(text, 40)}' is not a whole number")
    return int(value)


def _without_warmup(steps: list[StepGroup], skip: int) -> list[StepGroup]:
    """Return the groups without the first steps; a group is left out as a whole."""
    rest = list(steps)
    while rest and skip > 0:
        skip -= rest.pop(0).n
    return rest


def _numbers(rule: NumberRule, output: _ProgramOutput) -> Iterator[float]:
    if rule.json_path is not None:
        for content in output.objects():
            yield from map(_number, _values_at(content, rule.json_path))
    else:
        compiled = re.compile(rule.regex or "")
        for line in output.lines():
            yield from (_number(match[1]) for match in compiled.finditer(line))


def _peak_kb(manifest: Manifest, output: _ProgramOutput) -> int | None:
    if manifest.peak_rss is None:
        return None
    scale = SIZES_KB[manifest.peak_rss.unit]
    sizes = [value * scale for value in _numbers(manifest.peak_rss, output)]
    if not sizes:
        raise BadOutput(
            f"no memory size found in the output of {manifest.name}; correct 'read.peak_rss' of "
            "its manifest, or remove it"
        )
    if not all(0 <= size < 2**40 for size in sizes):
        raise BadOutput(f"a memory of {max(sizes):g} kB is not plausible; check the unit")
    return round(max(sizes))
