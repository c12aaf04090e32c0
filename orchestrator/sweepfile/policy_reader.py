"""Reads the keys of a sweep file that form its Policy: owner, priority, repeat, budget, ..."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel

from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.policy import (
    ATTEMPTS_MAX,
    PRIORITY_MAX,
    RUNS_MAX,
    TAG_PATTERN,
    Budget,
    Collect,
    Policy,
    RetryLimits,
    StopRule,
    runs_needed,
)
from orchestrator.sweepfile.yaml_nodes import MappingEntry, MappingNode, Node, ScalarNode
from workloads.protocol.metrics import METRICS
from workloads.text import safe_text

KEYS = ("owner", "priority", "deadline", "tags", "repeat", "order", "retry", "budget", "collect")
BASELINE_EVERY = 8
OWNER_MAX = 64
CONFIDENCES = (0.5, 0.999)
WALL_MAX_S = 10_000 * 3600.0
PolicyPart = TypeVar("PolicyPart", bound=BaseModel)


class PolicyReader:
    """Reads each key of a policy; a key with a mistake keeps its default."""

    def __init__(self, reader: NodeReader, root: MappingNode) -> None:
        self._reader = reader
        self._root = root

    def read(self) -> Policy:
        """Return the policy without its baseline, which is a cell and read later."""
        parts: dict[str, Callable[[], Any]] = {
            "owner": self._owner,
            "priority": lambda: self._integer(self._root, "priority", 0, PRIORITY_MAX),
            "deadline": self._deadline,
            "tags": self._tags,
            "repeat": self._repeat,
            "stop": self._stop,
            "retry": self._retry,
            "budget": self._budget,
            "collect": self._collect,
        }
        read = {name: part() for name, part in parts.items()}
        return Policy(**{name: value for name, value in read.items() if value is not None})

    @property
    def order(self) -> MappingNode:
        """The section `order`."""
        entry = self._root.entries.get("order")
        if entry is not None and isinstance(entry.node, MappingNode):
            return entry.node
        return MappingNode(self._root.location, {})

    def check_order(self) -> int:
        """Check the section `order`, and return how often a baseline recurs."""
        order = self._reader.section(self._root, "order", "{baseline: {cores: big4}, every: 8}")
        self._reader.refuse_unknown(order, ("baseline", "every"), "order")
        if "every" in order.entries and "baseline" not in order.entries:
            text = "order: every needs a baseline; add baseline, or remove every"
            self._reader.problems.add(order.entries["every"].location, text)
        return self._integer(order, "every", 2, 1000, "order.") or BASELINE_EVERY

    def _integer(
        self, section: MappingNode, key: str, low: int, high: int, prefix: str = ""
    ) -> int | None:
        entry = section.entries.get(key)
        return self._reader.integer_between(entry.node, prefix + key, low, high) if entry else None

    def _owner(self) -> str | None:
        entry = self._root.entries.get("owner")
        name = self._reader.text(entry.node, "owner", "a name") if entry else None
        if entry is not None and name is not None and not 0 < len(name.strip()) <= OWNER_MAX:
            self._reader.refuse(
                entry.node, "owner", f"a name must have 1 to {OWNER_MAX} characters"
            )
            return None
        return safe_text(name.strip(), OWNER_MAX) if name else None

    def _deadline(self) -> datetime | None:
        entry = self._root.entries.get("deadline")
        hint = "write it like 2026-11-20T18:00+01:00"
        text = self._reader.text(entry.node, "deadline", hint) if entry else None
        if entry is None or text is None:
            return None
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            shown = safe_text(text, 40)
            self._reader.refuse(entry.node, "deadline", f"'{shown}' is not a time; {hint}")
            return None
        if when.tzinfo is None:
            problem = f"the time zone is missing; {hint}, or with Z for UTC"
            self._reader.refuse(entry.node, "deadline", problem)
            return None
        return when

    def _tags(self) -> tuple[str, ...] | None:
        entry = self._root.entries.get("tags")
        return self._reader.distinct_values(entry.node, "tags", self._tag) if entry else None

    def _tag(self, node: Node, path: str) -> str | None:
        return self._reader.name(node, path, TAG_PATTERN, "a tag", 32)

    def _repeat(self) -> int | None:
        entry = self._root.entries.get("repeat")
        if entry is None or isinstance(entry.node, MappingNode):
            return None
        return self._reader.integer_between(entry.node, "repeat", 1, RUNS_MAX)

    def _stop(self) -> StopRule | None:
        entry = self._root.entries.get("repeat")
        if entry is None or not isinstance(entry.node, MappingNode):
            return None
        section = entry.node
        known = ("until", "min", "max", "confidence", "metric")
        self._reader.refuse_unknown(section, known, "repeat")
        if "until" not in section.entries:
            problem = "repeat: the key 'until' is missing; write the precision, such as until: 2%"
            self._reader.problems.add(section.location, problem)
        read = {
            "half_width_rel": self._percentage(section, "until", (0.0001, 1.0)),
            "confidence": self._percentage(section, "confidence", CONFIDENCES),
            "n_min": self._integer(section, "min", 2, RUNS_MAX, "repeat."),
            "n_max": self._integer(section, "max", 2, RUNS_MAX, "repeat."),
            "metric": self._metric(section),
        }
        rule = StopRule(**{key: value for key, value in read.items() if value is not None})
        self._check_counts(entry, section, rule)
        return rule

    def _percentage(
        self, section: MappingNode, key: str, bounds: tuple[float, float]
    ) -> float | None:
        entry = section.entries.get(key)
        value = self._reader.percentage(entry.node, f"repeat.{key}") if entry else None
        if entry is None or value is None:
            return None
        if not bounds[0] <= value <= bounds[1]:
            allowed = f"use {bounds[0]:.2%} to {bounds[1]:.1%}"
            problem = f"{value:.2%} is out of range; {allowed}"
            self._reader.refuse(entry.node, f"repeat.{key}", problem)
            return None
        return value

    def _metric(self, section: MappingNode) -> str | None:
        entry = section.entries.get("metric")
        if entry is None:
            return None
        per_run = sorted(name for name, kind in METRICS.items() if not kind.per)
        return self._reader.choice(entry.node, "repeat.metric", per_run, "metric")

    def _check_counts(self, entry: MappingEntry, section: MappingNode, rule: StopRule) -> None:
        needed = runs_needed(rule.confidence)
        low, high = section.entries.get("min"), section.entries.get("max")
        location = low.node.location if low else entry.location
        if rule.n_min < needed:
            confidence = f"{rule.confidence:.1%} interval"
            problem = f"{rule.n_min} runs cannot give a {confidence}; use at least {needed}"
            self._reader.problems.add(location, f"repeat.min: {problem}")
        elif rule.n_max < rule.n_min:
            location = high.node.location if high else location
            problem = f"{rule.n_max} is less than the minimum number of runs, {rule.n_min}"
            self._reader.problems.add(location, f"repeat.max: {problem}")

    def _retry(self) -> RetryLimits | None:
        keys = tuple(RetryLimits.model_fields)
        return self._read_part(
            "retry",
            "{phone: 3, condition: 3}",
            RetryLimits,
            {
                key: lambda node, path: self._reader.integer_between(node, path, 1, ATTEMPTS_MAX)
                for key in keys
            },
        )

    def _budget(self) -> Budget | None:
        entry = self._reader.section(self._root, "budget", "{wall: 36h}").entries.get("failures")
        is_share = (
            entry is not None and isinstance(entry.node, ScalarNode) and "%" in entry.node.text
        )
        return self._read_part(
            "budget",
            "{wall: 36h, failures: 10%}",
            Budget,
            {
                "wall": self._wall,
                "failures": self._reader.percentage if is_share else self._failures,
            },
            {"wall": "wall_s", "failures": "failures_share" if is_share else "failures"},
        )

    def _wall(self, node: Node, path: str) -> float | None:
        seconds = self._reader.duration(node, path)
        if seconds is not None and not 0 < seconds <= WALL_MAX_S:
            self._reader.refuse(node, path, "out of range; use more than 0s and at most 10000h")
            return None
        return seconds

    def _failures(self, node: Node, path: str) -> int | None:
        return self._reader.integer_between(node, path, 0, 1_000_000)

    def _collect(self) -> Collect | None:
        def telemetry(node: Node, path: str) -> bool | None:
            word = self._reader.choice(node, path, ("keep", "none"))
            return None if word is None else word == "keep"

        return self._read_part("collect", "{telemetry: none}", Collect, {"telemetry": telemetry})

    def _read_part(
        self,
        key: str,
        wanted: str,
        kind: type[PolicyPart],
        readers: dict[str, Callable[[Node, str], Any]],
        fields: dict[str, str] | None = None,
    ) -> PolicyPart | None:
        """Read a section that is one part of the policy."""
        if key not in self._root.entries:
            return None
        section = self._reader.section(self._root, key, wanted)
        self._reader.refuse_unknown(section, tuple(readers), key)
        read = {
            (fields or {}).get(name, name): readers[name](entry.node, f"{key}.{name}")
            for name, entry in section.entries.items()
            if name in readers
        }
        return kind(**{name: value for name, value in read.items() if value is not None})
