"""Cooldown: wait until a phone rests at its start temperature, and no longer.

A phone that is cool but still caps its clocks, because its body is warm, is not ready.

A missing, frozen or implausible sensor fails the attempt: a run without a known start temperature
never counts.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from agent.phone.cooling_model import (
    CoolingFit,
    TempReading,
    TimeToCool,
    predict_time_to_cool,
    slope_c_per_min,
)
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import RestTemps, resting_temp_c
from agent.phone.phone_snapshot import (
    PhoneSnapshot,
    read_battery_pct,
    take_snapshot,
    with_battery_temp,
)
from agent.phone.phone_waits import PIECE_MAX_S
from agent.phone.start_limit import StartBy, StartLimit, find_start_limit
from workloads.protocol.condition import REST, Condition
from workloads.protocol.faults import BatteryLow, ConditionUnmet, SensorMissing, TooHot

SLOPE_SAMPLES_MIN = 4
SLOPE_SPAN_S = 10.0  # readings of three times as long give the slope
# A body with a time constant of ten minutes that cools by so little is within 3 K of its rest.
UNKNOWN_REST_SLOPE, UNKNOWN_REST_SPAN_S, UNKNOWN_REST_WAIT_S = 0.3, 60.0, 900.0
MISSING_SAMPLES_MAX = 3
FROZEN_S, FROZEN_COARSE_S = 240.0, 1200.0
FROZEN_SAMPLES = 8
REST_SLOPE_MAX_C_PER_MIN = 1.0  # a phone that changes faster shows nothing of its rest

CoolInterval = tuple[float, float, float]  # seconds: likely, earliest, latest


class TempSample(NamedTuple):
    """The hottest CPU zone at a moment of the phone's clock; None if no value is plausible."""

    t_s: float
    temp_c: float | None
    capped: bool = False
    battery_c: float | None = None


class CoolEnough(NamedTuple):
    """The phone rests at its start temperature: the run may start."""

    temp_c: float


class KeepWaiting(NamedTuple):
    """Take the next sample after this many seconds of the phone's clock."""

    phone_s: float
    prediction: TimeToCool | None


class GiveUp(NamedTuple):
    """The attempt fails with this error: waiting longer would not help."""

    error: ConditionUnmet


def decide_start(
    samples: Sequence[TempSample],
    since_s: float,
    condition: Condition,
    fit: CoolingFit | None,
    start: StartLimit,
) -> CoolEnough | KeepWaiting | GiveUp:
    """Decide from all samples so far whether a run may start; waiting began at since_s."""
    missing = 0
    while missing < len(samples) and samples[-1 - missing].temp_c is None:
        missing += 1
    if missing >= MISSING_SAMPLES_MAX:
        text = f"no CPU zone gave a plausible temperature in {missing} samples"
        return GiveUp(SensorMissing(text))  # guard: missing-sensor
    if missing or not samples:
        return KeepWaiting(1.0, None)
    readings = [
        TempReading(sample.t_s, sample.temp_c) for sample in samples if sample.temp_c is not None
    ]
    now = readings[-1]
    target_c = start.max_c
    if now.temp_c > target_c and _is_frozen(readings, start.by_battery):
        text = f"the CPU zone stays at exactly {now.temp_c:.1f} °C; the sensor is frozen"
        return GiveUp(SensorMissing(text))
    if now.t_s - since_s > condition.cool_wait_max_s:
        waited = [sample for sample in samples if sample.t_s >= since_s]
        return GiveUp(TooHot(_too_hot_text(waited, condition, start)))
    slope_max = condition.start_slope_max_c_per_min
    prediction = predict_time_to_cool(fit, target_c, slope_max) if fit else None
    return _decide_with_good_sensor(
        samples, readings, now.t_s - since_s, condition, prediction, start
    )


def _too_hot_text(samples: Sequence[TempSample], condition: Condition, start: StartLimit) -> str:
    """Say how warm the phone still is, and which value would have let it start."""
    now, temps = samples[-1], [each.temp_c for each in samples if each.temp_c is not None]
    after = f" after {condition.cool_wait_max_s:.0f} s of cooling"
    if now.battery_c is not None and now.battery_c > start.battery_max_c:
        limit = f"a phone whose rest is unknown starts below {start.battery_max_c:.0f} °C"
        return f"its battery is still at {now.battery_c:.1f} °C{after}; {limit}"
    throttled = " and throttled" if now.capped else ""
    requested = "" if math.isinf(start.max_c) else f"; requested {start.max_c:.1f} °C"
    lowest_c = min(temps)
    advice = "" if lowest_c <= start.max_c else start.advice(lowest_c, condition, now.battery_c)
    return f"still {temps[-1]:.1f} °C{throttled}{after}{requested}{advice}"


