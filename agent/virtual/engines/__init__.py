"""How a training engine turns arithmetic into time, one TOML file per engine.

The silicon says what is possible; an engine says which share of it is reached, how often a byte is
moved, and what every operation costs besides. Nothing here knows any phone.
"""

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_FOLDER = Path(__file__).parent


class Engine(BaseModel):
    """The habits of one engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    fitted: bool = False  # to measurements; else invented, and no phone's error covers it
    workloads: tuple[str, ...]  # what it runs: names, or beginnings that end in *
    gemm_share: float  # of a good matrix product's rate, for every kind that is one inside
    kind_share: dict[str, float]  # of the above, for the other kinds
    traffic: float  # how often a byte of an operand is really moved: packing, layouts, copies
    update_traffic: float  # the same for the optimizer's pass
    serial_kinds: tuple[str, ...]  # what the first thread does alone
    overlap: float  # 1: memory hides behind arithmetic; 0: one after the other
    launch_kcycles: float  # the first thread's work for every operation
    sync_kcycles: float  # what the other threads wait and spin for every shared operation
    parallel_loss: float  # share lost for every further core
    crowding: float  # speed left when there are more threads than cores
    takes_all_first: bool = False  # memory: before the first step, or as it goes
    memory_base_mb: float = 0.0  # of the process, before any model
    parameter_copies: float = 1.0  # of parameters, gradients and optimizer state
    activation_copies: float = 1.0  # of what the backward pass needs
    written_copies: float = 0.0  # of all that operations write, for an engine that frees it late
    in_place_kinds: tuple[str, ...] = ()  # what it writes where it read
    columns_mb_per_gflop: float = 0.0  # windows of convolutions, unrolled for the matrix product


@cache
def load_engine(engine_id: str) -> Engine:
    """Read one engine by its id."""
    return Engine.model_validate(tomllib.loads(engine_path(engine_id).read_text(encoding="utf-8")))


def engine_path(engine_id: str) -> Path:
    return _FOLDER / f"{engine_id}.toml"


@cache
def engine_for(workload: str) -> Engine:
    """The engine that runs a workload; ours where no other claims it."""
    for path in sorted(_FOLDER.glob("*.toml")):
        engine = load_engine(path.stem)
        for name in engine.workloads:
            if workload == name or (name.endswith("*") and workload.startswith(name[:-1])):
                return engine
    return load_engine("own")
