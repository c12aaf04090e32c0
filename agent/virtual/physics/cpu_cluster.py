"""A CPU cluster: cores that share a clock, with their frequency ladder, governor and limits.

The clock is always a rung of the ladder, at most what user, governor and throttling allow.
"""

from bisect import bisect_left, bisect_right

from agent.virtual.profiles import ClusterProfile, KernelProfile

_LEAK_SHARE = 0.5  # guessed: of the base power; the rest is caches and rails that stay awake
_CURVE_DIE_C = 40.0  # guessed: die temperature while the curves were measured
_FIXED_PERFORMANCE_SHARE = 0.7  # of the highest clock, in the vendors' fixed-performance modes


class CpuCluster:
    """The state behind one cpufreq policy; clocks in kHz."""

    def __init__(self, profile: ClusterProfile, kernel: KernelProfile) -> None:
        self.profile = profile
        self.ladder = profile.ladder_khz
        self.governors = kernel.governors
        self.cpus = profile.cpus
        self.online = set(profile.cpus)
        self.residency_s = [0.0] * len(self.ladder)
        self.counted_s = self.residency_s  # when something last changed
        self.transitions = 0
        self.throttle_state = 0
        self.hidden_rungs = 0  # that the real clock is above the shown one, by the fault injector
        self.busy = 0.0
        self.reset(kernel.governor)

    def reset(self, governor: str) -> None:
        """Reset to the state after boot."""
        self.governor = governor
        self.fixed_performance = False
        self.core_ctl_min_cpus = max(len(self.cpus) // 2, 1)  # the usual default of core_ctl
        self.user_min_khz = self.ladder[0]
        self.user_max_khz = self.ladder[-1]
        self.userspace_khz = self.ladder[-1]
        self.online = set(self.cpus)
        self.rung = 0

    @property
    def clock_khz(self) -> int:
        return self.ladder[self.rung]

    @property
    def cap_khz(self) -> int:
        """Return the highest clock that throttling and the fixed-performance mode allow."""
        rung = len(self.ladder) - 1 - self.throttle_state
        if self.fixed_performance:
            rung = min(
                rung, bisect_right(self.ladder, _FIXED_PERFORMANCE_SHARE * self.ladder[-1]) - 1
            )
        return self.ladder[max(rung, 0)]

    @property
    def max_khz(self) -> int:
        """Return the effective limit: the lower one of user's and throttling's."""
        return min(self.user_max_khz, self.cap_khz)

    @property
    def min_khz(self) -> int:
        return self.max_khz if self.fixed_performance else min(self.user_min_khz, self.max_khz)

    @property
    def capacity_per_khz(self) -> float:
        """Return the scalar work per cycle, in the unit of cpu_capacity."""
        return self.profile.capacity / self.ladder[-1]

    @property
    def counted_khz(self) -> float:
        """Return the clock that a counter of cycles sees."""
        return self.ladder[self._real_rung]

    @property
    def running_khz(self) -> float:
        """Return the clock that does the work: some steps do less work than their clock shows."""
        return self.ladder[self._real_rung] * self.profile.work_shares[self._real_rung]

    @property
    def _real_rung(self) -> int:
        return min(max(self.rung + self.hidden_rungs, 0), len(self.ladder) - 1)

    def choose_clock(self) -> None:
        """Let the governor choose the clock for the present load."""
        if self.governor == "performance":
            wanted_khz = self.max_khz
        elif self.governor == "powersave":
            wanted_khz = self.min_khz
        elif self.governor == "userspace":
            wanted_khz = self.userspace_khz
        else:
            # schedutil asks for 1.25 times the load that it sees; older governors end up there too.
            wanted_khz = int(1.25 * self.busy * self.ladder[-1])
        rung = self._rung_for(min(max(wanted_khz, self.min_khz), self.max_khz))
        if rung != self.rung:
            self.transitions += 1
        self.rung = rung

    def dynamic_w(self, busy_cores: float, vector_factor: float) -> float:
        """Return the dynamic power of a number of fully busy cores."""
        per_core_mw = self.profile.power.dynamic_mw(self.running_khz)
        return busy_cores * per_core_mw * vector_factor / 1000

    def base_w(self, die_c: float) -> float:
        """Return the static power of an active cluster; leakage doubles every 35 °C."""
        leakage = _LEAK_SHARE * float(2.0 ** ((die_c - _CURVE_DIE_C) / 35.0))
        return self.profile.power.base_mw / 1000 * (1.0 - _LEAK_SHARE + leakage)

    def _rung_for(self, khz: int) -> int:
        """Return the lowest rung that satisfies the request, or the highest within the limit."""
        rung = min(bisect_left(self.ladder, khz), len(self.ladder) - 1)
        if self.ladder[rung] > self.max_khz:
            rung = max(bisect_right(self.ladder, self.max_khz) - 1, 0)
        return rung
