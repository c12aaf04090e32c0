"""The part of a sweep that says how it wants to be carried out, read into a Policy."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel

from orchestrator.plan.document import Entries, Entry, Node, Scalar
from orchestrator.plan.policy import (
    ORDERS_MAX,
    PRIORITY_MAX,
    RUNS_MAX,
    TAG_PATTERN,
    TRIES_MAX,
    Budget,
    Collect,
    Policy,
    RetryLimits,
    StopRule,
)
from orchestrator.plan.reading import Reader
from orchestrator.plan.stopping import runs_needed
from workloads.measure import METRICS
from workloads.text import safe_text

KEYS = ("owner", "priority", "deadline", "tags", "repeat", "order", "retry", "budget", "collect")
BASELINE_EVERY = 8
OWNER_MAX = 64
CONFIDENCES = (0.5, 0.999)
WALL_MAX_S = 10_000 * 3600.0
Part = TypeVar("Part", bound=BaseModel)


class PolicyReader:
    """Reads each key of a policy where it stands; what was refused keeps its default."""

    def __init__(self, reader: Reader, root: Entries) -> None:
        self._reader = reader
        self._root = root

    def read(self) -> Policy:
        """The policy, but for its baseline, which is a cell."""
        parts: dict[str, Callable[[], Any]] = {
            "owner": self._owner,
            "priority": lambda: self._whole(self._root, "priority", 0, PRIORITY_MAX),
            "deadline": self._deadline,
            "tags": self._tags,
            "repeat": self._repeat,
            "stop": self._stop,
            "orders": lambda: self._whole(self.order, "orders", 1, ORDERS_MAX, "order."),
            "retry": self._retry,
            "budget": self._budget,
            "collect": self._collect,
        }
        read = {name: part() for name, part in parts.items()}
        return Policy(**{name: value for name, value in read.items() if value is not None})

    @property
    def order(self) -> Entries:
        """What stands under `order`."""
        entry = self._root.entries.get("order")
        if entry is not None and isinstance(entry.node, Entries):
            return entry.node
        return Entries(self._root.place, {})

    def check_order(self) -> int:
        """Read how often a baseline recurs, and refuse what means nothing there."""
        order = self._reader.section(self._root, "order", "{baseline: {cores: big4}, every: 8}")
        self._reader.refuse_unknown(order, ("orders", "baseline", "every"), "order")
        if "every" in order.entries and "baseline" not in order.entries:
            text = "order: every says how often the baseline recurs, but there is none"
            self._reader.problems.add(order.entries["every"].place, text)
        return self._whole(order, "every", 2, 1000, "order.") or BASELINE_EVERY

    def _whole(
        self, given: Entries, key: str, least: int, most: int, under: str = ""
    ) -> int | None:
        entry = given.entries.get(key)
        return self._reader.whole(entry.node, under + key, least, most) if entry else None

    def _owner(self) -> str | None:
        entry = self._root.entries.get("owner")
        name = self._reader.text(entry.node, "owner", "a name") if entry else None
        if entry is not None and name is not None and not 0 < len(name.strip()) <= OWNER_MAX:
            self._reader.refuse(entry.node, "owner", f"a name has 1 to {OWNER_MAX} characters")
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
            sentence = f"its zone is missing; {hint}, or with Z for UTC"
            self._reader.refuse(entry.node, "deadline", sentence)
            return None
        return when

    def _tags(self) -> tuple[str, ...] | None:
        entry = self._root.entries.get("tags")
        return self._reader.distinct(entry.node, "tags", self._tag) if entry else None

    def _tag(self, node: Node, path: str) -> str | None:
        return self._reader.named(node, path, TAG_PATTERN, "a tag", 32)

    def _repeat(self) -> int | None:
        entry = self._root.entries.get("repeat")
        if entry is None or isinstance(entry.node, Entries):
            return None
        return self._reader.whole(entry.node, "repeat", 1, RUNS_MAX)

    def _stop(self) -> StopRule | None:
        entry = self._root.entries.get("repeat")
        if entry is None or not isinstance(entry.node, Entries):
            return None
        given = entry.node
        known = ("until", "min", "max", "confidence", "metric")
        self._reader.refuse_unknown(given, known, "repeat")
        if "until" not in given.entries:
            text = "repeat: the key 'until' is missing; write how narrow: until: 2%"
            self._reader.problems.add(given.place, text)
        read = {
            "half_width_rel": self._share(given, "until", (0.0001, 1.0)),
            "confidence": self._share(given, "confidence", CONFIDENCES),
            "n_min": self._whole(given, "min", 2, RUNS_MAX, "repeat."),
            "n_max": self._whole(given, "max", 2, RUNS_MAX, "repeat."),
            "metric": self._metric(given),
        }
        rule = StopRule(**{key: value for key, value in read.items() if value is not None})
        self._check_counts(entry, given, rule)
        return rule

    def _share(self, given: Entries, key: str, bounds: tuple[float, float]) -> float | None:
        entry = given.entries.get(key)
        value = self._reader.share(entry.node, f"repeat.{key}") if entry else None
        if entry is None or value is None:
            return None
        if not bounds[0] <= value <= bounds[1]:
            span = f"it goes from {bounds[0]:.2%} to {bounds[1]:.1%}"
            self._reader.refuse(entry.node, f"repeat.{key}", f"{value:.2%} is out of range; {span}")
            return None
        return value

    def _metric(self, given: Entries) -> str | None:
        entry = given.entries.get("metric")
        if entry is None:
            return None
        whole = sorted(name for name, kind in METRICS.items() if not kind.per)
        return self._reader.choice(entry.node, "repeat.metric", "metric", whole)

    def _check_counts(self, entry: Entry, given: Entries, rule: StopRule) -> None:
        needed = runs_needed(rule.confidence)
        place = given.entries["min"].node.place if "min" in given.entries else entry.place
        if rule.n_min < needed:
            text = f"{rule.n_min} runs give no interval of {rule.confidence:.1%}; it takes {needed}"
            self._reader.problems.add(place, f"repeat.min: {text}")
        elif rule.n_max < rule.n_min:
            place = given.entries["max"].node.place if "max" in given.entries else place
            text = f"repeat.max: {rule.n_max} is less than the least number of runs, {rule.n_min}"
            self._reader.problems.add(place, text)

    def _retry(self) -> RetryLimits | None:
        keys = tuple(RetryLimits.model_fields)
        return self._filled(
            "retry",
            "{phone: 3, condition: 3}",
            RetryLimits,
            {key: lambda node, path: self._reader.whole(node, path, 1, TRIES_MAX) for key in keys},
        )

    def _budget(self) -> Budget | None:
        entry = self._reader.section(self._root, "budget", "{wall: 36h}").entries.get("failures")
        shared = entry is not None and isinstance(entry.node, Scalar) and "%" in entry.node.text
        failures = "failures_share" if shared else "failures"
        return self._filled(
            "budget",
            "{wall: 36h, failures: 10%}",
            Budget,
            {"wall": self._wall, "failures": self._share_of_runs if shared else self._failures},
            {"wall": "wall_s", "failures": failures},
        )

    def _wall(self, node: Node, path: str) -> float | None:
        seconds = self._reader.duration(node, path)
        if seconds is not None and not 0 < seconds <= WALL_MAX_S:
            self._reader.refuse(node, path, "it is more than 0 s and at most 10000h")
            return None
        return seconds

    def _failures(self, node: Node, path: str) -> int | None:
        return self._reader.whole(node, path, 0, 1_000_000)

    def _share_of_runs(self, node: Node, path: str) -> float | None:
        return self._reader.share(node, path)

    def _collect(self) -> Collect | None:
        def telemetry(node: Node, path: str) -> bool | None:
            word = self._reader.choice(node, path, "way with telemetry", ("keep", "none"))
            return None if word is None else word == "keep"

        return self._filled("collect", "{telemetry: none}", Collect, {"telemetry": telemetry})

    def _filled(
        self,
        key: str,
        wanted: str,
        kind: type[Part],
        readers: dict[str, Callable[[Node, str], Any]],
        fields: dict[str, str] | None = None,
    ) -> Part | None:
        """A part of the policy that is a mapping of its own."""
        if key not in self._root.entries:
            return None
        given = self._reader.section(self._root, key, wanted)
        self._reader.refuse_unknown(given, tuple(readers), key)
        read = {
            (fields or {}).get(name, name): readers[name](entry.node, f"{key}.{name}")
            for name, entry in given.entries.items()
            if name in readers
        }
        return kind(**{name: value for name, value in read.items() if value is not None})
