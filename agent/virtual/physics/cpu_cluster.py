"""A CPU cluster: cores that share a clock, with their frequency ladder, governor and limits.

The clock is always a rung of the ladder, at most what user, governor and throttling allow.
"""

from bisect import bisect_left, bisect_right

from agent.virtual.profiles import ClusterProfile, KernelProfile

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
        self.transitions = 0
        self.throttle_state = 0
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
    def clock_share(self) -> float:
        """Return the clock as a share of the highest."""
        return self.clock_khz / self.ladder[-1]

    @property
    def capacity_per_khz(self) -> float:
        """Return the scalar work per cycle, in the unit of cpu_capacity."""
        return self.profile.capacity / self.ladder[-1]

    def bandwidth_vote(self) -> float:
        """Return the share of the memory bandwidth that this clock requests."""
        votes_mbs = self.profile.ddr_mbs
        if votes_mbs:
            return votes_mbs[self.rung] / self.profile.ddr_top_mbs
        # If the vote table is unknown, assume that about a third does not depend on the clock.
        return 0.35 + 0.65 * self.clock_share

    def uncore_share(self) -> float:
        """Return the share of the uncore power (caches, interconnect) that this cluster causes at
        work.
        """
        volts = self.volts() / self.profile.volts[1]
        # For little cores the shared caches stay at a low clock and voltage.
        return (self.profile.capacity / 1024) ** 2 * self.clock_share * volts**2

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

    def volts(self) -> float:
        """Return the supply voltage at the present clock, a convex curve over the ladder."""
        low, high = self.profile.volts
        fraction = (self.clock_khz - self.ladder[0]) / (self.ladder[-1] - self.ladder[0])
        return low + (high - low) * float(fraction**1.5)

    def dynamic_w(self, busy_cores: float, vector_factor: float) -> float:
        """Return the dynamic power of a number of fully busy cores."""
        per_core = self.profile.dyn_uw_per_mhz_v2 * self.clock_khz / 1000 * self.volts() ** 2 / 1e6
        return busy_cores * per_core * vector_factor

    def leak_w(self, die_c: float) -> float:
        """Return the leakage power, which roughly doubles every 35 °C."""
        voltage_share = self.volts() / self.profile.volts[1]
        return self.profile.leak_w * voltage_share * float(2.0 ** ((die_c - 60.0) / 35.0))

    def _rung_for(self, khz: int) -> int:
        """Return the lowest rung that satisfies the request, or the highest within the limit."""
        rung = min(bisect_left(self.ladder, khz), len(self.ladder) - 1)
        if self.ladder[rung] > self.max_khz:
            rung = max(bisect_right(self.ladder, self.max_khz) - 1, 0)
        return rung
