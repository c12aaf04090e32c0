"""A fleet with the mix of models that is found in the field: many slow phones, few fast ones.

The same count and seed always give the same fleet.
"""

import random
from dataclasses import dataclass
from functools import cache

from agent.virtual.profiles import load_profile, profile_ids

# Phones of the FLASH trace (PKU-Chengxu/FLASH, WWW 2021) by tier: 18820 low, 16428 mid, 159 high.
# At that rate a lab of a hundred phones would have no fast one, so at least one in twenty is fast.
_TIER_SHARES = {"low": 18820 / 35407, "mid": 16428 / 35407, "high": 159 / 35407}
_HIGH_SHARE_MIN = 0.05
# Within a tier, a model is as frequent as phones with its SoC are in AI Benchmark's ranking of
# January 2020: 33 with a Snapdragon 855 (two models here), 24 with an 845, 13 with an 835, 6 of the
# 730 class, 2 with a Kirin 990 4G. Newer models are not in that ranking and have weight 1.
_MODEL_WEIGHTS = {
    "meizu-16t": 16.5,
    "xiaomi-mi-9": 16.5,
    "oneplus-6": 24.0,
    "huawei-mate-30": 2.0,
    "samsung-s8-plus": 13.0,
    "redmi-note-9-pro": 3.0,
    "oneplus-nord": 3.0,
}


@dataclass(frozen=True, slots=True)
class FleetPhone:
    """One phone of a fleet."""

    profile: str
    serial: str
    seed: int  # decides how this unit differs from others of its model


def make_fleet(count: int, seed: int = 0) -> list[FleetPhone]:
    """Draw a fleet of mixed models; every phone has its own serial number and seed."""
    rng = random.Random(f"fleet:{seed}")
    tiers = _profiles_by_tier()
    shares = dict(_TIER_SHARES)
    shares["high"] = max(shares["high"], _HIGH_SHARE_MIN)
    unit_counts: dict[str, int] = {}
    fleet: list[FleetPhone] = []
    for _ in range(count):
        tier = rng.choices(list(shares), list(shares.values()))[0]
        models = tiers[tier]
        model = rng.choices(models, [_MODEL_WEIGHTS.get(name, 1.0) for name in models])[0]
        unit_counts[model] = unit_counts.get(model, 0) + 1
        serial = f"{load_profile(model).serial_prefix}{unit_counts[model]:04d}"
        fleet.append(FleetPhone(model, serial, rng.randrange(1 << 31)))
    return fleet


@cache
def _profiles_by_tier() -> dict[str, list[str]]:
    tiers: dict[str, list[str]] = {tier: [] for tier in _TIER_SHARES}
    for name in profile_ids():
        tier = load_profile(name).tier
        if tier in tiers:  # a development board is not a phone
            tiers[tier].append(name)
    return tiers
