"""The phone's power statistics: the energy of each rail since boot, readable without root. Pure.

Pixels since the Pixel 6 print them with `dumpsys` (AIDL HAL), older ones with `lshal` (HIDL HAL):
https://github.com/LineageOS/android_hardware_google_pixel/blob/ba5e7ac6/powerstats/PowerStatsAidl.cpp
https://android.googlesource.com/platform/hardware/google/pixel/+/android11-release/powerstats/
Two of their traits are guarded against. With the argument `delta` they print the increase since the
last such call of *any* caller, so it is never passed. Totals go through float32, so they become
coarser the longer the phone is up: see `resolution_j`.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from math import frexp, ldexp
from typing import NamedTuple

from agent.phone.phone_paths import UPTIME
from workloads.protocol.phone_facts import PowerStatsHal
from workloads.protocol.telemetry import CumulativeSeries

# A service that hangs must not end the run.
_AIDL = ("dumpsys", "-t", "2", "android.hardware.power.stats.IPowerStats/default")
_COMMANDS = {
    PowerStatsHal.AIDL: _AIDL,
    PowerStatsHal.HIDL: ("lshal", "debug", "android.hardware.power.stats@1.0::IPowerStats/default"),
}
RAILS_MAX = 64
ROUNDING_SHARE_MAX = 0.02  # of an energy; one that is rounded more is not given
DUMP_MAX_S = 0.5  # a reading that took longer has no certain moment
# Rails of LDO regulators are fed by the bucks that are metered too, and a VBATT rail by all.
# Google adds the same kinds up to PARTIAL_SYSTEM_POWER in thermal_info_config.json of Pixel phones.
_FED_BY_OTHERS = re.compile(r"L\d+[A-Z]?_.*|.*VBATT.*")
_TABLE = re.compile(
    r"=+ PowerStats HAL (?:2\.0 energy meter|1\.0 rail energy data) =+\n"
    r"(.*?)^=+ End of PowerStats HAL",
    re.DOTALL | re.MULTILINE,
)
# [RAIL]:SUBSYSTEM or RAIL, or SUBSYSTEM and RAIL; then the total.
_ROW = re.compile(
    r"^ +(?:\[([^\]\n]{1,64})\]:\S*|(?:\S+ +)?([^\s\[\]]{1,64})) +(\d{1,15}\.\d\d) mWs\b",
    re.MULTILINE,
)
_MOMENT = re.compile(r"^(\d{1,10}\.\d\d) \d{1,12}\.\d\d$", re.MULTILINE | re.ASCII)
_NOT_A_NAME = re.compile(r"\W", re.ASCII)


class RailTotals(NamedTuple):
    """The energy of every rail since boot, in joules, at a moment of the phone's clock."""

    t_ns: int
    joules: dict[str, float]


def parse_power_stats(text: str) -> dict[str, float]:
    """Parse the totals of all rails, in joules; empty if there is no complete table of them."""
    table = _TABLE.search(text)
    rows = _ROW.findall(table[1]) if table else []
    names = [_NOT_A_NAME.sub("_", bracketed or plain)[:40] for bracketed, plain, _ in rows]
    if len({*names}) < len(names) or len(names) > RAILS_MAX:
        return {}
    return {name: float(row[2]) / 1e3 for name, row in zip(names, rows, strict=True)}


def resolution_j(joules: float) -> float:
    """The distance between two totals that float32 and two decimals can tell apart."""
    return max(10.0, ldexp(1.0, frexp(joules * 1e6)[1] - 24)) / 1e6


def reading_script(hal: PowerStatsHal) -> str:
    """The shell line that prints one reading for parse_readings_log; residencies are left out."""
    dump = f"{shlex.join(_COMMANDS[hal])} </dev/null 2>/dev/null | grep -E 'mWs|==='"
    return f"cat {UPTIME}; {dump}; cat {UPTIME}"


def parse_readings_log(text: str) -> list[RailTotals]:
    """Parse readings one after the other; those that were slow, torn or have other rails are left
    out.
    """
    moments = list(_MOMENT.finditer(text))
    totals: list[RailTotals] = []
    for before, after in zip(moments[::2], moments[1::2], strict=False):
        start_s, end_s = float(before[1]), float(after[1])
        joules = parse_power_stats(text[before.end() : after.start()])
        if not joules or not 0 <= end_s - start_s <= DUMP_MAX_S:
            continue
        t_ns = round((start_s + end_s) / 2 * 1e9)
        if totals and (t_ns <= totals[-1].t_ns or joules.keys() != totals[-1].joules.keys()):
            continue
        totals.append(RailTotals(t_ns, joules))
    return totals


def rails_to_add_up(names: Iterable[str]) -> list[str]:
    """The rails that are not fed by other rails: together the metered part of the phone."""
    return [name for name in names if _FED_BY_OTHERS.fullmatch(name) is None]


def add_up_rails(totals: Sequence[RailTotals]) -> tuple[CumulativeSeries, float]:
    """The energy of all rails since the first reading, and how far it may be rounded, in joules."""
    series = rail_totals_series(totals)
    rails = [series[rail] for rail in rails_to_add_up(series)]
    if not rails:
        return CumulativeSeries([], []), 0.0
    sums = [sum(values) for values in zip(*(rail.total for rail in rails), strict=True)]
    rounding_j = sum(resolution_j(rail.total[-1]) for rail in rails)
    return CumulativeSeries(rails[0].t_ns, [total - sums[0] for total in sums]), rounding_j


def rail_totals_series(totals: Sequence[RailTotals]) -> dict[str, CumulativeSeries]:
    """The total of each rail over time; empty if a counter went back, as after a restart."""
    if len(totals) < 2:
        return {}
    moments = [reading.t_ns for reading in totals]
    series = {}
    for rail in totals[0].joules:
        joules = [reading.joules[rail] for reading in totals]
        if joules != sorted(joules):
            return {}
        series[rail] = CumulativeSeries(moments, joules)
    return series
