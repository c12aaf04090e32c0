"""The plan's header, read without trust: what one step does, counted by whoever lowered it."""

import json
from dataclasses import dataclass
from typing import Any

from agent.virtual.engines import Engine, engine_for
from agent.virtual.physics.roofline import Op
from agent.virtual.runner.contract import Exit, RunnerFault

_MAGIC = b"farmhand-plan 1 "
_HEADER_MAX = 16 * 1024 * 1024
_THREADS_MAX = 64
_KINDS = ("parameter", "gradient", "state", "activation", "input", "workspace", "dataset")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a virtual phone needs to know of the work."""

    case: str
    threads: int
    training: bool
    parameter_bytes: int
    activation_bytes: int
    ops: tuple[Op, ...]
    engine: Engine
    memory: dict[str, int]  # bytes by kind


def read_plan(content: bytes) -> Plan:
    """Check and read a plan; every defect is the fault bad_plan or unsupported."""
    first, _, rest = content.partition(b"\n")
    size = first.removeprefix(_MAGIC)
    if not first.startswith(_MAGIC) or not size.isdigit() or int(size) > _HEADER_MAX:
        raise RunnerFault(Exit.BAD_PLAN, "the plan does not begin with 'farmhand-plan 1 BYTES'")
    if len(rest) < int(size):
        raise RunnerFault(Exit.BAD_PLAN, "the plan ends inside its header; push it again")
    try:
        header = json.loads(rest[: int(size)])
        plan = Plan(
            case=str(header["case"]),
            threads=_count(header["threads"], 1, _THREADS_MAX),
            training=bool(header.get("training", False)),
            parameter_bytes=_count(header["parameter_bytes"]),
            activation_bytes=_count(header["activation_bytes"]),
            ops=tuple(_op(entry) for entry in header["ops"]),
            engine=engine_for(str(header.get("workload", ""))),
            memory=_memory(header),
        )
        body_bytes = _count(header.get("body_bytes", 0))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunnerFault(Exit.BAD_PLAN, f"the plan's header is not understood: {error}") from None
    if not plan.ops:
        raise RunnerFault(Exit.BAD_PLAN, "the plan has no operation")
    if len(rest) - int(size) < body_bytes:
        raise RunnerFault(Exit.BAD_PLAN, "the plan ends inside its body; push it again")
    if header.get("backend") != "cpu":
        raise RunnerFault(Exit.UNSUPPORTED, f"backend '{header.get('backend')}' is not built in")
    return plan


def _memory(header: dict[str, Any]) -> dict[str, int]:
    """By kind where the header tells them apart; what it calls parameters else has all that
    learning needs."""
    told = header.get("memory") or {
        "parameter": header["parameter_bytes"],
        "activation": header["activation_bytes"],
    }
    return {kind: _count(told.get(kind, 0)) for kind in _KINDS}


def _op(entry: dict[str, object]) -> Op:
    return Op(
        str(entry["name"]),
        str(entry["kind"]),
        _count(entry["flops"]),
        _count(entry["read_bytes"]),
        _count(entry["write_bytes"]),
    )


def _count(value: object, least: int = 0, most: int = 1 << 60) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{value!r} is not a count")
    return int(value)
