"""A thermal zone: a temperature sensor with an offset, a resolution and a little noise.

The noise depends on the phone time only, so two reads at the same moment agree.
"""

from random import Random
from zlib import crc32

from agent.virtual.physics.heat_network import NODE_INDEX
from agent.virtual.profiles import ZoneProfile

_NOISE_MC = 120
_NOISE_RATE = 10.0  # changes per second
# Drawn once because sensors are read too often to draw each time; each zone starts elsewhere in it.
_NOISE_LAST = 0x3FFF
_rng = Random("zones")
_NOISE = [_rng.uniform(-_NOISE_MC, _NOISE_MC) for _ in range(_NOISE_LAST + 1)]


class ZoneSensor:
    """One sensor."""

    def __init__(self, profile: ZoneProfile, seed: str) -> None:
        self.profile = profile
        self.role = profile.cluster
        self.node_index = NODE_INDEX[profile.node]
        self._offset_c = profile.offset_c
        self._hotspot_k_per_w = profile.hotspot_k_per_w
        self._step_mc = profile.step_mc
        self._frozen_mc = profile.frozen_mc
        self._salt = crc32(f"{seed}:{profile.type}".encode())
        self._noise_index = -1
        self._noise_mc = 0.0

    def read_mc(self, node_c: float, watts: float, now: float) -> int:
        """Return milli-degrees as the driver reports them."""
        if self._frozen_mc is not None:
            return self._frozen_mc
        noise_index = int(now * _NOISE_RATE)
        if noise_index != self._noise_index:
            self._noise_index = noise_index
            self._noise_mc = _NOISE[noise_index * 40503 + self._salt & _NOISE_LAST]
        exact_mc = (node_c + self._offset_c + self._hotspot_k_per_w * watts) * 1000
        return round((exact_mc + self._noise_mc) / self._step_mc) * self._step_mc
