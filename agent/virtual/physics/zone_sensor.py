"""A thermal zone: a sensor at a place, with an offset, a grain and a little noise.

Its noise depends on the moment only, so two looks at the same instant agree.
"""

from random import Random
from zlib import crc32

from agent.virtual.physics.heat import PLACE
from agent.virtual.profiles import ZoneProfile

_NOISE_MC = 120
_NOISE_RATE = 10.0  # how often it changes, in Hz
# Drawn once for all: sensors are read far too often to draw anew. Each walks it from its own place.
_NOISE_LAST = 0x3FFF
_dice = Random("zones")
_NOISE = [_dice.uniform(-_NOISE_MC, _NOISE_MC) for _ in range(_NOISE_LAST + 1)]


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
        moment = int(now * _NOISE_RATE)
        if moment != self._moment:
            self._moment = moment
            self._noise_mc = _NOISE[moment * 40503 + self._salt & _NOISE_LAST]
        exact = (node_c + self._offset_c + self._hot_k_per_w * watts) * 1000
        return round((exact + self._noise_mc) / self._grain) * self._grain
