"""What a sweep's start temperatures mean for phones as they are now. Pure.

A phone that is cooler at rest than its start may be waits a known time; one that is warmer at rest
never starts, and the value that would pass is named.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from workloads.protocol.condition import REST, Condition
from workloads.protocol.messages import PhoneStatus
from workloads.units import format_duration

SHOWN_MAX = 5
WAIT_MIN_S = 10.0


def never_cool(conditions: Sequence[Condition], phones: Iterable[PhoneStatus]) -> Iterator[str]:
    """Return a warning for every start temperature below the rest of some phones."""
    rests_c = {phone.serial: rest_c for phone in phones if (rest_c := _rest_c(phone)) is not None}
    for start in _numbers(conditions):
        never = {serial: rest_c for serial, rest_c in rests_c.items() if rest_c >= start}
        if never:
            passed_c = math.ceil(max(never.values()) + 1)
            yield (
                f"start_temp_max_c: {start:g} is below the temperature at rest of {_list(never)}: "
                f"they never start; {passed_c} or 'rest' would pass"
            )


def start_waits(conditions: Sequence[Condition], phones: Iterable[PhoneStatus]) -> Iterator[str]:
    """Return a line for every phone that is too warm to start at once, and how long it takes."""
    waits = [line for phone in phones if (line := _wait_line(conditions, phone))]
    yield from waits[:SHOWN_MAX]
    if len(waits) > SHOWN_MAX:
        yield f"{len(waits) - SHOWN_MAX} more phones are too warm to start at once"


def _wait_line(conditions: Sequence[Condition], phone: PhoneStatus) -> str:
    rest_c, now_c = _rest_c(phone), phone.temp_c
    limits = [condition.start_limit_c(rest_c) for condition in conditions]
    known = [limit_c for limit_c in limits if limit_c is not None]
    if now_c is None or not known or now_c <= (limit_c := min(known)):
        return ""
    text = f"{phone.serial} is at {now_c:.1f} °C and may start at {limit_c:.1f} °C"
    if rest_c is None or phone.cooling is None:
        return f"{text}; how long that takes is not known yet"
    if limit_c <= rest_c:
        return ""
    fall = math.log((now_c - rest_c) / (limit_c - rest_c))
    wait_s = max(phone.cooling.time_constant_s * fall, WAIT_MIN_S)
    return f"{text}: in about {format_duration(wait_s)}"


def _rest_c(phone: PhoneStatus) -> float | None:
    """The hottest CPU zone at rest, as it was learned, else as coolings show it."""
    return phone.rest_c if phone.rest_c is not None or not phone.cooling else phone.cooling.rest_c


def _numbers(conditions: Sequence[Condition]) -> list[float]:
    starts = {condition.start_temp_max_c for condition in conditions}
    return sorted(start for start in starts if start is not None and start != REST)


def _list(rests_c: Mapping[str, float]) -> str:
    shown = [f"{serial} ({rests_c[serial]:.1f} °C)" for serial in sorted(rests_c)[:SHOWN_MAX]]
    more = len(rests_c) - SHOWN_MAX
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
