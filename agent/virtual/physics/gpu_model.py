"""The GPU: a frequency ladder with limits, and the time and power of a step on it.

A step on a GPU is launches, copies and arithmetic. The host queues kernels one after another and
the GPU runs them in that order, so a step of many small kernels takes as long as the host needs to
queue them, and the GPU is idle in between.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agent.virtual.physics.op_power import FIRST_CORE, GPU, MEMORY
from agent.virtual.physics.step_timing import Array, ComputeSpeed, GpuTimes, OpTable, StepTiming
from agent.virtual.profiles import GpuProfile

_GOVERNOR = {"kgsl": "msm-adreno-tz", "mali": "simple_ondemand", "nvgpu": "nvhost_podgov"}

KERNELS = ("naive", "vector", "tiled", "tiled_vector", "packed", "tuned")
FEEDS = ("copied", "mapped", "resident", "preloaded")

# Where between the naive (0) and the tiled, vectorised product (1) a kernel lies, on a logarithmic
# scale. Both ends are measured (Cambridge, arXiv 2202.10100: 10 and 40 GFLOP/s on an Adreno 630).
# derived: tiles and vectors are two techniques that together gain this factor; nothing is known
# about the share of each, so that each gets half. A Mali has no separate local memory (clinfo:
# type Global), so tiles gain little there. `packed` and `tuned` are not in the study: they
# multiply like its best kernel.
_GAIN = {
    "naive": 0.0,
    "vector": 0.5,
    "tiled": 0.5,
    "tiled_vector": 1.0,
    "packed": 1.0,
    "tuned": 1.0,
}
_MALI_GAIN = {**_GAIN, "vector": 0.75, "tiled": 0.25}
_PACKED_LAUNCHES = 3  # both operands are packed first, each by its own kernel
_PACKED_PASSES = 2  # over the operands: they are read and written once more

# invented: the time in which a started kernel fills the GPU and drains.
_KERNEL_START_S = 8e-6
# invented: of the time that an engine waits for a kernel, the part before the kernel starts. The
# rest passes until the waiting thread runs again.
_QUEUE_SHARE = 0.5


def kernel_gain(driver: str, kernel: str) -> float:
    """Return where a kernel lies between the naive (0) and the best one (1)."""
    return (_MALI_GAIN if driver == "mali" else _GAIN)[kernel]


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """How a run uses the GPU: kernel of its matrix products, feed, and bytes of a batch."""

    kernel: str = "tuned"
    feed: str = "resident"
    batch_bytes: float = 0.0


class _Launches(NamedTuple):
    """The kernels of a step: how many per operation, and the time of each on the GPU."""

    per_op: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"
    op_s: Array  # of all kernels of an operation
    arithmetic_s: Array
    moved_gb: Array


class GpuModel:
    """Clock, limits and load of one GPU; clocks in kHz."""

    def __init__(self, profile: GpuProfile, speed_spread: float = 1.0) -> None:
        self.profile = profile
        self.ladder = profile.ladder_khz
        self.throttle_state = 0
        self.busy = 0.0
        self.speed_left = 1.0  # by a hidden limiter or by other work
        self.others_busy = 0.0  # share of the time that other work takes
        self._speed_spread = speed_spread
        self.reset()

    def reset(self) -> None:
        """Reset to the state after boot."""
        self.governor = _GOVERNOR[self.profile.driver]
        self.user_min_khz, self.user_max_khz = self.ladder[0], self.ladder[-1]

    @property
    def governors(self) -> tuple[str, ...]:
        return (_GOVERNOR[self.profile.driver], "performance", "powersave", "userspace")

    @property
    def cap_khz(self) -> int:
        """Return the highest clock that throttling allows."""
        return self.ladder[max(len(self.ladder) - 1 - self.throttle_state, 0)]

    @property
    def max_khz(self) -> int:
        return min(self.user_max_khz, self.cap_khz)

    @property
    def min_khz(self) -> int:
        return min(self.user_min_khz, self.max_khz)

    @property
    def clock_khz(self) -> int:
        """Return the highest allowed clock while there is work, otherwise the lowest."""
        is_running = self.governor == "performance" or (
            self.busy > 0 and self.governor != "powersave"
        )
        wanted_khz = self.max_khz if is_running else self.min_khz
        return max((rung for rung in self.ladder if rung <= wanted_khz), default=self.ladder[0])

    def watts(self, die_c: float) -> float:
        """Return dynamic and leakage power; an idle GPU is switched off."""
        if self.busy <= 0:
            return 0.0
        leakage = float(2.0 ** ((die_c - 60.0) / 35.0))
        return self.dynamic_w(self.busy) + self.profile.leak_w * self._volts * leakage

    def dynamic_w(self, busy: float) -> float:
        """Return the power of kernels that run for a share of the time."""
        return self.profile.dyn_w * busy * self.clock_khz / self.ladder[-1] * self._volts**2

    @property
    def _volts(self) -> float:
        """The voltage at the present clock, relative to the highest."""
        low, high = self.profile.volts
        span = self.ladder[-1] - self.ladder[0]
        fraction = (self.clock_khz - self.ladder[0]) / span if span else 1.0
        return (low + (high - low) * float(fraction**1.5)) / high

    # -- steps

    def product_gflops(self, kernel: str) -> float:
        """Return the speed of a large matrix product at the present clock."""
        profile = self.profile
        gain = kernel_gain(profile.driver, kernel)
        share = profile.naive_share * float((profile.gemm_share / profile.naive_share) ** gain)
        clock_share = self.clock_khz / self.ladder[-1]
        return profile.peak_gflops * clock_share * share * self._speed_spread

    def product_share(self, table: OpTable, kernel: str) -> float:
        """Return the share of matrix products in the time of a step's kernels."""
        op_s = self._launches(table, kernel).op_s
        return float(op_s[table.is_product].sum() / op_s.sum())

    def time_step(
        self, table: OpTable, settings: GpuSettings, speed: ComputeSpeed
    ) -> tuple[StepTiming, Array]:
        """Time one step; also return the seconds of each operation."""
        enqueue_s = self.profile.enqueue_us * 1e-6 / speed.first_thread_share
        wait_s = max(self.profile.launch_us * 1e-6 - enqueue_s, 0.0)
        host = _Host(enqueue_s, _QUEUE_SHARE * wait_s, (1.0 - _QUEUE_SHARE) * wait_s)
        launches = self._launches(table, settings.kernel)
        if settings.feed == "copied":
            times, op_s, host_s = self._time_copied(table, launches, host)
            load_s, copied_gb = 0.0, float(table.bytes.sum()) / 1e9
        else:
            load_s, copy_s = self._load_batch(settings, host, speed)
            times, op_s, host_s = _time_queued(launches, host)
            times = times._replace(copy_s=copy_s)
            # The host waits once per step, for the last kernel and the loss.
            host_s, load_s = host_s + load_s, load_s + host.wake_s
            copied_gb = settings.batch_bytes / 1e9 if copy_s else 0.0
        total_s = max(float(op_s.sum()) + load_s, 1e-9)
        host_share = min(host_s / total_s, 1.0)
        timing = StepTiming(
            total_s,
            speed.scalar_power_share * host_share,
            0.0,
            (float(launches.moved_gb.sum()) + copied_gb) / total_s,
            serial_share=1.0,
            busy_share=host_share,
            load_s=load_s,
            gpu=times,
        )
        return timing, op_s

    def drawn(
        self, table: OpTable, settings: GpuSettings, speed: ComputeSpeed
    ) -> Mapping[str, Array]:
        """Return what GPU, first core and memory draw while loading and in each operation."""
        launches = self._launches(table, settings.kernel)
        waits_s = np.maximum(launches.op_s - launches.arithmetic_s, 0.0)
        # guessed: a GPU that waits for memory draws as much less as a core that does
        kernels = launches.arithmetic_s + speed.stalled_power_share * waits_s
        host_s = launches.per_op * self.profile.enqueue_us * 1e-6 / speed.first_thread_share
        moved, batch_gb, batch_s = launches.moved_gb, 0.0, 0.0
        if settings.feed == "copied":
            moved = moved + table.bytes / 1e9
            host_s = host_s + table.bytes / (self.profile.copy_gbs * 1e9)
        elif settings.feed != "preloaded":
            batch_gb = settings.batch_bytes / 1e9
            batch_s = batch_gb / self.profile.copy_gbs
        parts = {GPU: (0.0, kernels), FIRST_CORE: (batch_s, host_s), MEMORY: (batch_gb, moved)}
        return {part: np.concatenate([[load], ops]) for part, (load, ops) in parts.items()}

    def _launches(self, table: OpTable, kernel: str) -> _Launches:
        """Return the kernels of a step; only matrix products depend on the chosen kernel."""
        product, per_op, moved = table.is_product, table.launches, table.bytes
        if kernel == "packed":
            per_op = np.where(product, _PACKED_LAUNCHES * per_op, per_op)
            moved = np.where(product, moved + _PACKED_PASSES * table.read_bytes, moved)
        gflops = np.where(product, self.product_gflops(kernel), self.product_gflops("tuned"))
        arithmetic_s = table.flops / (gflops * 1e9 * table.rate_share)
        memory_s = moved / (self.profile.bandwidth_gbs * 1e9)
        op_s = np.maximum(arithmetic_s, memory_s) / self.speed_left + per_op * _KERNEL_START_S
        return _Launches(per_op, op_s, arithmetic_s, moved / 1e9)

    def _time_copied(
        self, table: OpTable, launches: _Launches, host: "_Host"
    ) -> tuple[GpuTimes, Array, float]:
        """Time operations that are awaited one by one, with copies of all operands and results."""
        count = launches.per_op
        kernel_s = launches.op_s / count
        gap_s = np.maximum(host.enqueue_s - kernel_s, 0.0) * (count - 1)
        copy_s = table.bytes / (self.profile.copy_gbs * 1e9)
        op_s = copy_s + host.enqueue_s + host.queue_s + launches.op_s + gap_s + host.wake_s
        queue_s = host.queue_s + np.minimum(gap_s, host.queue_s * (count - 1))
        times = GpuTimes(float(copy_s.sum()), float(queue_s.sum()), float(launches.op_s.sum()))
        host_s = host.enqueue_s * int(count.sum()) + times.copy_s
        return times, np.asarray(op_s), host_s

    def _load_batch(
        self, settings: GpuSettings, host: "_Host", speed: ComputeSpeed
    ) -> tuple[float, float]:
        """Return the time before the first kernel is queued, and the part of it that copies."""
        if settings.feed == "preloaded" or not settings.batch_bytes:
            return 0.0, 0.0
        if settings.feed == "mapped":  # the first thread writes, between a map and an unmap
            copy_s = settings.batch_bytes / (speed.first_thread_gbs * 1e9)
            return 2 * host.enqueue_s + copy_s, copy_s
        copy_s = settings.batch_bytes / (self.profile.copy_gbs * 1e9)
        return host.enqueue_s + copy_s, copy_s


class _Host(NamedTuple):
    """What the host adds to kernels, in seconds."""

    enqueue_s: float  # CPU time to queue a kernel
    queue_s: float  # until a kernel starts on an idle GPU
    wake_s: float  # until a thread that waited for the GPU runs again


def _time_queued(launches: _Launches, host: _Host) -> tuple[GpuTimes, Array, float]:
    """Time kernels that are queued one after another, while the GPU runs the earlier ones."""
    kernel_s = np.repeat(launches.op_s / launches.per_op, launches.per_op)
    ran_s = np.cumsum(kernel_s)
    ready_s = host.enqueue_s * np.arange(1, len(kernel_s) + 1) + host.queue_s
    # A kernel starts when it is ready and the one before it has ended.
    end_s = ran_s + np.maximum.accumulate(ready_s - (ran_s - kernel_s))
    gap_s = np.diff(end_s, prepend=0.0) - kernel_s
    queue_s = float(np.minimum(gap_s, host.queue_s).sum())
    op_s = np.diff(end_s[np.cumsum(launches.per_op) - 1], prepend=0.0)
    times = GpuTimes(0.0, max(queue_s, 0.0), float(ran_s[-1]))
    return times, np.asarray(op_s), host.enqueue_s * len(kernel_s)
