"""Models of training engines: how an engine turns arithmetic into time, one TOML file per engine.

The SoC limits what is possible; an engine decides which share of it is reached, how often a byte is
moved, and what an operation costs besides. Nothing here depends on a phone.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

_FOLDER = Path(__file__).parent


class EngineModel(BaseModel):
    """The figures of one engine."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    # to measurements; otherwise the figures are invented and have no known error
    fitted: bool = False
    # names of the workloads that it runs; a trailing * matches any suffix
    workloads: tuple[str, ...]
    gemm_share: float  # share of a good matrix product's rate, for kinds that contain one
    kind_share: dict[str, float]  # relative to gemm_share, by kind of operation
    traffic: float  # how often a byte of an operand is moved: packing, layouts, copies
    update_traffic: float  # the same for the optimizer's pass
    serial_kinds: tuple[str, ...]  # kinds that the first thread does alone
    panel_bytes_per_kflop: float  # read again from the shared cache while operands are multiplied
    overlap: float  # 1: memory time is hidden behind arithmetic; 0: one after the other
    launch_kcycles: float  # work of the first thread per operation
    sync_kcycles: float  # time that the other threads wait and spin per shared operation
    serial_share: float  # share of the arithmetic that only the first thread does
    split: Literal["static", "dynamic"]  # static: equal parts, so that the slowest core decides
    pins_threads: bool = False  # each thread stays on its own core
    oversubscribed_speed: float  # share of speed left with more threads than cores
    allocates_upfront: bool = False  # memory: before the first step instead of on demand
    memory_base_mb: float = 0.0  # of the process without a model
    parameter_copies: float = 1.0  # copies of parameters, gradients and optimizer state
    activation_copies: float = 1.0  # copies of what the backward pass needs
    output_copies: float = 0.0  # copies of all outputs, for an engine that frees them late
    in_place_kinds: tuple[str, ...] = ()  # kinds that overwrite their input
    im2col_mb_per_gflop: float = 0.0  # im2col buffers of convolutions
    gpu_launches: dict[str, int] = {}  # kernels per operation on a GPU by kind; 1 for the others


@cache
def load_engine(engine_id: str) -> EngineModel:
    """Read one engine by its id."""
    return EngineModel.model_validate(
        tomllib.loads(engine_path(engine_id).read_text(encoding="utf-8"))
    )


def engine_path(engine_id: str) -> Path:
    return _FOLDER / f"{engine_id}.toml"


@cache
def engine_for(workload: str) -> EngineModel:
    """Return the engine that runs a workload; Farmhand's own if no other lists it."""
    for path in sorted(_FOLDER.glob("*.toml")):
        engine = load_engine(path.stem)
        for name in engine.workloads:
            if workload == name or (name.endswith("*") and workload.startswith(name[:-1])):
                return engine
    return load_engine("farmhand")
