"""How long one training step takes: per operation arithmetic, memory traffic and engine overhead.

Times follow from the counts in the plan and the speed of the cores; nothing is executed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.virtual.engines import EngineModel

_DEFAULT_RATE_SHARE = 0.4
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SimulatedOp:
    """One operation of a step, as the plan lists it."""

    name: str
    kind: str
    flops: float
    read_bytes: float
    write_bytes: float
    time_steps: int = 1  # parts that need each other, one by one


@dataclass(frozen=True, slots=True)
class ComputeSpeed:
    """The speed available to a load at this moment, and what its first thread has alone."""

    gflops: float  # of the arithmetic that all threads share
    bandwidth_gbs: float
    cache_kb: float
    cache_gbs: float
    # clock times the work per cycle of this kind of core, relative to the fastest kind
    first_thread_ghz: float
    first_thread_gbs: float
    first_thread_gflops: float = 0.0  # 0: that of all threads
    threads: int = 1
    # speed of the first thread relative to the fastest core at its highest clock
    first_thread_share: float = 1.0
    # share of its dynamic power that a core draws while it waits for memory
    stalled_power_share: float = 0.55
    scalar_power_share: float = 0.6  # the same in the engine's scalar code


class GpuTimes(NamedTuple):
    """What the GPU did in one step, in seconds; the rest of the step is the host's."""

    copy_s: float
    queue_s: float  # commands waited while nothing ran
    compute_s: float


@dataclass(frozen=True, slots=True)
class StepTiming:
    """One step: its duration, how busy the first and the other cores are, its memory traffic."""

    seconds: float
    # of the first thread's core; 1 is uninterrupted arithmetic
    first_core_activity: float
    other_cores_activity: float  # activity of the cores of the other threads
    gbs: float
    serial_share: float  # share of the time in which only the first thread works
    busy_share: float = 1.0  # share of the time in which its threads run or wait for memory
    shared_gbs: float = 0.0  # traffic of the shared caches, whether it reaches memory or not
    load_s: float = 0.0  # outside of all operations: the batch comes, the GPU is awaited
    gpu: GpuTimes | None = None  # None: the cores do the arithmetic

    @property
    def gpu_busy(self) -> float:
        """Return the share of the time in which the GPU runs kernels."""
        return self.gpu.compute_s / self.seconds if self.gpu else 0.0

    def slowed_down(self, factor: float) -> "StepTiming":
        """Return the same step with the cores waiting for something else in between."""
        return replace(
            self,
            seconds=self.seconds * factor,
            first_core_activity=self.first_core_activity / factor,
            other_cores_activity=self.other_cores_activity / factor,
            gbs=self.gbs / factor,
            shared_gbs=self.shared_gbs / factor,
        )

    def after_reading(self, read_s: float) -> "StepTiming":
        """Return the same step with idle cores while its batch is read from storage."""
        factor = 1.0 + read_s / self.seconds
        return replace(
            self.slowed_down(factor),
            busy_share=self.busy_share / factor,
            load_s=self.load_s + read_s,
        )


class OpTable:
    """The operations of a step as columns, so that a thousand operations are timed at once."""

    def __init__(self, ops: Iterable[SimulatedOp], engine: EngineModel) -> None:
        op_list = tuple(ops)
        self.engine = engine
        self.flops = np.array([op.flops for op in op_list])
        self.bytes = np.array([op.read_bytes + op.write_bytes for op in op_list])
        self.read_bytes = np.array([op.read_bytes for op in op_list])
        self.time_steps = np.array([op.time_steps for op in op_list])
        self._kinds = [op.kind for op in op_list]

    @cached_property
    def rate_share(self) -> Array:
        """The share of a good matrix product's rate that each operation reaches."""
        engine = self.engine
        shares = {"matmul": 1.0, **engine.kind_share}
        return engine.gemm_share * np.array(
            [shares.get(kind, _DEFAULT_RATE_SHARE) for kind in self._kinds]
        )

    @cached_property
    def traffic(self) -> Array:
        """How often each operation moves its bytes."""
        engine = self.engine
        traffic_by_kind = dict.fromkeys(engine.serial_kinds, engine.update_traffic)
        return np.array([traffic_by_kind.get(kind, engine.traffic) for kind in self._kinds])

    @cached_property
    def is_product(self) -> NDArray[np.bool_]:
        """Whether each operation is a matrix product."""
        return np.array([kind == "matmul" for kind in self._kinds], dtype=bool)

    @cached_property
    def launches(self) -> NDArray[np.int64]:
        """How many kernels a GPU runs for each operation."""
        per_kind = self.engine.gpu_launches
        launches = np.array([per_kind.get(kind, 1) for kind in self._kinds], dtype=np.int64)
        return np.asarray(launches * self.time_steps, dtype=np.int64)

    @cached_property
    def is_serial(self) -> NDArray[np.bool_]:
        return np.array([kind in self.engine.serial_kinds for kind in self._kinds], dtype=bool)


