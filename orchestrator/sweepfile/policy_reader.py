"""Reads the keys of a sweep file that form its Policy: owner, priority, repeat, budget, ..."""

from datetime import datetime
from functools import partial

from orchestrator.sweepfile.node_reader import NodeReader, Read
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
from orchestrator.sweepfile.yaml_nodes import MappingNode, Node, ScalarNode
from workloads.protocol.metrics import METRICS
from workloads.text import safe_text

KEYS = ("owner", "priority", "deadline", "tags", "repeat", "order", "retry", "budget", "collect")
BASELINE_EVERY = 8
OWNER_MAX = 64
CONFIDENCES = (0.5, 0.999)
WALL_MAX_S = 10_000 * 3600.0
_STOP_FIELDS = {"until": "half_width_rel", "min": "n_min", "max": "n_max"}  # key -> field


class PolicyReader:
    """Reads each key of a policy; a key with a mistake keeps its default."""

    def __init__(self, reader: NodeReader, root: MappingNode) -> None:
        self._reader = reader
        self._root = root

    def read(self) -> Policy:
        """Return the policy without its baseline, which is a cell and read later."""
        repeat = self._root.entries.get("repeat")
        has_rule = repeat is not None and isinstance(repeat.node, MappingNode)
        tag = partial(self._reader.name, pattern=TAG_PATTERN, what="a tag", longest=32)
        readers: dict[str, Read] = {
            "owner": self._owner,
            "priority": partial(self._reader.integer_between, low=0, high=PRIORITY_MAX),
            "deadline": self._deadline,
            "tags": partial(self._reader.distinct_values, read=tag),
            "repeat": self._stop_rule if has_rule else self._run_count,
            "retry": self._retry,
            "budget": self._budget,
            "collect": self._collect,
        }
        read = self._reader.values(self._root, readers)
        if has_rule:
            read["stop"] = read.pop("repeat")
        return Policy(**read)

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
        every = partial(self._reader.integer_between, low=2, high=1000)
        return int(
            self._reader.values(order, {"every": every}, "order").get("every", BASELINE_EVERY)
        )

    def _owner(self, node: Node, path: str) -> str | None:
        name = self._reader.text(node, path, "a name")
        if name is None:
            return None
        if not 0 < len(name.strip()) <= OWNER_MAX:
            self._reader.refuse(node, path, f"a name must have 1 to {OWNER_MAX} characters")
            return None
        return safe_text(name.strip(), OWNER_MAX)

    def _deadline(self, node: Node, path: str) -> datetime | None:
        hint = "write it like 2026-11-20T18:00+01:00"
        text = self._reader.text(node, path, hint)
        if text is None:
            return None
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            self._reader.refuse(node, path, f"'{safe_text(text, 40)}' is not a time; {hint}")
            return None
        if when.tzinfo is None:
            problem = f"the time zone is missing; {hint}, or with Z for UTC"
            self._reader.refuse(node, path, problem)
            return None
        return when

    def _run_count(self, node: Node, path: str, low: int = 1) -> int | None:
        return self._reader.integer_between(node, path, low, RUNS_MAX)

    def _stop_rule(self, node: Node, path: str) -> StopRule:
        per_run = sorted(name for name, kind in METRICS.items() if not kind.per)
        run_count = partial(self._run_count, low=2)
        read = self._reader.fields(
            node,
            path,
            "{until: 2%}",
            {
                "until": partial(self._percentage, bounds=(0.0001, 1.0)),
                "min": run_count,
                "max": run_count,
                "confidence": partial(self._percentage, bounds=CONFIDENCES),
                "metric": partial(self._reader.choice, choices=per_run, what="metric"),
            },
        )
        rule = StopRule(**{_STOP_FIELDS.get(key, key): value for key, value in read.items()})
        assert isinstance(node, MappingNode)
        self._check_counts(node, rule)
        return rule

    def _percentage(self, node: Node, path: str, bounds: tuple[float, float]) -> float | None:
        value = self._reader.percentage(node, path)
        if value is None or bounds[0] <= value <= bounds[1]:
            return value
        allowed = f"use {bounds[0]:.2%} to {bounds[1]:.1%}"
        self._reader.refuse(node, path, f"{value:.2%} is out of range; {allowed}")
        return None

    def _check_counts(self, section: MappingNode, rule: StopRule) -> None:
        if "until" not in section.entries:
            problem = "repeat: the key 'until' is missing; write the precision, such as until: 2%"
            self._reader.problems.add(section.location, problem)
        needed = runs_needed(rule.confidence)
        low, high = section.entries.get("min"), section.entries.get("max")
        location = low.node.location if low else self._root.entries["repeat"].location
        if rule.n_min < needed:
            confidence = f"{rule.confidence:.1%} interval"
            problem = f"{rule.n_min} runs cannot give a {confidence}; use at least {needed}"
            self._reader.problems.add(location, f"repeat.min: {problem}")
        elif rule.n_max < rule.n_min:
            location = high.node.location if high else location
            problem = f"{rule.n_max} is less than the minimum number of runs, {rule.n_min}"
            self._reader.problems.add(location, f"repeat.max: {problem}")

    def _retry(self, node: Node, path: str) -> RetryLimits:
        attempts = partial(self._reader.integer_between, low=1, high=ATTEMPTS_MAX)
        readers = dict.fromkeys(RetryLimits.model_fields, attempts)
        read = self._reader.fields(node, path, "{phone: 3, condition: 3}", readers)
        return RetryLimits(**read)

    def _budget(self, node: Node, path: str) -> Budget:
        readers: dict[str, Read] = {"wall": self._wall, "failures": self._failures}
        read = self._reader.fields(node, path, "{wall: 36h, failures: 10%}", readers)
        return Budget(wall_s=read.get("wall"), **read.get("failures", {}))

    def _wall(self, node: Node, path: str) -> float | None:
        seconds = self._reader.duration(node, path)
        if seconds is not None and not 0 < seconds <= WALL_MAX_S:
            self._reader.refuse(node, path, "out of range; use more than 0s and at most 10000h")
            return None
        return seconds

    def _failures(self, node: Node, path: str) -> dict[str, float | None]:
        if isinstance(node, ScalarNode) and "%" in node.text:
            return {"failures_share": self._reader.percentage(node, path)}
        return {"failures": self._reader.integer_between(node, path, 0, 1_000_000)}

    def _collect(self, node: Node, path: str) -> Collect:
        telemetry = partial(self._reader.choice, choices=("keep", "none"))
        read = self._reader.fields(node, path, "{telemetry: none}", {"telemetry": telemetry})
        return Collect(telemetry=read.get("telemetry") != "none")
