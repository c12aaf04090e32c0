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
from agent.phone.phone_snapshot import PhoneSnapshot, read_battery_pct, take_snapshot
from agent.phone.phone_waits import PIECE_MAX_S
from workloads.protocol.condition import Condition
from workloads.protocol.faults import BatteryLow, ConditionUnmet, SensorMissing, TooHot

SLOPE_SAMPLES_MIN = 4
SLOPE_SPAN_S = 10.0
SLOPE_WINDOW_S = 30.0
MISSING_SAMPLES_MAX = 3
FROZEN_S, FROZEN_COARSE_S = 240.0, 1200.0
FROZEN_SAMPLES = 8

CoolInterval = tuple[float, float, float]  # seconds: likely, earliest, latest


class TempSample(NamedTuple):
    """The hottest CPU zone at a moment of the phone's clock; None if no value is plausible."""

    t_s: float
    temp_c: float | None
    capped: bool = False


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
    samples: Sequence[TempSample], since_s: float, condition: Condition, fit: CoolingFit | None
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
    target_c = _limit_c(condition)
    if now.temp_c > target_c and _is_frozen(readings):
        text = f"the CPU zone stays at exactly {now.temp_c:.1f} °C; the sensor is frozen"
        return GiveUp(SensorMissing(text))
    if now.t_s - since_s > condition.cool_wait_max_s:
        waited = f"{condition.cool_wait_max_s:.0f} s of cooling"
        throttled = " and throttled" if samples[-1].capped else ""
        text = f"still {now.temp_c:.1f} °C{throttled} after {waited}; requested {target_c:.1f} °C"
        return GiveUp(TooHot(text))
    slope_max = condition.start_slope_max_c_per_min
    prediction = predict_time_to_cool(fit, target_c, slope_max) if fit else None
    return _decide_with_good_sensor(samples, readings, now.t_s - since_s, condition, prediction)


def _decide_with_good_sensor(
    samples: Sequence[TempSample],
    readings: Sequence[TempReading],
    waited_s: float,
    condition: Condition,
    prediction: TimeToCool | None,
) -> CoolEnough | KeepWaiting:
    """Decide with a sensor that works, while there is time left."""
    now, target_c = readings[-1], _limit_c(condition)
    pause_s = min(max(waited_s / 10, 2.0), 15.0)
    if now.temp_c <= target_c and samples[-1].capped:  # guard: throttled-phone-waits
        return KeepWaiting(pause_s, None)
    if now.temp_c > target_c:  # guard: hot-phone-waits
        return KeepWaiting(max(prediction.earliest_s, 1.0) if prediction else pause_s, prediction)
    recent = _recent(readings)
    if len(recent) < SLOPE_SAMPLES_MIN or now.t_s - recent[0].t_s < SLOPE_SPAN_S:
        return KeepWaiting(SLOPE_SPAN_S / (SLOPE_SAMPLES_MIN - 1) + 0.05, prediction)
    if abs(slope_c_per_min(recent)) > condition.start_slope_max_c_per_min:
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
) -> float | None:
    """Wait until the phone may start, and return its start temperature.

    `sleep` waits by the phone's clock and raises if the run is cancelled; `on_snapshot` gets every
    snapshot; `coolers` are the state nodes of the cooling devices that cap the CPUs; `power_nodes`
    show how much the phone draws at rest. A condition without a start temperature does not wait.
    """
    if condition.start_temp_max_c is None:
        return _start_at_once(phone, condition, on_snapshot)
    phone.idle_samples = []
    samples = [TempSample(reading.t_s, reading.temp_c) for reading in phone.cooling.trace]
    since_s: float | None = None
    while True:
        snapshot = take_snapshot(phone, coolers=coolers, power_nodes=power_nodes)
        since_s = snapshot.t_s if since_s is None else since_s
        if samples and snapshot.t_s < samples[-1].t_s:  # the phone has rebooted
            samples.clear()
            since_s = snapshot.t_s
        samples.append(TempSample(snapshot.t_s, snapshot.temp_c, snapshot.capped))
        check_battery(phone, snapshot, condition)
        decision = decide_start(samples, since_s, condition, None)
        if isinstance(decision, KeepWaiting):  # the fit is expensive, and only needed for waiting
            decision = decide_start(samples, since_s, condition, phone.cooling.fit())
        prediction = decision.prediction if isinstance(decision, KeepWaiting) else None
        on_snapshot(snapshot, prediction)
        if isinstance(decision, CoolEnough):
            return decision.temp_c
        if isinstance(decision, GiveUp):
            raise decision.error
        sleep(min(decision.phone_s, PIECE_MAX_S))


def cool_again(phone: Phone, condition: Condition, sleep: Callable[[float], None]) -> None:
    """Wait until the heat of the canaries is gone: the phone rested at its start temperature."""
    waited_s = 0.0
    while waited_s <= condition.cool_wait_max_s:
        temp_c = take_snapshot(phone).temp_c
        if temp_c is None or temp_c <= _limit_c(condition):
            return
        pause_s = min(max(waited_s / 10, 2.0), PIECE_MAX_S)
        sleep(pause_s)
        waited_s += pause_s
    limit = f"{_limit_c(condition):.1f} °C"
    raise TooHot(f"still {temp_c:.1f} °C {waited_s:.0f} s after the canaries; requested {limit}")


def _start_at_once(
    phone: Phone,
    condition: Condition,
    on_snapshot: Callable[[PhoneSnapshot, CoolInterval | None], None],
) -> float | None:
    snapshot = take_snapshot(phone)
    check_battery(phone, snapshot, condition)
    on_snapshot(snapshot, None)
    return snapshot.temp_c


def check_battery(phone: Phone, snapshot: PhoneSnapshot, condition: Condition) -> None:
    """Fail if the battery is known to be lower than requested."""
    level_pct = read_battery_pct(phone, snapshot)
    if level_pct is not None and level_pct < condition.battery_min_pct:
        minimum = condition.battery_min_pct
        raise BatteryLow(f"the battery is at {level_pct} %, at least {minimum} % is required")


def _limit_c(condition: Condition) -> float:
    return math.inf if condition.start_temp_max_c is None else condition.start_temp_max_c


def _recent(readings: Sequence[TempReading]) -> Sequence[TempReading]:
    """The last half minute, or the last few readings where the phone's clock runs fast."""
    newest = readings[-1].t_s
    young = [reading for reading in readings if newest - reading.t_s <= SLOPE_WINDOW_S]
    return young if len(young) >= SLOPE_SAMPLES_MIN else readings[-SLOPE_SAMPLES_MIN:]


def _is_frozen(readings: Sequence[TempReading]) -> bool:
    """Whether a hot sensor has given exactly the same number for minutes: it does not measure.

    One that counts whole degrees changes its number rarely while a phone comes to rest.
    """
    same = 1
    while same < len(readings) and readings[-1 - same].temp_c == readings[-1].temp_c:
        same += 1
    span_s = readings[-1].t_s - readings[-same].t_s
    is_coarse = all(reading.temp_c.is_integer() for reading in readings)
    return same >= FROZEN_SAMPLES and span_s >= (FROZEN_COARSE_S if is_coarse else FROZEN_S)