@dataclass(frozen=True, slots=True)
class _OpTimes:
    """The parts of each operation's time."""

    arithmetic: Array
    memory: Array
    overlapped: Array  # memory time that overlaps with arithmetic
    cache_hit_share: Array
    moved_gb: Array
    launch_s: float  # per operation
    sync_s: float  # per operation that several threads share
    alone_share: float  # of the arithmetic: the time in which only the first thread computes
    panel_gb: float

    def seconds(self, serial: NDArray[np.bool_]) -> Array:
        """Return the time of each operation."""
        return (
            self.arithmetic
            + self.memory
            - self.overlapped
            + self.launch_s
            + np.where(serial, 0.0, self.sync_s)
        )


def time_step(table: OpTable, speed: ComputeSpeed) -> StepTiming:
    """Add up the operations of one step."""
    serial, times = table.is_serial, _op_times(table, speed)
    arithmetic, memory, overlapped = times.arithmetic, times.memory, times.overlapped
    sync_s = int((~serial).sum()) * times.sync_s
    arithmetic_s, stall_s = float(arithmetic.sum()), float((memory - overlapped).sum())
    launch_s = len(serial) * times.launch_s
    alone_s = arithmetic_s * times.alone_share
    first_thread_only_s = launch_s + alone_s + float(memory[serial].sum())
    total_s = max(arithmetic_s + stall_s + sync_s + launch_s, 1e-9)
    shared_s = total_s - first_thread_only_s
    shared_stall_s = float(((memory - overlapped)[~serial]).sum())
    first_core_activity = (
        arithmetic_s
        + speed.stalled_power_share * stall_s
        + speed.scalar_power_share * (launch_s + sync_s)
    )
    other_cores_activity = (
        (arithmetic_s - alone_s)
        + speed.stalled_power_share * shared_stall_s
        + speed.scalar_power_share * sync_s
    )
    dram_gb = float((times.moved_gb * (1.0 - times.cache_hit_share)).sum())
    return StepTiming(
        total_s,
        first_core_activity / total_s,
        min(other_cores_activity, shared_s) / total_s,
        dram_gb / total_s,
        first_thread_only_s / total_s,
        shared_gbs=(float(times.moved_gb.sum()) + times.panel_gb) / total_s,
    )


def drawn_by_ops(table: OpTable, speed: ComputeSpeed) -> tuple[Array, Array, Array]:
    """Return how active the first and the other cores are in each operation, and its traffic."""
    serial, times = table.is_serial, _op_times(table, speed)
    shared = np.where(serial, 0.0, 1.0)
    waits = speed.stalled_power_share * (times.memory - times.overlapped)
    sync = speed.scalar_power_share * times.sync_s * shared
    first = times.arithmetic + waits + sync + speed.scalar_power_share * times.launch_s
    others = (1.0 - times.alone_share) * times.arithmetic + waits * shared + sync
    return first, others, times.moved_gb * (1.0 - times.cache_hit_share)


def op_time_shares(table: OpTable, speed: ComputeSpeed) -> Array:
    """Return the share of a step that each operation takes."""
    return as_shares(_op_times(table, speed).seconds(table.is_serial))


def as_shares(seconds: Array) -> Array:
    """Return times as shares of their sum."""
    return np.asarray(seconds / max(float(seconds.sum()), 1e-12))


def _op_times(table: OpTable, speed: ComputeSpeed) -> _OpTimes:
    engine, serial = table.engine, table.is_serial
    cache_hit_share = np.minimum(1.0, speed.cache_kb * 1024 / np.maximum(table.bytes, 1.0))
    moved_gb = table.bytes * table.traffic / 1e9
    alone = engine.serial_share if speed.threads > 1 and speed.first_thread_gflops else 0.0
    s_per_gflop = (1.0 - alone) / speed.gflops
    if alone:
        s_per_gflop += alone / speed.first_thread_gflops
    arithmetic = table.flops * 1e-9 * s_per_gflop / table.rate_share
    dram_gbs = np.where(serial, speed.first_thread_gbs, speed.bandwidth_gbs)
    memory = moved_gb * (
        cache_hit_share / np.maximum(speed.cache_gbs, dram_gbs) + (1.0 - cache_hit_share) / dram_gbs
    )
    panel_gb = table.flops * 1e-12 * engine.panel_bytes_per_kflop
    memory = memory + panel_gb / speed.cache_gbs
    arithmetic = np.where(serial, 0.0, arithmetic)  # a serial pass is limited by memory
    overlapped = engine.overlap * np.minimum(arithmetic, memory)
    launch_s = engine.launch_kcycles / 1e6 / speed.first_thread_ghz
    sync_s = engine.sync_kcycles / 1e6 / speed.first_thread_ghz if speed.threads > 1 else 0.0
    alone_share = alone / speed.first_thread_gflops / s_per_gflop if alone else 0.0
    return _OpTimes(
        arithmetic,
        memory,
        overlapped,
        cache_hit_share,
        moved_gb,
        launch_s,
        sync_s,
        alone_share,
        float(panel_gb.sum()),
    )
