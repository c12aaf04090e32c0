"""A thermal zone: a sensor at a place, with an offset, a grain and a little noise.

Its noise depends on the moment only, so two looks at the same instant agree.
"""

from zlib import crc32

from agent.virtual.physics.heat import PLACE
from agent.virtual.profiles import ZoneProfile

_NOISE_MC = 120
_NOISE_PERIOD_S = 0.1


class Zone:
    """One sensor."""

    def __init__(self, profile: ZoneProfile, seed: str) -> None:
        self.profile = profile
        self.role = profile.cluster
        self.place = PLACE[profile.node]
        self._offset_c = profile.offset_c
        self._hot_k_per_w = profile.hot_k_per_w
        self._grain = profile.step_mc
        self._frozen_mc = profile.frozen_mc
        self._salt = crc32(f"{seed}:{profile.type}".encode())
        self._moment = -1
        self._noise_mc = 0.0

    def read_mc(self, node_c: float, watts: float, now: float) -> int:
        """Milli-degrees as the driver reports them."""
        if self._frozen_mc is not None:
            return self._frozen_mc
        moment = int(now / _NOISE_PERIOD_S)
        if moment != self._moment:
            self._moment = moment
            mixed = (self._salt ^ moment * 2654435761) * 2246822519 >> 7
            self._noise_mc = (mixed % 2001 / 1000 - 1) * _NOISE_MC
        exact = (node_c + self._offset_c + self._hot_k_per_w * watts) * 1000
        return round((exact + self._noise_mc) / self._grain) * self._grain
