"""Parses one side of a comparison: SWEEP, SWEEP:KEY=VALUE,... or KEY=VALUE,...

A key is `phone` (pattern on serial, model or SoC), `workload`, `backend`, a key of the condition
(cores, freq, protocol ...) or a parameter of the workload (batch_size ...). The keys that a side
names may differ between the sides; everything else has to be equal for two trials to be a pair.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from orchestrator.analysis.measurements import MeasuredTrial, TrialSeries
from workloads.protocol.condition import Condition
from workloads.protocol.faults import InvalidRequest
from workloads.text import list_text, natural_sort_key, safe_text

VALUES_SHOWN = 8


@dataclass(frozen=True)
class SideFilter:
    """A sweep (empty: that of the other side) and a pattern for each key that its trials match."""

    text: str
    sweep: str
    patterns: Mapping[str, str]

    def matches(self, trial: MeasuredTrial) -> bool:
        """Return whether a trial belongs to this side."""
        return all(_has_value(trial, key, pattern) for key, pattern in self.patterns.items())


def parse_side(text: str) -> SideFilter:
    """Parse one side of a comparison."""
    sweep, colon, rest = text.partition(":")
    if not colon and "=" in text:
        sweep, rest = "", text
    patterns: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise InvalidRequest(
                f"'{safe_text(part)}' in '{safe_text(text)}' is not KEY=VALUE; "
                "write for example cores=big4"
            )
        if key in patterns:
            raise InvalidRequest(
                f"'{safe_text(text)}' names {safe_text(key)} twice; remove one of them"
            )
        patterns[key] = value
    if not sweep and not patterns:
        raise InvalidRequest(
            "a side of the comparison is empty; write SWEEP, KEY=VALUE or SWEEP:KEY=VALUE"
        )
    return SideFilter(text, sweep.strip(), patterns)


def pair_key(trial: MeasuredTrial, side_keys: frozenset[str]) -> str:
    """Return what two trials must share to be a pair: everything but the keys the sides name."""
    identity = _identity(trial)
    for key in side_keys:
        identity.pop(key, None)
    return json.dumps(identity, sort_keys=True)


def label_without(trial: TrialSeries, side_keys: frozenset[str]) -> tuple[str, str]:
    """Return short names of a pair's case and condition, without what differs between its sides."""
    case, condition = trial.case, trial.condition
    case_parts = [] if "workload" in side_keys else [case.name]
    settings = {**case.parameters, **case.options}
    case_parts += [f"{k}={v}" for k, v in sorted(settings.items()) if k not in side_keys]
    case_parts += [case.backend] if case.backend != "cpu" and "backend" not in side_keys else []
    named = (
        ("protocol", condition.protocol.value),
        ("cores", condition.cores),
        ("freq", condition.freq),
    )
    condition_parts = [value for key, value in named if key not in side_keys]
    return " ".join(case_parts) or "all", " ".join(condition_parts) or "all"


def _identity(trial: MeasuredTrial) -> dict[str, Any]:
    """Return everything that distinguishes trials, by the keys that a side may name."""
    split = {"parameters", "options"}
    case = trial.case.model_dump(mode="json", exclude=split, exclude_none=True)
    condition = trial.condition.model_dump(mode="json")
    settings = {**trial.case.parameters, **trial.case.options}
    return {**case, **settings, **condition, "phone": trial.phone}


def _has_value(trial: MeasuredTrial, key: str, pattern: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in _values(trial, key))


def _values(trial: MeasuredTrial, key: str) -> tuple[str, ...]:
    """Return the texts that a key's pattern is matched with; the first is the value itself."""
    if key == "phone":
        return trial.phone, trial.model, trial.soc
    if key == "workload":
        return (trial.case.name,)
    known = {**trial.condition.model_dump(mode="json"), **trial.case.settings}
    known["backend"] = trial.case.backend
    value = known.get(key)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return (text,) if key in known else ()


def why_no_match(side: SideFilter, trials: Sequence[TrialSeries]) -> str:
    """Explain why no trial belongs to a side: an unknown key, or a value that no trial has."""
    for key, pattern in side.patterns.items():
        if any(_has_value(trial, key, pattern) for trial in trials):
            continue
        values = sorted(
            {values[0] for trial in trials if (values := _values(trial, key))}, key=natural_sort_key
        )
        if not values:
            return f"unknown key '{safe_text(key)}'; use one of {', '.join(filter_keys(trials))}"
        shown = list_text([safe_text(value, 64) for value in values], VALUES_SHOWN)
        wanted = f"{safe_text(key)}={safe_text(pattern)}"
        return f"no trial with metrics has {wanted}; {safe_text(key)} is one of {shown}"
    return f"no trial with metrics matches all of '{safe_text(side.text)}'; remove a KEY=VALUE"


def filter_keys(trials: Iterable[TrialSeries]) -> list[str]:
    """List every key that some trial has a value for."""
    parameters = {key for trial in trials for key in trial.case.settings}
    return ["phone", "workload", "backend", *sorted(parameters), *Condition.model_fields]