def _decide_with_good_sensor(
    samples: Sequence[TempSample],
    readings: Sequence[TempReading],
    waited_s: float,
    condition: Condition,
    prediction: TimeToCool | None,
    start: StartLimit,
) -> CoolEnough | KeepWaiting:
    """Decide with a sensor that works, while there is time left."""
    now, target_c = readings[-1], start.max_c
    pause_s = min(max(waited_s / 10, 2.0), 15.0)
    is_held = samples[-1].capped or (samples[-1].battery_c or 0.0) > start.battery_max_c
    if now.temp_c <= target_c and is_held:  # guard: throttled-phone-waits
        return KeepWaiting(pause_s, None)
    if now.temp_c > target_c:  # guard: hot-phone-waits
        return KeepWaiting(max(prediction.earliest_s, 1.0) if prediction else pause_s, prediction)
    slope_max, span_s = condition.start_slope_max_c_per_min, SLOPE_SPAN_S
    if start.is_rest_unknown and waited_s < UNKNOWN_REST_WAIT_S:
        slope_max, span_s = min(slope_max, UNKNOWN_REST_SLOPE), UNKNOWN_REST_SPAN_S
    recent = _recent(readings, 3 * span_s)
    if len(recent) < SLOPE_SAMPLES_MIN or now.t_s - recent[0].t_s < span_s:
        return KeepWaiting(span_s / (SLOPE_SAMPLES_MIN - 1) + 0.05, prediction)
    if abs(slope_c_per_min(recent)) > slope_max:
        slope_s = min(max(prediction.likely_s, 1.0), 60.0) if prediction else 5.0
        return KeepWaiting(slope_s, prediction)
    return CoolEnough(now.temp_c)


def cool_down(
    phone: Phone,
    condition: Condition,
    sleep: Callable[[float], None],
    on_snapshot: Callable[[PhoneSnapshot, CoolInterval | None], None],
    coolers: Collection[str] = (),
    power_nodes: Collection[str] = (),
) -> StartLimit:
    """Wait until the phone may start, and return what it was compared with.

    `sleep` waits by the phone's clock and raises if the run is cancelled; `on_snapshot` gets every
    snapshot; `coolers` are the state nodes of the cooling devices that cap the CPUs; `power_nodes`
    show how much the phone draws at rest. A phone without a limit does not wait.
    """
    start = start_limit_of(phone, condition)
    if not start.waits:
        _start_at_once(phone, condition, on_snapshot)
        return start
    phone.idle_samples = []
    samples = [TempSample(reading.t_s, reading.temp_c) for reading in phone.cooling.trace]
    since_s: float | None = None
    while True:
        snapshot = _take_snapshot(phone, start, coolers, power_nodes)
        since_s = snapshot.t_s if since_s is None else since_s
        if samples and snapshot.t_s < samples[-1].t_s:  # the phone has rebooted
            samples.clear()
            since_s = snapshot.t_s
        temp_c = start.temp_c(snapshot)
        samples.append(TempSample(snapshot.t_s, temp_c, snapshot.capped, snapshot.battery_c))
        check_battery(phone, snapshot, condition)
        decision = decide_start(samples, since_s, condition, None, start)
        if isinstance(decision, KeepWaiting):  # the fit is expensive, and only needed for waiting
            decision = decide_start(samples, since_s, condition, phone.cooling.fit(), start)
        prediction = decision.prediction if isinstance(decision, KeepWaiting) else None
        on_snapshot(snapshot, prediction)
        if isinstance(decision, CoolEnough):
            if condition.start_slope_max_c_per_min <= REST_SLOPE_MAX_C_PER_MIN:
                rest = RestTemps(zones_c=dict(snapshot.zones_c), battery_c=snapshot.battery_c)
                phone.remember_rest(rest)
            return start
        if isinstance(decision, GiveUp):
            raise decision.error
        sleep(min(decision.phone_s, PIECE_MAX_S))


