"""How warm a phone may be when a run starts: a limit of its sweep, or relative to its rest. Pure.

Chips at rest differ by more than ten degrees, so one number for all phones keeps some from ever
starting. Until the rest of a phone is known, the temperature of its battery serves.
"""

import math
from enum import StrEnum
from typing import NamedTuple

from agent.phone.phone_memory import RestTemps
from agent.phone.phone_snapshot import PhoneSnapshot
from workloads.protocol.condition import REST, Condition

BATTERY_START_MAX_C = 36.0  # batteries of idle phones stay below this in rooms for people
ROOM_CHANGE_MIN_K = 1.5


class StartBy(StrEnum):
    """What decides when a phone is cool enough."""

    LIMIT = "limit"  # the number that the condition has
    REST = "rest"  # the temperature of each CPU zone at rest
    BATTERY = "battery"
    ANY = "any"  # nothing: no temperature is readable, or none is requested


class StartLimit(NamedTuple):
    """The highest start temperature, and what it is compared with."""

    by: StartBy = StartBy.ANY
    max_c: float = math.inf
    battery_max_c: float = math.inf
    rest: RestTemps | None = None
    by_battery: bool = False  # the battery is the thermometer: no CPU zone is readable

    @property
    def waits(self) -> bool:
        """Whether a phone can be too warm, or its temperature be watched until it is steady."""
        return self.by is not StartBy.ANY

    @property
    def is_rest_unknown(self) -> bool:
        """Whether the CPU zones are watched for longer, because their rest is not known."""
        return self.by is StartBy.BATTERY and not self.by_battery

    def as_applied(self) -> dict[str, str | float | None]:
        """What a report says about it."""
        max_c = None if math.isinf(self.max_c) else self.max_c
        rest_c = self.rest.hottest_c if self.rest else None
        return {"start_by": self.by.value, "start_max_c": max_c, "rest_c": rest_c}

    def temp_c(self, snapshot: PhoneSnapshot) -> float | None:
        """What is compared with the limit; None if the sensor gave no plausible value."""
        if self.by_battery:
            return snapshot.battery_c
        if self.by is not StartBy.REST or self.rest is None or self.rest.hottest_c is None:
            return snapshot.temp_c
        above_k = self.rest.above_k(snapshot.zones_c)
        return None if above_k is None else self.rest.hottest_c + above_k

    def advice(self, lowest_c: float, condition: Condition, battery_c: float | None) -> str:
        """Say which value would have passed, and whether the room is the reason."""
        if self.by_battery and self.rest is None:
            return "; start_temp_max_c: any would start it as it is"
        if self.by is StartBy.LIMIT:
            return f"; start_temp_max_c: {math.ceil(lowest_c + 0.5)} would have passed"
        passed_k = math.ceil(lowest_c - self.max_c + condition.above_rest_k + 0.5)
        text = f"; start_above_rest_k: {passed_k} would have passed"
        usual_c = self.rest.battery_c if self.rest else None
        if usual_c is None or battery_c is None or battery_c - usual_c < ROOM_CHANGE_MIN_K:
            return text
        return (
            f"{text}. Its battery is {battery_c - usual_c:.0f} K warmer than when its rest was "
            "learned: cool the room, or run 'farm phone commission' in this one"
        )


NO_START_LIMIT = StartLimit()


def find_start_limit(
    condition: Condition, has_zones: bool, rest: RestTemps | None, battery_c: float | None
) -> StartLimit:
    """Find what a run on a phone waits for."""
    if condition.start_temp_max_c is None:
        return NO_START_LIMIT
    if condition.start_temp_max_c != REST:
        return StartLimit(StartBy.LIMIT, condition.start_temp_max_c)
    margin_k = condition.above_rest_k
    if has_zones:
        if rest is not None and rest.hottest_c is not None:
            return StartLimit(StartBy.REST, rest.hottest_c + margin_k, rest=rest)
        return StartLimit(StartBy.BATTERY, battery_max_c=BATTERY_START_MAX_C)
    if battery_c is None:
        return NO_START_LIMIT
    known_c = rest.battery_c if rest is not None else None
    max_c = BATTERY_START_MAX_C if known_c is None else known_c + margin_k
    known = rest if known_c is not None else None
    return StartLimit(StartBy.BATTERY, max_c, rest=known, by_battery=True)
