"""Thermal zones: which sensor is where, by a table of vendors' names and by its value. Pure.

A zone whose name is not in the table is never used as a temperature. Zone numbers change between
builds and boots, so they are not used.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from agent.phone.kernel_nodes import (
    SUPPLY,
    THERMAL,
    WHOLE_DEGREES_MAX,
    ZONES_MAX,
    parse_level_pct,
    plausible_temp_c,
    whole_number,
    with_usual_supply,
    zone_scale,
)
from workloads.protocol.phone_facts import ThermalZone
from workloads.text import TextEnum, natural_sort_key, safe_text

# Old Qualcomm kernels number their sensors and list here which of them are at a core.
SENSOR_INFO = "/sys/module/msm_thermal/sensor_info"
ZONE_NODES = (f"{THERMAL}/thermal_zone*/type", f"{THERMAL}/thermal_zone*/temp", SENSOR_INFO)


class ZonePlace(StrEnum):
    """Where a sensor is, in the order in which a sensor of the body is chosen."""

    SKIN = "skin"  # the surface, or the vendor's estimate of it
    SHELL = "shell"  # the cover or the frame
    QUIET = "quiet"  # a part of the board that no chip heats
    BOARD = "board"
    CRYSTAL = "crystal"  # of the radio: on the board, near the SoC
    BATTERY = "battery"
    CPU = "cpu"
    DIE = "die"  # on the SoC, not at a certain core


class ZoneUse(TextEnum):
    """How the probe uses a zone, or why it does not."""

    CPU = "cpu"
    BODY = "body"
    OTHER = "other", "not needed"
    NO_VALUE = "no_value", "its node is empty or not a whole number"
    IMPLAUSIBLE = "implausible", "no running phone has this temperature"
    DEFAULT_VALUE = "default_value", "several sensors show this value: they are not connected"
    OUTLIER = ("outlier", "it is far from the other sensors of the same part, or from the battery")
    STORED = "stored", "a program stored this number: others show it too, or the battery is warmer"
    NOT_TEMPERATURE = (
        "not_temperature",
        "not a temperature: a level, a voltage, a limit or an alarm",
    )
    UNKNOWN_NAME = "unknown_name", "its name is not in the table of sensors of CPU and body"


_END = r"(-(usr|therm|thermal|thmzone|tzone|zone|tz|temp|ntc|adc|sensor|monitor|tegra|pu))*"
# Names in lower case, without numbers, their words joined by '-'. The first match counts.
_NOT_TEMPERATURE = re.compile(
    # Qualcomm and Google: battery depletion in percent; a thermal governor reads it like a zone
    r"socd?(-usr)?|bcl.*|.*-bcl(-.*)?|.*-(ibat|vbat|vph)(-.*)?|vbat|ibat"
    r"|lmh-dcvs|.*-step|zeroc.*|backup-charge|battery-cycle"  # limits, copies, alarms
    r"|v?droop|soft-ocp.*|ocp.*|smpl.*|batoilo.*|uvlo.*|pmic-c|.*-emergency|.*-hotplug"  # Tensor
    r"|test.*|.*-emul|.*-limits?|socd-.*|.*-shutdown"
    r"|(.*-)?trip(-.*)?"  # cpu-hw-trip-0 of Snapdragon 8 Elite: the limit itself, 95 or 105 degrees
)
_PLACES = {
    ZonePlace.CPU: (
        # Qualcomm: cpu-0-0-usr, cpu1-gold-usr, cpuss-0-usr, apc1-cpu0-usr, cpu-1-0-1
        r"cpu(s|ss|llc|top|cl|b|l)?(-(silver|gold|prime|titanium|little|medium|mid|middle|big|core|cluster"
        r"|dsu|top|bottom|max|l))*"
        r"|apc(-(cpu|l|c))?|kryo-l|(silver|gold|prime)(-cpu)?|(cluster|cls)(-(cpu|max|l))?"
        r"|(big|little|lit|mid[hl]?|big-mid)(-?(cluster|core|cpu))?"  # Exynos, Tensor, Kirin
        r"|mngs|apollo|atlas|eagle|kfc|ananke|prometheus"  # cores of Exynos by their code names
        r"|mtktscpu|tzcpu|mtk-cpu"  # MediaTek; the newer cpu-big-core1, cpu_little1 as above
        r"|apcpu|ank|sprd-cpu"  # Unisoc
        r"|[bm]cpu|x-pkg|coretemp"  # Tegra, Intel
    ),
    ZonePlace.DIE: (
        r"tsens(-tz)?|soc-(max|dts|top|bot|bottom|thermal|thmzone)|exynos|mtkts|tzts"
        r"|therm-zone|samsung-tmu|tmu|s-p-tmu|ap-tmu|sprd-soc"
    ),
    ZonePlace.SKIN: (
        r"((virtual|sec|back|front|rear|msm|sdm|top|bottom)-)?((vt)?skin|surface)"
        r"(-(back|front|frame|msm|max))*"
    ),
    ZonePlace.SHELL: (
        r"(shell|case|cover|frame)(-(back|front|frame|max))*|(back|front|rear)(-(cover|case|shell))?"
    ),
    ZonePlace.QUIET: r"quiet|neutral",
    ZonePlace.BOARD: r"msm|sdm|mb|bd|sys|ap|board|pcb|tboard|sprd-board|mtktsap|tzbtsap|system-h",
    ZonePlace.CRYSTAL: r"xo(-therm-buf)?",
    ZonePlace.BATTERY: (
        r"((qcom|sec|main|li-ion|mtk|pm|hw)-)?(battery|batt?)(-(skin|pack|cell))?"
        r"|mtktsbattery|tzbatt(ery)?|maxfg|bms|(sec-)?fuelgauge"
    ),
}
# Most vendors write quiet-therm-usr, some therm-quiet-usr.
_TABLE = {place: re.compile(rf"(therm-)?({names}){_END}") for place, names in _PLACES.items()}
# Plausible when a phone is probed: °C at the processor, and at every other part.
_DIE_RANGE_C, _BODY_RANGE_C = (4.0, 110.0), (2.0, 65.0)
# Drivers start with one of these; not conclusive where all sensors show whole degrees.
_DEFAULT_RAWS, _DEFAULT_SHARED_BY, _FINE_ZONES = {25000, 27000}, 3, 3
# Xiaomi's thermistor beside the SoC; Tegra's CPU-therm is on the die.
_BESIDE_SOC = {"cpu_therm", "cpu-therm"}
_LAST_BATTERY = {"bms"}  # on some phones it always shows 25 degrees
_OUTLIERS_AMONG, _OUTLIER_K, _BODY_OUTLIER_K = 3, 45.0, 15.0
# Between a sensor and the battery of the same phone; a CPU is never much colder than its battery.
CPU_BELOW_BATTERY_K, _BODY_OFF_BATTERY_K = 15.0, 25.0
_STORED_PLACES, _STORED_BELOW_BATTERY_K = {ZonePlace.SKIN, ZonePlace.SHELL}, 5.0
_SAME_BATTERY_K = 6.0  # the zone `bms` of an Oppo A37 is the power chip, 10 K above the battery
_BODY_WHOLE_DEGREES_MAX = 45  # larger numbers may be tenths of a degree of a cold phone
ON_DIE = {ZonePlace.CPU, ZonePlace.DIE}
_ZONE = re.compile(rf"{THERMAL}/thermal_zone(\d{{1,4}})/type")
_SENSOR = re.compile(r"^tsens:(tsens_tz_sensor\d{1,3}):([A-Za-z0-9_]*):\d+\s*$", re.MULTILINE)


class ExaminedZone(NamedTuple):
    """A zone and its use; without a temperature, `use` is the reason."""

    zone: ThermalZone
    place: ZonePlace | None
    temp_c: float | None
    use: ZoneUse


def is_temperature(name: str) -> bool:
    """Whether a sensor of this name is not known as a level, a voltage, a limit or an alarm."""
    return _NOT_TEMPERATURE.fullmatch(_plain_name(name)) is None


def zone_place(name: str) -> ZonePlace | None:
    """Where a sensor of this name is; None: unknown, or not a temperature."""
    plain = _plain_name(name)
    if not is_temperature(name):
        return None
    if name in _BESIDE_SOC:
        return ZonePlace.DIE
    return next((place for place, names in _TABLE.items() if names.fullmatch(plain)), None)


def examine_zones(nodes: Mapping[str, str]) -> tuple[ExaminedZone, ...]:
    """Every zone of a phone, with the reason if it is not used, in the order of their numbers."""
    found = {int(match[1]): nodes[match[0]] for path in nodes if (match := _ZONE.fullmatch(path))}
    level = parse_level_pct(with_usual_supply(nodes).get(f"{SUPPLY}/battery/capacity", ""))
    numbered = sorted(found.items())[:ZONES_MAX]
    zones = [_examine(nodes, level, number, name) for number, name in numbered]
    zones = _without_default_values(nodes, zones)
    zones = _without_stored_numbers(battery_temp_c(nodes), zones)
    zones = _without_contradictions(battery_temp_c(nodes), zones)
    cpu = _choose_cpu(nodes, zones)
    body = _choose_body(zones)
    return tuple(
        zone._replace(use=ZoneUse.BODY)
        if zone is body
        else zone._replace(use=cpu.get(zone.zone.path, zone.use))
        for zone in zones
    )


def zones_in_use(zones: Sequence[ExaminedZone], use: ZoneUse) -> tuple[ThermalZone, ...]:
    """The zones that were chosen for a purpose."""
    return tuple(at.zone for at in zones if at.use is use)


def _examine(nodes: Mapping[str, str], level: int | None, number: int, name: str) -> ExaminedZone:
    path = f"{THERMAL}/thermal_zone{number}/temp"
    raw = whole_number(nodes.get(path, ""))
    scale = zone_scale(raw) if raw is not None else None
    zone = ThermalZone(path=path, type=safe_text(name, 64), scale=scale or 0.001)
    temp_c = plausible_temp_c(raw, scale) if scale is not None else None
    place = zone_place(zone.type)
    low_c, high_c = _DIE_RANGE_C if place in ON_DIE else _BODY_RANGE_C
    # A zone that is named after the SoC, and shows 100 minus the battery level.
    is_depletion = level is not None and raw == 100 - level and zone.type.lower().startswith("soc")
    if is_depletion or not is_temperature(zone.type):
        return ExaminedZone(zone, None, None, ZoneUse.NOT_TEMPERATURE)
    if raw is None:
        return ExaminedZone(zone, place, None, ZoneUse.NO_VALUE)
    if place is None:
        return ExaminedZone(zone, None, temp_c, ZoneUse.UNKNOWN_NAME)
    whole_max = WHOLE_DEGREES_MAX if place in ON_DIE else _BODY_WHOLE_DEGREES_MAX
    if temp_c is None or not low_c <= temp_c <= high_c or (scale == 1.0 and raw > whole_max):
        return ExaminedZone(zone, place, None, ZoneUse.IMPLAUSIBLE)
    return ExaminedZone(zone, place, temp_c, ZoneUse.OTHER)


def _without_default_values(
    nodes: Mapping[str, str], zones: Sequence[ExaminedZone]
) -> list[ExaminedZone]:
    """Mark sensors that show what their driver starts with, as several others do."""
    raws = {at.zone.path: whole_number(nodes.get(at.zone.path, "")) for at in zones}
    shared = Counter(raws.values())
    fine = sum(raw is not None and abs(raw) > 1000 and raw % 1000 > 0 for raw in raws.values())
    defaults = {
        raw for raw in _DEFAULT_RAWS if shared[raw] >= _DEFAULT_SHARED_BY and fine >= _FINE_ZONES
    }
    return [
        at._replace(temp_c=None, use=ZoneUse.DEFAULT_VALUE)
        if at.use is ZoneUse.OTHER and raws[at.zone.path] in defaults and at.place not in ON_DIE
        else at
        for at in zones
    ]


def _without_stored_numbers(
    battery_c: float | None, zones: Sequence[ExaminedZone]
) -> list[ExaminedZone]:
    """Mark zones of skin and shell that do not measure.

    On phones of OPPO, OnePlus and realme a daemon stores numbers in them: all of them show the same
    one, or 33.0 while the battery is at 39.4. Two sensors of one surface never agree to 0.001 K.
    """
    stored = [at for at in zones if at.use is ZoneUse.OTHER and at.place in _STORED_PLACES]
    # The highest of some zones is one of them, by its definition.
    shared = Counter(at.temp_c for at in stored if "max" not in at.zone.type.lower())

    def is_stored(at: ExaminedZone) -> bool:
        if at not in stored or at.temp_c is None:
            return False
        is_colder = battery_c is not None and at.temp_c < battery_c - _STORED_BELOW_BATTERY_K
        return is_colder or (at.place is ZonePlace.SHELL and shared[at.temp_c] > 1)

    return [at._replace(temp_c=None, use=ZoneUse.STORED) if is_stored(at) else at for at in zones]


def battery_temp_c(nodes: Mapping[str, str]) -> float | None:
    """What the fuel gauge shows, in °C, if it is possible."""
    raw = whole_number(with_usual_supply(nodes).get(f"{SUPPLY}/battery/temp", ""))
    scale = zone_scale(raw) if raw is not None else None
    if raw is None or scale is None or (scale == 1.0 and raw > _BODY_WHOLE_DEGREES_MAX):
        return None
    temp_c = plausible_temp_c(raw, scale)
    return temp_c if temp_c is not None and -10.0 <= temp_c <= _BODY_RANGE_C[1] else None


def _without_contradictions(
    battery_c: float | None, zones: Sequence[ExaminedZone]
) -> list[ExaminedZone]:
    """Mark sensors that cannot be in the same phone as its battery: another unit, or no sensor."""

    def contradicts(at: ExaminedZone) -> bool:
        if battery_c is None or at.use is not ZoneUse.OTHER or at.temp_c is None:
            return False
        if at.place in ON_DIE:
            return at.temp_c < battery_c - CPU_BELOW_BATTERY_K
        limit_k = _SAME_BATTERY_K if at.place is ZonePlace.BATTERY else _BODY_OFF_BATTERY_K
        return abs(at.temp_c - battery_c) > limit_k

    return [
        at._replace(temp_c=None, use=ZoneUse.OUTLIER) if contradicts(at) else at for at in zones
    ]


def _choose_cpu(nodes: Mapping[str, str], zones: Sequence[ExaminedZone]) -> dict[str, ZoneUse]:
    """The zones at the cores; else those of the die. Old kernels list which of these are at one."""
    usable = [at for at in zones if at.use is ZoneUse.OTHER]
    chosen = [at for at in usable if at.place is ZonePlace.CPU]
    if not chosen:
        chosen = [at for at in usable if at.place is ZonePlace.DIE]
        listed = _SENSOR.findall(nodes.get(SENSOR_INFO, ""))
        at_core = {name for name, part in listed if part.startswith("cpu")}
        chosen = [at for at in chosen if at.zone.type in at_core] or chosen
    middle = median([at.temp_c or 0.0 for at in chosen]) if chosen else 0.0
    check = len(chosen) >= _OUTLIERS_AMONG
    return {
        at.zone.path: ZoneUse.OUTLIER
        if check and abs((at.temp_c or 0.0) - middle) > _OUTLIER_K
        else ZoneUse.CPU
        for at in chosen
    }


def _choose_body(zones: Sequence[ExaminedZone]) -> ExaminedZone | None:
    """The best of the zones outside of the processor that are about as warm as the others."""
    usable = [at for at in zones if at.use is ZoneUse.OTHER and at.place not in ON_DIE]
    middle = median([at.temp_c or 0.0 for at in usable]) if usable else 0.0
    near = [at for at in usable if abs((at.temp_c or 0.0) - middle) <= _BODY_OUTLIER_K]
    order = list(ZonePlace)
    best = near if len(usable) >= _OUTLIERS_AMONG else usable

    def rank(at: ExaminedZone) -> tuple[int, bool, tuple[tuple[int, str], ...]]:
        # The display heats the front, and the processor the back. Names outlast a boot.
        name = at.zone.type.lower()
        is_last = "front" in name or name in _LAST_BATTERY
        return order.index(at.place or ZonePlace.DIE), is_last, natural_sort_key(name)

    return min(best, key=rank, default=None)


def _plain_name(name: str) -> str:
    return "-".join(re.findall(r"[a-z]+", name.lower()))
