"""Thermal policies: a table of rungs with hysteresis, or the kernel's step-wise governor."""

from math import exp

from agent.virtual.profiles import ThrottleProfile

_IDLE_POLL_S = 1.0


class ThermalThrottle:
    """The state of one policy: how many steps below the top its clusters run."""

    def __init__(self, profile: ThrottleProfile, most_steps: int) -> None:
        self.profile = profile
        self._most_steps = most_steps
        self.state = 0
        self._rung = 0  # in force; 0: none
        self._last_c: float | None = None  # the average that the policy acts on
        self._last_at = 0.0

    @property
    def poll_interval_s(self) -> float:
        """Return the polling interval: kernels poll rarely until a trip is passed, then often."""
        return self.profile.poll_s if self.state else max(self.profile.poll_s, _IDLE_POLL_S)

    def poll(self, temp_c: float, now: float) -> bool:
        """Evaluate one reading of the zone; return whether the state changed."""
        last_c = self._last_c
        if last_c is not None and self.profile.lag_s:
            temp_c += (last_c - temp_c) * exp((self._last_at - now) / self.profile.lag_s)
        self._last_c, self._last_at = temp_c, now
        before = self.state
        if self.profile.rungs:
            self._follow_rungs(temp_c)
        else:
            self._step(temp_c, last_c is None or temp_c >= last_c - 0.02)
        return self.state != before

    def release(self) -> bool:
        """Lift the cap at once, as when the daemon that enforces it dies."""
        changed = self.state > 0
        self.state = self._rung = 0
        return changed

    def _follow_rungs(self, temp_c: float) -> None:
        rungs = self.profile.rungs
        passed = sum(temp_c >= rung.trip_c for rung in rungs)
        while self._rung > passed:
            if temp_c >= rungs[self._rung - 1].trip_c - self.profile.hysteresis_c:
                break
            self._rung -= 1
        self._rung = max(self._rung, passed)
        self.state = rungs[self._rung - 1].steps if self._rung else 0

    def _step(self, temp_c: float, rising: bool) -> None:
        if temp_c >= self.profile.trip_c and rising:
            self.state = min(self.state + 1, self._most_steps)
        elif temp_c < self.profile.trip_c - self.profile.hysteresis_c and self.state > 0:
            self.state -= 1
