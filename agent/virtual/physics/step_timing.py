"""How long one step of work takes: per operation arithmetic, memory, and what the engine adds.

Times come from the plan's own counts and the pace of the cores; nothing is executed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agent.virtual.engines import Engine

_OTHER_SHARE = 0.4
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a step, as the plan lists it."""

    name: str
    kind: str
    flops: float
    read_bytes: float
    write_bytes: float


@dataclass(frozen=True, slots=True)
class Pace:
    """What a piece of work may use just now; `lone` is what its first thread has by itself."""

    gflops: float
    bandwidth_gbs: float
    cache_kb: float
    cache_gbs: float
    lone_ghz: float  # clock times what this kind of core does in a cycle, the fastest kind being 1
    lone_gbs: float
    threads: int = 1
    stalled: float = 0.55  # share of its switching power that a core draws waiting for memory
    scalar: float = 0.6  # the same in the engine's own scalar code


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step: how long, how hard the first core and the others work, how much memory moves."""

    seconds: float
    lead: float  # activity of the first thread's core: 1 is arithmetic without a pause
    others: float  # activity of the other cores
    gbs: float
    serial_share: float  # of the time in which the first thread is alone

    def slower(self, factor: float) -> "StepCost":
        """The same step with the cores waiting for something else meanwhile."""
        return StepCost(
            self.seconds * factor,
            self.lead / factor,
            self.others / factor,
            self.gbs / factor,
            self.serial_share,
        )


class OpTable:
    """The operations of a step as columns, so that a step of a thousand is priced at once."""

    def __init__(self, ops: Iterable[Op], engine: Engine) -> None:
        listed = tuple(ops)
        self.engine = engine
        self.flops = np.array([op.flops for op in listed])
        self.bytes = np.array([op.read_bytes + op.write_bytes for op in listed])
        self._kinds = [op.kind for op in listed]

    @cached_property
    def share(self) -> Array:
        """Share of a good matrix product's rate that each operation reaches."""
        engine = self.engine
        shares = {"matmul": 1.0, **engine.kind_share}
        return engine.gemm_share * np.array(
            [shares.get(kind, _OTHER_SHARE) for kind in self._kinds]
        )

    @cached_property
    def traffic(self) -> Array:
        """How often each operation moves its bytes."""
        engine = self.engine
        often = dict.fromkeys(engine.serial_kinds, engine.update_traffic)
        return np.array([often.get(kind, engine.traffic) for kind in self._kinds])

    @cached_property
    def serial(self) -> NDArray[np.bool_]:
        return np.array([kind in self.engine.serial_kinds for kind in self._kinds], dtype=bool)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What each operation's time is made of."""

    arithmetic: Array
    memory: Array
    hidden: Array  # of the memory's time, behind arithmetic
    hits: Array
    moved_gb: Array
    launch_s: float  # of every operation
    sync_s: float  # of every operation that threads share

    def seconds(self, serial: NDArray[np.bool_]) -> Array:
        """The time of each operation."""
        return (
            self.arithmetic
            + self.memory
            - self.hidden
            + self.launch_s
            + np.where(serial, 0.0, self.sync_s)
        )


def step_cost(table: OpTable, pace: Pace) -> StepCost:
    """Add up the operations of one step."""
    serial, parts = table.serial, _parts(table, pace)
    arithmetic, memory, hidden = parts.arithmetic, parts.memory, parts.hidden
    sync_s = int((~serial).sum()) * parts.sync_s
    busy_s, stalled_s = float(arithmetic.sum()), float((memory - hidden).sum())
    launch_s = len(serial) * parts.launch_s
    alone_s = launch_s + float(memory[serial].sum())
    total = max(busy_s + stalled_s + sync_s + launch_s, 1e-9)
    together = total - alone_s
    waits = float(((memory - hidden)[~serial]).sum())
    lead = busy_s + pace.stalled * stalled_s + pace.scalar * (launch_s + sync_s)
    others = busy_s + pace.stalled * waits + pace.scalar * sync_s
    dram_gb = float((parts.moved_gb * (1.0 - parts.hits)).sum())
    return StepCost(
        total, lead / total, min(others, together) / total, dram_gb / total, alone_s / total
    )


def op_shares(table: OpTable, pace: Pace) -> Array:
    """Which share of a step each operation takes."""
    seconds = _parts(table, pace).seconds(table.serial)
    return np.asarray(seconds / max(float(seconds.sum()), 1e-12))


def _parts(table: OpTable, pace: Pace) -> _Parts:
    engine, serial = table.engine, table.serial
    hits = np.minimum(1.0, pace.cache_kb * 1024 / np.maximum(table.bytes, 1.0))
    moved = table.bytes * table.traffic / 1e9
    arithmetic = table.flops / (pace.gflops * 1e9 * table.share)
    far = np.where(serial, pace.lone_gbs, pace.bandwidth_gbs)
    memory = moved * (hits / np.maximum(pace.cache_gbs, far) + (1.0 - hits) / far)
    arithmetic = np.where(serial, 0.0, arithmetic)  # a serial pass is bound by its memory
    hidden = engine.overlap * np.minimum(arithmetic, memory)
    launch_s = engine.launch_kcycles / 1e6 / pace.lone_ghz
    sync_s = engine.sync_kcycles / 1e6 / pace.lone_ghz if pace.threads > 1 else 0.0
    return _Parts(arithmetic, memory, hidden, hits, moved, launch_s, sync_s)
