"""The words for conditions: how each is read, and the condition that they make together."""

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.plan.document import Node, Scalar
from orchestrator.plan.reading import Reader
from workloads.condition import Condition, Protocol
from workloads.phone import check_cores_name, check_freq_name
from workloads.text import safe_text

AXES = ("protocol", "cores", "freq", "gpu_freq")
ANY, REFUSE, TRY = "any", "refuse", "try"
KEEP, STOP = "keep", "stop"
_NOTHING_ASKED = (ANY, REFUSE, KEEP)


def read_condition(reader: Reader, key: str, node: Node, path: str) -> Any:
    """Read the value of a condition; None after a mistake."""
    return _READERS[key](reader, node, path)


def build_condition(asked: Mapping[str, Any]) -> Condition:
    """The condition that is asked for in the words of a file."""
    fields = {_FIELDS.get(key, key): value for key, value in asked.items()}
    return Condition(
        **{key: None if value in _NOTHING_ASKED else value for key, value in fields.items()}
    )


def _protocol(reader: Reader, node: Node, path: str) -> str | None:
    return reader.choice(node, path, "protocol", [each.value for each in Protocol])


def _too_large(reader: Reader, node: Node, path: str) -> str | None:
    return reader.choice(node, path, "way with what is too large", [REFUSE, TRY])


def _thermal_daemons(reader: Reader, node: Node, path: str) -> str | None:
    return reader.choice(node, path, "way with daemons that guard against heat", [KEEP, STOP])


def _cores(reader: Reader, node: Node, path: str) -> str | None:
    return _checked(reader, node, path, check_cores_name)


def _freq(reader: Reader, node: Node, path: str) -> str | None:
    name = _checked(reader, node, path, check_freq_name)
    if name is None:
        return None
    try:
        return repr(float(name))  # 0.80 and 0.8 are one clock, so they must be one condition
    except ValueError:
        return name


def _checked(reader: Reader, node: Node, path: str, check: Callable[[str], str]) -> str | None:
    text = reader.text(node, path)
    if text is None:
        return None
    try:
        return check(text[:60])
    except ValueError as error:
        reader.refuse(node, path, safe_text(error))
        return None


def _decimal(reader: Reader, node: Node, path: str) -> float | None:
    return _bounded(reader, node, path, reader.decimal(node, path), _last(path))


def _start_temp(reader: Reader, node: Node, path: str) -> float | str | None:
    """A temperature, or `any` for phones that have no thermometer."""
    if isinstance(node, Scalar) and node.text == ANY:
        return ANY
    return _bounded(reader, node, path, reader.decimal(node, path), "start_temp_max_c")


def _whole(reader: Reader, node: Node, path: str) -> float | None:
    return _bounded(reader, node, path, reader.whole_number(node, path), _last(path))


def _duration(reader: Reader, node: Node, path: str) -> float | None:
    field = _FIELDS[_last(path)]
    return _bounded(reader, node, path, reader.duration(node, path), field)


def _bounded(
    reader: Reader, node: Node, path: str, value: float | None, field: str
) -> float | None:
    """Hold a number against the bounds that the condition itself declares."""
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
    least = f"more than {bounds['gt']:g}" if "gt" in bounds else f"{bounds['ge']:g}"
    range_ = f"it goes from {least} to {bounds['le']:g}{unit}"
    reader.refuse(node, path, f"{value:g}{unit} is out of range; {range_}")
    return None


def _last(path: str) -> str:
    """The key at the end of a path, `steps_min` of `conditions.steps_min`."""
    return path.rpartition(".")[2]


# In the file a duration carries its unit in the value, so the key has none.
_FIELDS = {"cool_wait_max": "cool_wait_max_s", "time_min": "time_min_s"}
_READERS: dict[str, Callable[[Reader, Node, str], Any]] = {
    "protocol": _protocol,
    "cores": _cores,
    "freq": _freq,
    "start_temp_max_c": _start_temp,
    "start_slope_max_c_per_min": _decimal,
    "cool_wait_max": _duration,
    "battery_min_pct": _whole,
    "warmup_steps": _whole,
    "steps_min": _whole,
    "time_min": _duration,
    "sample_hz": _whole,
    "too_large": _too_large,
    "gpu_freq": _freq,
    "thermal_daemons": _thermal_daemons,
}
CONDITIONS = tuple(_READERS)
