"""The graphics processor: a ladder with a cap, and the time and power of a step on it.

A step on a GPU is launches and copies first; arithmetic comes last.
"""

from agent.virtual.physics.roofline import OpTable, StepCost
from agent.virtual.profiles import GpuProfile

_GOVERNOR = {"kgsl": "msm-adreno-tz", "mali": "simple_ondemand", "nvgpu": "nvhost_podgov"}


class Gpu:
    """Clock, limits and work of one GPU; clocks in kHz."""

    def __init__(self, profile: GpuProfile) -> None:
        self.profile = profile
        self.ladder = profile.ladder_khz
        self.throttle_state = 0
        self.busy = 0.0
        self.reset()

    def reset(self) -> None:
        """As after boot."""
        self.governor = _GOVERNOR[self.profile.driver]
        self.user_min_khz, self.user_max_khz = self.ladder[0], self.ladder[-1]

    @property
    def governors(self) -> tuple[str, ...]:
        return (_GOVERNOR[self.profile.driver], "performance", "powersave", "userspace")

    @property
    def cap_khz(self) -> int:
        """What heat allows."""
        return self.ladder[max(len(self.ladder) - 1 - self.throttle_state, 0)]

    @property
    def max_khz(self) -> int:
        return min(self.user_max_khz, self.cap_khz)

    @property
    def min_khz(self) -> int:
        return min(self.user_min_khz, self.max_khz)

    @property
    def clock_khz(self) -> int:
        """Full speed while there is work, the floor while there is none."""
        runs = self.governor == "performance" or (self.busy > 0 and self.governor != "powersave")
        wish = self.max_khz if runs else self.min_khz
        return max((rung for rung in self.ladder if rung <= wish), default=self.ladder[0])

    def watts(self, die_c: float) -> float:
        """Power of switching and leaking; an idle GPU is switched off."""
        if self.busy <= 0:
            return 0.0
        low, high = self.profile.volts
        span = self.ladder[-1] - self.ladder[0]
        place = (self.clock_khz - self.ladder[0]) / span if span else 1.0
        volts = (low + (high - low) * float(place**1.5)) / high
        dynamic = self.profile.dyn_w * self.busy * self.clock_khz / self.ladder[-1] * volts**2
        return dynamic + self.profile.leak_w * volts * float(2.0 ** ((die_c - 60.0) / 35.0))

    def step_cost(self, table: OpTable, tuned: bool = True) -> StepCost:
        """One step: every operand is copied in and out, every operation is a launch."""
        profile = self.profile
        share = profile.gemm_share if tuned else profile.naive_share
        gflops = profile.peak_gflops * self.clock_khz / self.ladder[-1] * share
        compute = float((table.flops / (gflops * 1e9 * table.share)).sum())
        # A single product keeps its buffers and is timed by its own event; the engine of a network
        # queues, copies and waits around every operation.
        alone = len(table.bytes) == 1
        moved = 0.0 if alone else float(table.bytes.sum())
        copies = moved / (profile.copy_gbs * 1e9)
        launches = 0.0 if alone else len(table.bytes) * profile.launch_us * 1e-6
        total = max(compute + copies + launches, 1e-9)
        waiting = (copies + launches) / total
        return StepCost(total, 0.3 + 0.4 * waiting, 0.0, moved / 1e9 / total, waiting)
