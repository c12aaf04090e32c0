"""A thermal zone: a sensor at a place, with an offset, a grain and a little noise.

Its noise depends on the moment only, so two looks at the same instant agree.
"""

from zlib import crc32

from agent.virtual.profiles import ZoneProfile

_NOISE_MC = 120
_NOISE_PERIOD_S = 0.1


class Zone:
    """One sensor."""

    def __init__(self, profile: ZoneProfile, seed: str) -> None:
        self.profile = profile
        self._salt = crc32(f"{seed}:{profile.type}".encode())

    def read_mc(self, node_c: float, watts: float, now: float) -> int:
        """Milli-degrees as the driver reports them."""
        if self.profile.frozen_mc is not None:
            return self.profile.frozen_mc
        exact = (node_c + self.profile.offset_c + self.profile.hot_k_per_w * watts) * 1000
        moment = crc32(str(int(now / _NOISE_PERIOD_S)).encode(), self._salt)
        noise = (moment % 2001 / 1000 - 1) * _NOISE_MC
        grain = self.profile.step_mc
        return round((exact + noise) / grain) * grain
