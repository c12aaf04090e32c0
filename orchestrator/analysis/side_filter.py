"""One side of a comparison, as somebody writes it: SWEEP, SWEEP:KEY=VALUE,... or KEY=VALUE,...

A key is `phone` (pattern on serial, model or SoC), `workload`, `backend`, a word of the condition
(cores, freq, protocol ...) or a parameter of the workload (batch_size ...). What a side names, it
does not share with the other side; everything else has to be equal for two trials to be a pair.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from orchestrator.nouns import TrialFigures
from workloads.condition import Condition
from workloads.fault import Refused
from workloads.text import natural, safe_text

VALUES_SHOWN = 8


@dataclass(frozen=True)
class Selector:
    """A sweep, or nothing, and what its trials must be."""

    text: str
    sweep: str
    wanted: Mapping[str, str]

    def matches(self, trial: TrialFigures) -> bool:
        """Whether a trial belongs to this side."""
        return all(_holds(trial, key, pattern) for key, pattern in self.wanted.items())


def read_selector(text: str) -> Selector:
    """Read one side of a comparison."""
    sweep, colon, rest = text.partition(":")
    if not colon and "=" in text:
        sweep, rest = "", text
    wanted: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise Refused(f"'{safe_text(part)}' in '{safe_text(text)}' is not KEY=VALUE")
        if key in wanted:
            raise Refused(f"'{safe_text(text)}' says {safe_text(key)} twice")
        wanted[key] = value
    if not sweep and not wanted:
        raise Refused("a side of a comparison is empty; write SWEEP, KEY=VALUE or SWEEP:KEY=VALUE")
    return Selector(text, sweep.strip(), wanted)


def pair_key(trial: TrialFigures, free: frozenset[str]) -> str:
    """What two trials must share to be a pair: all of it but the keys that the sides name."""
    words = _words(trial)
    for key in free:
        words.pop(key, None)
    return json.dumps(words, sort_keys=True)


def label_without(trial: TrialFigures, free: frozenset[str]) -> tuple[str, str]:
    """A pair's case and condition in short, without what differs between its sides."""
    case, condition = trial.case, trial.condition
    of_case = [] if "workload" in free else [case.name]
    of_case += [f"{k}={v}" for k, v in sorted(case.parameters.items()) if k not in free]
    of_case += [case.backend] if case.backend != "cpu" and "backend" not in free else []
    asked = (("protocol", condition.protocol.value), ("cores", condition.cores))
    of_condition = [v for k, v in (*asked, ("freq", condition.freq)) if k not in free]
    return " ".join(of_case) or "all", " ".join(of_condition) or "all"


def _words(trial: TrialFigures) -> dict[str, Any]:
    """Everything that tells trials apart, by the names that a selector uses."""
    case = trial.case.model_dump(mode="json", exclude={"parameters"}, exclude_none=True)
    parameters = dict(trial.case.parameters)
    condition = trial.condition.model_dump(mode="json")
    return {**case, **parameters, **condition, "phone": trial.phone}


def _holds(trial: TrialFigures, key: str, pattern: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in _names(trial, key))


def _names(trial: TrialFigures, key: str) -> tuple[str, ...]:
    """What a key's pattern is held against; the first of it is the value itself."""
    if key == "phone":
        return trial.phone, trial.model, trial.soc
    if key == "workload":
        return (trial.case.name,)
    known = {**trial.condition.model_dump(mode="json"), **trial.case.parameters}
    known["backend"] = trial.case.backend
    value = known.get(key)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return (text,) if key in known else ()


def why_none(side: Selector, trials: Sequence[TrialFigures]) -> str:
    """Why no trial belongs to a side: a key that means nothing, or a value that nothing has."""
    for key, pattern in side.wanted.items():
        if any(_holds(trial, key, pattern) for trial in trials):
            continue
        values = sorted(
            {names[0] for trial in trials if (names := _names(trial, key))}, key=natural
        )
        if not values:
            return f"'{safe_text(key)}' is no key; the keys are {', '.join(keys_of(trials))}"
        more = f" and {len(values) - VALUES_SHOWN} more" if len(values) > VALUES_SHOWN else ""
        shown = ", ".join(safe_text(value, 64) for value in values[:VALUES_SHOWN])
        wanted = f"{safe_text(key)}={safe_text(pattern)}"
        return f"no trial with figures has {wanted}; there is {shown}{more}"
    return f"no trial with figures is all of '{safe_text(side.text)}' at once"


def keys_of(trials: Iterable[TrialFigures]) -> list[str]:
    """Every key that would mean something to some trial."""
    parameters = {key for trial in trials for key in trial.case.parameters}
    return ["phone", "workload", "backend", *sorted(parameters), *Condition.model_fields]