def wait_for_rest(phone: Phone, condition: Condition, sleep: Callable[[float], None]) -> None:
    """Wait until the phone's temperature is constant for minutes, and remember it as its rest.

    A phone that never settles is remembered as it is after the longest wait.
    """
    trace: list[TempReading] = []
    waited_s = 0.0
    while waited_s <= condition.cool_wait_max_s and resting_temp_c(trace) is None:
        sleep(PIECE_MAX_S)
        waited_s += PIECE_MAX_S
        snapshot = with_battery_temp(phone, take_snapshot(phone))
        temp_c = snapshot.battery_c if snapshot.temp_c is None else snapshot.temp_c
        if temp_c is None:
            return  # nothing shows its rest
        trace.append(TempReading(snapshot.t_s, temp_c))
    zones_c, battery_c = dict(snapshot.zones_c), snapshot.battery_c
    phone.remember_rest(RestTemps(zones_c=zones_c, battery_c=battery_c, waited=True))


def cool_again(
    phone: Phone, condition: Condition, start: StartLimit, sleep: Callable[[float], None]
) -> None:
    """Wait until the heat of the canaries is gone: the phone rested at its start temperature."""
    waited_s = 0.0
    while waited_s <= condition.cool_wait_max_s:
        temp_c = start.temp_c(_take_snapshot(phone, start))
        if temp_c is None or temp_c <= start.max_c:
            return
        pause_s = min(max(waited_s / 10, 2.0), PIECE_MAX_S)
        sleep(pause_s)
        waited_s += pause_s
    limit = f"{start.max_c:.1f} °C"
    raise TooHot(f"still {temp_c:.1f} °C {waited_s:.0f} s after the canaries; requested {limit}")


def start_limit_of(phone: Phone, condition: Condition) -> StartLimit:
    """What a run under a condition waits for on this phone, by what is known of it now."""
    zones, rest, battery_c = phone.facts.cpu_zones, phone.memory.rest, None
    is_known = bool(zones) and rest is not None and rest.hottest_c is not None
    if condition.start_temp_max_c == REST and not is_known:
        battery_c = with_battery_temp(phone, take_snapshot(phone)).battery_c
    return find_start_limit(condition, bool(zones), rest, battery_c)


def _take_snapshot(phone: Phone, start: StartLimit, *nodes: Collection[str]) -> PhoneSnapshot:
    snapshot = take_snapshot(phone, None, *nodes)
    return with_battery_temp(phone, snapshot) if start.by is StartBy.BATTERY else snapshot


def _start_at_once(
    phone: Phone,
    condition: Condition,
    on_snapshot: Callable[[PhoneSnapshot, CoolInterval | None], None],
) -> None:
    snapshot = take_snapshot(phone)
    check_battery(phone, snapshot, condition)
    on_snapshot(snapshot, None)


def check_battery(phone: Phone, snapshot: PhoneSnapshot, condition: Condition) -> None:
    """Fail if the battery is known to be lower than requested."""
    level_pct = read_battery_pct(phone, snapshot)
    if level_pct is not None and level_pct < condition.battery_min_pct:
        minimum = condition.battery_min_pct
        raise BatteryLow(f"the battery is at {level_pct} %, at least {minimum} % is required")


def _recent(readings: Sequence[TempReading], window_s: float) -> Sequence[TempReading]:
    """The readings of a window, or the last few ones where the phone's clock runs fast."""
    newest = readings[-1].t_s
    young = [reading for reading in readings if newest - reading.t_s <= window_s]
    return young if len(young) >= SLOPE_SAMPLES_MIN else readings[-SLOPE_SAMPLES_MIN:]


def _is_frozen(readings: Sequence[TempReading], is_slow: bool) -> bool:
    """Whether a hot sensor has given exactly the same number for minutes: it does not measure.

    One that counts whole degrees changes its number rarely while a phone comes to rest, and so does
    a battery's (`is_slow`).
    """
    same = 1
    while same < len(readings) and readings[-1 - same].temp_c == readings[-1].temp_c:
        same += 1
    span_s = readings[-1].t_s - readings[-same].t_s
    is_coarse = is_slow or all(reading.temp_c.is_integer() for reading in readings)
    return same >= FROZEN_SAMPLES and span_s >= (FROZEN_COARSE_S if is_coarse else FROZEN_S)
