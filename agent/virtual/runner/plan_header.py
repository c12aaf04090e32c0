"""Reads the header of a plan: what one step does. A plan comes from outside and may be invalid."""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from agent.virtual.engines import EngineModel, engine_for
from agent.virtual.physics.step_timing import SimulatedOp
from agent.virtual.runner.runner_contract import RunnerExit, RunnerFailure

BACKENDS = ("cpu", "opencl")
_MAGIC = b"farmhand-plan 1 "
_HEADER_MAX = 16 * 1024 * 1024
_THREADS_MAX = 64
_TIME_STEPS_MAX = 4096
_PARTS_MAX = 200_000  # operations, each as often as it has time steps
_MEMORY_KINDS = ("parameter", "gradient", "state", "activation", "input", "workspace", "dataset")


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """What a virtual phone needs to know about the work."""

    digest: str  # of the whole plan
    case: str
    backend: str
    threads: int
    training: bool
    parameter_bytes: int
    activation_bytes: int
    ops: tuple[SimulatedOp, ...]
    engine: EngineModel
    memory: dict[str, int]  # bytes by kind

    @property
    def batch_bytes(self) -> int:
        """Return the size of a batch in memory; 0: the plan reads no data set."""
        return self.memory["input"] if self.memory["dataset"] else 0

    @property
    def stored_batch_bytes(self) -> int:
        """Return the size of a batch in a file, at most.

        Samples may be stored in fewer bytes than they take in memory; the header does not say how
        many are in the data set.
        """
        return min(self.batch_bytes, self.memory["dataset"])


def read_plan_header(content: bytes) -> PlanHeader:
    """Check and parse a plan; every defect is the fault bad_plan or unsupported."""
    first, _, rest = content.partition(b"\n")
    size = first.removeprefix(_MAGIC)
    if not first.startswith(_MAGIC) or not size.isdigit() or int(size) > _HEADER_MAX:
        raise RunnerFailure(
            RunnerExit.BAD_PLAN, "the plan does not start with 'farmhand-plan 1 BYTES'"
        )
    if len(rest) < int(size):
        raise RunnerFailure(RunnerExit.BAD_PLAN, "the plan ends inside its header; push it again")
    try:
        header = json.loads(rest[: int(size)])
        plan = PlanHeader(
            digest=sha256(content).hexdigest()[:16],
            case=str(header["case"]),
            backend=str(header.get("backend")),
            threads=_check_count(header["threads"], 1, _THREADS_MAX),
            training=bool(header.get("training", False)),
            parameter_bytes=_check_count(header["parameter_bytes"]),
            activation_bytes=_check_count(header["activation_bytes"]),
            ops=tuple(_parse_op(entry) for entry in header["ops"]),
            engine=engine_for(str(header.get("workload", ""))),
            memory=_memory_by_kind(header),
        )
        body_bytes = _check_count(header.get("body_bytes", 0))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunnerFailure(RunnerExit.BAD_PLAN, f"invalid plan header: {error}") from None
    if sum(op.time_steps for op in plan.ops) > _PARTS_MAX:
        raise RunnerFailure(RunnerExit.BAD_PLAN, f"a step has more than {_PARTS_MAX} parts")
    if not plan.ops:
        raise RunnerFailure(RunnerExit.BAD_PLAN, "the plan has no operations")
    if len(rest) - int(size) < body_bytes:
        raise RunnerFailure(RunnerExit.BAD_PLAN, "the plan ends inside its body; push it again")
    if plan.backend not in BACKENDS:
        raise RunnerFailure(RunnerExit.UNSUPPORTED, f"backend '{plan.backend}' is not built in")
    return plan


def _memory_by_kind(header: dict[str, Any]) -> dict[str, int]:
    """Return memory by kind; without a breakdown, `parameter` includes all that training needs."""
    memory = header.get("memory") or {
        "parameter": header["parameter_bytes"],
        "activation": header["activation_bytes"],
    }
    return {kind: _check_count(memory.get(kind, 0)) for kind in _MEMORY_KINDS}


def _parse_op(entry: dict[str, object]) -> SimulatedOp:
    return SimulatedOp(
        str(entry["name"]),
        str(entry["kind"]),
        _check_count(entry["flops"]),
        _check_count(entry["read_bytes"]),
        _check_count(entry["write_bytes"]),
        _check_count(entry.get("time_steps", 1), 1, _TIME_STEPS_MAX),
    )


def _check_count(value: object, minimum: int = 0, maximum: int = 1 << 60) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not minimum <= value <= maximum
    ):
        raise ValueError(f"{value!r} is not a valid count")
    return int(value)
