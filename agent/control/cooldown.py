"""The cooldown: wait until a phone rests at its start temperature, and not a second longer.

A phone that is cool but still caps its clocks (a warm body, a cautious vendor) does not rest.

A missing, frozen or absurd sensor fails closed: a run without a known start never counts. Limits
are seconds of the phone's clock; only sleeping is done in host time.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from agent.deadline import Deadline
from agent.phone.nodes import SUPPLY, first_number, hottest, parse_battery, parse_dumpsys_battery
from agent.phone.phone import CALL_S, UPTIME, Phone
from workloads.condition import Condition
from workloads.fault import BatteryLow, ConditionUnmet, SensorMissing, TooHot
from workloads.heat import CoolingFit, Reading, ReadyIn, predict_ready, slope_c_per_min

SLOPE_LOOKS_MIN = 4
SLOPE_SPAN_S = 10.0
SLOPE_WINDOW_S = 30.0
MISSED_MAX = 3
FROZEN_S = 240.0
FROZEN_LOOKS = 8
REST_LOOKS_MAX = 40
POLL_MIN_S, POLL_MAX_S = 0.05, 5.0
BATTERY_NODES = (f"{SUPPLY}/battery/capacity", f"{SUPPLY}/battery/status")


class Look(NamedTuple):
    """One look at the phone: its clock, its hottest CPU zone (None if none is believable), caps."""

    t_s: float
    temp_c: float | None
    capped: bool = False


class Ready(NamedTuple):
    """The phone rests in the start band."""

    temp_c: float


class Wait(NamedTuple):
    """Look again after so many seconds of the phone's clock."""

    phone_s: float
    ready: ReadyIn | None


class Fail(NamedTuple):
    """Waiting is of no use."""

    error: ConditionUnmet


class Glance(NamedTuple):
    """A phone's state in one round trip."""

    t_s: float
    temp_c: float | None
    battery_pct: int | None
    capped: bool = False


def decide(
    looks: Sequence[Look], since_s: float, condition: Condition, fit: CoolingFit | None
) -> Ready | Wait | Fail:
    """Say whether a run may start, from all looks so far; waiting began at since_s."""
    missed = 0
    while missed < len(looks) and looks[-1 - missed].temp_c is None:
        missed += 1
    if missed >= MISSED_MAX:
        return Fail(SensorMissing(f"No CPU zone gave a believable value in {missed} looks."))
    if missed or not looks:
        return Wait(1.0, None)
    readings = [Reading(look.t_s, look.temp_c) for look in looks if look.temp_c is not None]
    now = readings[-1]
    target = _limit_c(condition)
    if now.temp_c > target and _frozen(readings):
        return Fail(
            SensorMissing(f"The CPU zone stands still at {now.temp_c:.1f} °C: it is frozen.")
        )
    if now.t_s - since_s > condition.cool_wait_max_s:
        waited = f"{condition.cool_wait_max_s:.0f} s"
        still = ", still throttled," if looks[-1].capped else ""
        return Fail(
            TooHot(f"{now.temp_c:.1f} °C{still} after {waited} of cooling; asked {target:.1f} °C.")
        )
    ready = predict_ready(fit, target, condition.start_slope_max_c_per_min) if fit else None
    return _decide_in_time(looks, readings, now.t_s - since_s, condition, ready)


def _decide_in_time(
    looks: Sequence[Look],
    readings: Sequence[Reading],
    waited_s: float,
    condition: Condition,
    ready: ReadyIn | None,
) -> Ready | Wait:
    """The same, once it is known that the sensor is sound and the wait is not over."""
    now, target = readings[-1], _limit_c(condition)
    patience_s = min(max(waited_s / 10, 2.0), 15.0)
    if now.temp_c <= target and looks[-1].capped:
        return Wait(patience_s, None)
    if now.temp_c > target:
        return Wait(max(ready.earliest_s, 1.0) if ready else patience_s, ready)
    recent = _recent(readings)
    if len(recent) < SLOPE_LOOKS_MIN or now.t_s - recent[0].t_s < SLOPE_SPAN_S:
        return Wait(SLOPE_SPAN_S / (SLOPE_LOOKS_MIN - 1) + 0.05, ready)
    if abs(slope_c_per_min(recent)) > condition.start_slope_max_c_per_min:
        return Wait(min(max(ready.likely_s, 1.0), 60.0) if ready else 5.0, ready)
    return Ready(now.temp_c)


