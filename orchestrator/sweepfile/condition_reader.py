"""Reads the keys of a condition, such as `cores` or `start_temp_max_c`, and builds it."""

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.yaml_nodes import Node, ScalarNode
from workloads.protocol.condition import Condition, Protocol
from workloads.protocol.phone_facts import check_cores_name, check_freq_name

AXES = ("protocol", "cores", "freq", "gpu_freq")
ANY, REFUSE, TRY = "any", "refuse", "try"
KEEP, STOP = "keep", "stop"
ConditionReader = Callable[[NodeReader, Node, str], Any]
_DEFAULTS = (ANY, REFUSE, KEEP)  # values that request nothing


def read_condition(reader: NodeReader, key: str, node: Node, path: str) -> Any:
    """Read the value of a condition key; None after a mistake."""
    return _READERS[key](reader, node, path)


def build_condition(values: Mapping[str, Any]) -> Condition:
    """Build the condition from the values by key of the file."""
    fields = {_FIELDS.get(key, key): value for key, value in values.items()}
    return Condition(
        **{key: None if value in _DEFAULTS else value for key, value in fields.items()}
    )


def _choice(*choices: str, what: str = "value") -> ConditionReader:
    return lambda reader, node, path: reader.choice(node, path, choices, what)


def _cores(reader: NodeReader, node: Node, path: str) -> str | None:
    return reader.checked(node, path, lambda text: check_cores_name(text[:60]))


def _freq(reader: NodeReader, node: Node, path: str) -> str | None:
    name = reader.checked(node, path, lambda text: check_freq_name(text[:60]))
    if name is None:
        return None
    try:
        return repr(float(name))  # 0.80 and 0.8 are the same clock and must give the same condition
    except ValueError:
        return name


def _decimal(reader: NodeReader, node: Node, path: str) -> float | None:
    return _check_bounds(reader, node, path, reader.decimal(node, path), _last_key(path))


def _start_temp(reader: NodeReader, node: Node, path: str) -> float | str | None:
    """Read a temperature, or `any` for phones without a temperature sensor."""
    if isinstance(node, ScalarNode) and node.text == ANY:
        return ANY
    return _check_bounds(reader, node, path, reader.decimal(node, path), "start_temp_max_c")


def _integer(reader: NodeReader, node: Node, path: str) -> float | None:
    return _check_bounds(reader, node, path, reader.integer(node, path), _last_key(path))


def _duration(reader: NodeReader, node: Node, path: str) -> float | None:
    field = _FIELDS[_last_key(path)]
    return _check_bounds(reader, node, path, reader.duration(node, path), field)


def _check_bounds(
    reader: NodeReader, node: Node, path: str, value: float | None, field: str
) -> float | None:
    """Check a number against the bounds that the Condition class declares."""
    if value is None:
        return None
    bounds: dict[str, float] = {}
    for rule in Condition.model_fields[field].metadata:
        bounds |= {name: getattr(rule, name) for name in ("ge", "gt", "le") if hasattr(rule, name)}
    low_enough = value <= bounds["le"]
    high_enough = value > bounds["gt"] if "gt" in bounds else value >= bounds["ge"]
    if low_enough and high_enough:
        return value
    unit = " s" if field.endswith("_s") else ""
    lower = f"more than {bounds['gt']:g}" if "gt" in bounds else f"{bounds['ge']:g}"
    allowed = f"use {lower} to {bounds['le']:.15g}{unit}"
    reader.refuse(node, path, f"{value:.15g}{unit} is out of range; {allowed}")
    return None


def _last_key(path: str) -> str:
    """Return the last key of a path: `steps_min` of `conditions.steps_min`."""
    return path.rpartition(".")[2]


# In the file a duration has its unit in the value, so the key does not name one.
_FIELDS = {"cool_wait_max": "cool_wait_max_s", "time_min": "time_min_s", "resume": "resume_s"}
_READERS: dict[str, ConditionReader] = {
    "protocol": _choice(*Protocol, what="protocol"),
    "cores": _cores,
    "freq": _freq,
    "start_temp_max_c": _start_temp,
    "start_slope_max_c_per_min": _decimal,
    "cool_wait_max": _duration,
    "battery_min_pct": _integer,
    "warmup_steps": _integer,
    "steps_min": _integer,
    "time_min": _duration,
    "sample_hz": _integer,
    "trace_steps": _integer,
    "resume": _duration,
    "token_budget": _integer,
    "target_loss": _decimal,
    "too_large": _choice(REFUSE, TRY),
    "gpu_freq": _freq,
    "thermal_daemons": _choice(KEEP, STOP),
}
CONDITIONS = {key: _FIELDS.get(key, key) for key in _READERS}  # key -> field of Condition
