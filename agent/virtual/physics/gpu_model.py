"""The GPU: a frequency ladder with limits, and the time and power of a step on it.

Most of a training step on a GPU is launches and copies; arithmetic is the smaller part.
"""

from agent.virtual.physics.step_timing import OpTable, StepTiming
from agent.virtual.profiles import GpuProfile

_GOVERNOR = {"kgsl": "msm-adreno-tz", "mali": "simple_ondemand", "nvgpu": "nvhost_podgov"}


class GpuModel:
    """Clock, limits and load of one GPU; clocks in kHz."""

    def __init__(self, profile: GpuProfile) -> None:
        self.profile = profile
        self.ladder = profile.ladder_khz
        self.throttle_state = 0
        self.busy = 0.0
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
        low, high = self.profile.volts
        span = self.ladder[-1] - self.ladder[0]
        fraction = (self.clock_khz - self.ladder[0]) / span if span else 1.0
        volts = (low + (high - low) * float(fraction**1.5)) / high
        dynamic = self.profile.dyn_w * self.busy * self.clock_khz / self.ladder[-1] * volts**2
        return dynamic + self.profile.leak_w * volts * float(2.0 ** ((die_c - 60.0) / 35.0))

    def time_step(self, table: OpTable, is_tuned: bool = True) -> StepTiming:
        """Time one step: every operand is copied in and out, every operation is a launch."""
        profile = self.profile
        peak_share = profile.gemm_share if is_tuned else profile.naive_share
        gflops = profile.peak_gflops * self.clock_khz / self.ladder[-1] * peak_share
        compute_s = float((table.flops / (gflops * 1e9 * table.rate_share)).sum())
        # A single matrix product keeps its buffers and is timed by its own event; the engine of a
        # network queues, copies and waits around every operation.
        is_single_product = len(table.bytes) == 1
        moved_bytes = 0.0 if is_single_product else float(table.bytes.sum())
        copies_s = moved_bytes / (profile.copy_gbs * 1e9)
        launches_s = 0.0 if is_single_product else len(table.bytes) * profile.launch_us * 1e-6
        total_s = max(compute_s + copies_s + launches_s, 1e-9)
        waiting_share = (copies_s + launches_s) / total_s
        return StepTiming(
            total_s, 0.3 + 0.4 * waiting_share, 0.0, moved_bytes / 1e9 / total_s, waiting_share
        )