def glance(
    phone: Phone,
    deadline: Deadline | None = None,
    coolers: Collection[str] = (),
    power_nodes: Collection[str] = (),
) -> Glance:
    """Look at temperature, clock, battery and caps in one round trip; remember the temperature."""
    zones, body = phone.known.cpu_zones, phone.known.slow_zone
    slow = (body,) if body is not None else ()
    paths = [UPTIME, *BATTERY_NODES, *(zone.path for zone in (*zones, *slow)), *coolers]
    paths += power_nodes
    nodes = phone.read_nodes(paths, deadline or Deadline.after(CALL_S))
    t_s, temp_c = phone.note_uptime(nodes.get(UPTIME, "")), hottest(zones, nodes)
    if temp_c is not None:
        phone.heat.record(t_s, temp_c, hottest(slow, nodes))
    if power_nodes:
        rested = {path: nodes[path] for path in power_nodes if path in nodes}
        phone.rest_looks = [*phone.rest_looks[-REST_LOOKS_MAX:], (t_s, rested)]
    capped = any(first_number(nodes.get(path, "")) for path in coolers)
    return Glance(t_s, temp_c, parse_battery(nodes).level_pct, capped)


def in_host_s(ready: ReadyIn, phone: Phone) -> tuple[float, float, float]:
    """The same interval on the host's clock."""
    ratio = phone.clock.value
    return (ready.likely_s / ratio, ready.earliest_s / ratio, ready.latest_s / ratio)


def cool_down(
    phone: Phone,
    condition: Condition,
    sleep: Callable[[float], None],
    told: Callable[[Glance, tuple[float, float, float] | None], None],
    coolers: Collection[str] = (),
    power_nodes: Collection[str] = (),
) -> float | None:
    """Wait until the phone may start, and answer its start temperature.

    `sleep` sleeps host seconds and raises when the run is cancelled; `told` hears of every look;
    `coolers` are the state nodes of the cooling devices that cap the CPUs, `power_nodes` what tells
    how much the phone draws at rest. A condition that asks
    for no start temperature waits for nothing.
    """
    if condition.start_temp_max_c is None:
        return _start_as_it_is(phone, condition, told)
    phone.rest_looks = []
    looks = [Look(reading.t_s, reading.temp_c) for reading in phone.heat.trace]
    since_s: float | None = None
    while True:
        seen = glance(phone, coolers=coolers, power_nodes=power_nodes)
        since_s = seen.t_s if since_s is None else since_s
        if looks and seen.t_s < looks[-1].t_s:
            looks.clear()
            since_s = seen.t_s
        looks.append(Look(seen.t_s, seen.temp_c, seen.capped))
        check_battery(phone, seen, condition)
        decision = decide(looks, since_s, condition, None)
        if isinstance(decision, Wait):  # only who waits asks for how long
            decision = decide(looks, since_s, condition, phone.heat.fit())
        ready = decision.ready if isinstance(decision, Wait) else None
        told(seen, in_host_s(ready, phone) if ready else None)
        if isinstance(decision, Ready):
            return decision.temp_c
        if isinstance(decision, Fail):
            raise decision.error
        sleep(min(max(decision.phone_s / phone.clock.value, POLL_MIN_S), POLL_MAX_S))


def _start_as_it_is(
    phone: Phone,
    condition: Condition,
    told: Callable[[Glance, tuple[float, float, float] | None], None],
) -> float | None:
    seen = glance(phone)
    check_battery(phone, seen, condition)
    told(seen, None)
    return seen.temp_c


def battery_pct(phone: Phone, seen: Glance) -> int | None:
    """The battery's level; None where the phone does not tell."""
    if seen.battery_pct is not None:
        return seen.battery_pct
    # The nodes are hidden from the shell of some phones.
    return parse_dumpsys_battery(phone.shell(["dumpsys", "battery"]).text).level_pct


def check_battery(phone: Phone, seen: Glance, condition: Condition) -> None:
    """Fail when the battery is known to be lower than asked."""
    level_pct = battery_pct(phone, seen)
    if level_pct is not None and level_pct < condition.battery_min_pct:
        asked = condition.battery_min_pct
        raise BatteryLow(f"The battery is at {level_pct} %; asked are {asked} %.")


def _limit_c(condition: Condition) -> float:
    return math.inf if condition.start_temp_max_c is None else condition.start_temp_max_c


def _recent(readings: Sequence[Reading]) -> Sequence[Reading]:
    """The last half minute, or the last few readings where the phone's clock runs fast."""
    newest = readings[-1].t_s
    young = [reading for reading in readings if newest - reading.t_s <= SLOPE_WINDOW_S]
    return young if len(young) >= SLOPE_LOOKS_MIN else readings[-SLOPE_LOOKS_MIN:]


def _frozen(readings: Sequence[Reading]) -> bool:
    """A hot sensor that gives the very same number for minutes does not measure."""
    same = 1
    while same < len(readings) and readings[-1 - same].temp_c == readings[-1].temp_c:
        same += 1
    span = readings[-1].t_s - readings[-same].t_s
    return same >= FROZEN_LOOKS and span >= FROZEN_S
