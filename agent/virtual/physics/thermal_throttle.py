"""A trip with hysteresis: one rung down while it is too hot, one rung up when it is cool again."""

from agent.virtual.profiles import ThrottleProfile

_RARE_LOOK_S = 1.0


class Throttle:
    """The step-wise thermal governor of one trip point."""

    def __init__(self, profile: ThrottleProfile) -> None:
        self.profile = profile
        self.state = 0
        self._last_c = -273.0

    @property
    def next_look_s(self) -> float:
        """Kernels look rarely until a trip is passed, then often."""
        return self.profile.poll_s if self.state else max(self.profile.poll_s, _RARE_LOOK_S)

    def poll(self, temp_c: float) -> bool:
        """Look at the zone once; say whether the state changed."""
        rising = temp_c >= self._last_c - 0.02
        self._last_c = temp_c
        if temp_c >= self.profile.trip_c and rising and self.state < self.profile.deepest:
            self.state += 1
            return True
        if temp_c < self.profile.trip_c - self.profile.hysteresis_c and self.state > 0:
            self.state -= 1
            return True
        return False

    def release(self) -> bool:
        """Let go at once, as when the enforcing daemon dies."""
        changed = self.state > 0
        self.state = 0
        return changed
