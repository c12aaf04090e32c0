"""A cluster: cores that share a clock, its ladder, its governor and its limits.

The clock is always a rung of the ladder, never above what user, governor and heat all allow.
"""

from bisect import bisect_left, bisect_right

from agent.virtual.profiles import ClusterProfile, KernelProfile

_STEADY_SHARE = 0.7  # of the highest clock, in the vendors' fixed-performance modes


class Cluster:
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
        """As after boot."""
        self.governor = governor
        self.steady = False
        self.kept_cores = max(len(self.cpus) // 2, 1)  # core_ctl's usual promise
        self.user_min_khz = self.ladder[0]
        self.user_max_khz = self.ladder[-1]
        self.wished_khz = self.ladder[-1]
        self.online = set(self.cpus)
        self.rung = 0

    @property
    def clock_khz(self) -> int:
        return self.ladder[self.rung]

    @property
    def cap_khz(self) -> int:
        """What heat allows, and the vendor where the clock is to be one it can keep for good."""
        rung = len(self.ladder) - 1 - self.throttle_state
        if self.steady:
            rung = min(rung, bisect_right(self.ladder, _STEADY_SHARE * self.ladder[-1]) - 1)
        return self.ladder[max(rung, 0)]

    @property
    def max_khz(self) -> int:
        """The effective limit: the least of what user and heat allow."""
        return min(self.user_max_khz, self.cap_khz)

    @property
    def min_khz(self) -> int:
        return self.max_khz if self.steady else min(self.user_min_khz, self.max_khz)

    @property
    def pace(self) -> float:
        """The clock as a share of the highest."""
        return self.clock_khz / self.ladder[-1]

    @property
    def ipc(self) -> float:
        """Scalar work a cycle, in the unit of cpu_capacity."""
        return self.profile.capacity / self.ladder[-1]

    def vote(self) -> float:
        """The share of the memory's bandwidth that this clock asks for."""
        votes = self.profile.ddr_mbs
        if votes:
            return votes[self.rung] / self.profile.ddr_top_mbs
        # Where nobody knows the table, about a third does not depend on the clock.
        return 0.35 + 0.65 * self.pace

    def shared_share(self) -> float:
        """What of the caches' and interconnect's power this cluster calls for while it works."""
        volts = self.volts() / self.profile.volts[1]
        # Little cores keep the shared caches at a low clock and voltage of their own.
        return (self.profile.capacity / 1024) ** 2 * self.pace * volts**2

    def pick_clock(self) -> None:
        """Let the governor choose for the present business (0 to 1)."""
        if self.governor == "performance":
            wish = self.max_khz
        elif self.governor == "powersave":
            wish = self.min_khz
        elif self.governor == "userspace":
            wish = self.wished_khz
        else:
            # schedutil asks for a quarter more than the load it sees; older ones end up there too.
            wish = int(1.25 * self.busy * self.ladder[-1])
        rung = self._rung_for(min(max(wish, self.min_khz), self.max_khz))
        if rung != self.rung:
            self.transitions += 1
        self.rung = rung

    def volts(self) -> float:
        """Supply voltage at the present clock, a convex curve over the ladder."""
        low, high = self.profile.volts
        place = (self.clock_khz - self.ladder[0]) / (self.ladder[-1] - self.ladder[0])
        return low + (high - low) * float(place**1.5)

    def dynamic_w(self, busy_cores: float, vector_factor: float) -> float:
        """Power of switching, for so many fully busy cores."""
        per_core = self.profile.dyn_uw_per_mhz_v2 * self.clock_khz / 1000 * self.volts() ** 2 / 1e6
        return busy_cores * per_core * vector_factor

    def leak_w(self, die_c: float) -> float:
        """Power of leaking; roughly doubles every 35 °C."""
        share = self.volts() / self.profile.volts[1]
        return self.profile.leak_w * share * float(2.0 ** ((die_c - 60.0) / 35.0))

    def _rung_for(self, khz: int) -> int:
        """The lowest rung that serves the wish, or the highest one the limit allows."""
        rung = min(bisect_left(self.ladder, khz), len(self.ladder) - 1)
        if self.ladder[rung] > self.max_khz:
            rung = max(bisect_right(self.ladder, self.max_khz) - 1, 0)
        return rung
