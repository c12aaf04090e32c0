"""A fleet as one meets it: many slow phones, some middling ones, few fast ones.

The same number and seed always make the same fleet.
"""

import random
from dataclasses import dataclass
from functools import cache

from agent.virtual.profiles import load_profile, profile_ids

# Phones of the FLASH trace (PKU-Chengxu/FLASH, WWW 2021) by tier: 18820 low, 16428 mid, 159 high.
# A lab of a hundred would then hold no fast phone at all; one in twenty is as far as we bend it.
_SHARES = {"low": 18820 / 35407, "mid": 16428 / 35407, "high": 159 / 35407}
_HIGH_AT_LEAST = 0.05
# Within a tier a model is met as often as phones with its SoC are in AI Benchmark's ranking of
# January 2020: 33 with a Snapdragon 855 (two models here), 24 with an 845, 13 with an 835, 6 of the
# 730 class, 2 with a Kirin 990 4G. Newer ones are not in it and count as one.
_WEIGHTS = {
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
    seed: int  # of what makes this unit differ from its siblings


def make_fleet(count: int, seed: int = 0) -> list[FleetPhone]:
    """So many phones of mixed models, each with a serial and a seed of its own."""
    dice = random.Random(f"fleet:{seed}")
    tiers = _tiers()
    shares = dict(_SHARES)
    shares["high"] = max(shares["high"], _HIGH_AT_LEAST)
    made: dict[str, int] = {}
    fleet: list[FleetPhone] = []
    for _ in range(count):
        tier = dice.choices(list(shares), list(shares.values()))[0]
        models = tiers[tier]
        model = dice.choices(models, [_WEIGHTS.get(name, 1.0) for name in models])[0]
        made[model] = made.get(model, 0) + 1
        serial = f"{load_profile(model).serial_prefix}{made[model]:04d}"
        fleet.append(FleetPhone(model, serial, dice.randrange(1 << 31)))
    return fleet


@cache
def _tiers() -> dict[str, list[str]]:
    tiers: dict[str, list[str]] = {tier: [] for tier in _SHARES}
    for name in profile_ids():
        tier = load_profile(name).tier
        if tier in tiers:  # a board is no phone
            tiers[tier].append(name)
    return tiers
