"""A thermal trip with hysteresis: one rung down while too hot, one rung up when cool again."""

from agent.virtual.profiles import ThrottleProfile

_IDLE_POLL_S = 1.0


class ThermalThrottle:
    """The step-wise thermal governor of one trip point."""

    def __init__(self, profile: ThrottleProfile) -> None:
        self.profile = profile
        self.state = 0
        self._last_c = -273.0

    @property
    def poll_interval_s(self) -> float:
        """Return the polling interval: kernels poll rarely until a trip is passed, then often."""
        return self.profile.poll_s if self.state else max(self.profile.poll_s, _IDLE_POLL_S)

    def poll(self, temp_c: float) -> bool:
        """Evaluate one reading of the zone; return whether the state changed."""
        rising = temp_c >= self._last_c - 0.02
        self._last_c = temp_c
        if temp_c >= self.profile.trip_c and rising and self.state < self.profile.max_steps:
            self.state += 1
            return True
        if temp_c < self.profile.trip_c - self.profile.hysteresis_c and self.state > 0:
            self.state -= 1
            return True
        return False

    def release(self) -> bool:
        """Lift the cap at once, as when the daemon that enforces it dies."""
        changed = self.state > 0
        self.state = 0
        return changed
