"""Parser for `dumpsys thermalservice`, for phones whose thermal zones the shell cannot read. Pure.

Its values get paths, so that they are read like kernel nodes. The cached part of the output may be
hours old: only the values from the HAL are used.
"""

import re
from typing import NamedTuple

from agent.phone.kernel_nodes import ZONES_MAX, plausible_temp_c
from agent.phone.thermal_zones import CPU_BELOW_BATTERY_K, ON_DIE, is_temperature, zone_place
from workloads.protocol.phone_facts import ThermalZone
from workloads.text import safe_text

SERVICE = "thermalservice:"
STATUS = f"{SERVICE}status"  # above 0: the framework throttles the phone
FROM_HAL, NEXT_PART = "Current temperatures from HAL", "Current cooling devices from HAL"
_STATUS = re.compile(r"^\s*Thermal Status: (\d)\s*$", re.MULTILINE)
TEMPERATURE = re.compile(
    r"Temperature\{mValue=(-?\d{1,3}(?:\.\d{1,9})?), mType=(-?\d{1,3}), mName=([^,{}\n]{1,64}),"
)
# Of https://android.googlesource.com/platform/hardware/interfaces thermal/aidl TemperatureType.
_CPU, _BATTERY, _SKIN, _SOC = 0, 2, 3, 13
# Samsung's own service (Sdhms) numbers the types from 1; its names are those of types or of parts.
_SDHMS = re.compile(r"^\s*Sdhms connected: yes\s*$", re.MULTILINE)
_SDHMS_TYPES = {"CPU": _CPU, "AP": _CPU, "BATTERY": _BATTERY, "BAT": _BATTERY, "SKIN": _SKIN}
# Some phones give the type of a CPU to another part: to the amplifier of the radio, or to the NPU.
_OTHER_PART = re.compile(
    r"pa\d?(thm)?\d?|.*(npu|gpu|g3d|tpu|isp|modem|wifi|wlan|charger|usb|cam|ddr|dram|pmic).*|cp",
    re.IGNORECASE,
)
_POWER_CHIP = re.compile(r"pm[a-z]{0,3}\d{3,4}[a-z]?_?(lite_)?tz", re.IGNORECASE)
_SKIN_STATUS = re.compile(r"mType=3, mName=[^,{}\n]{1,64}, mStatus=([0-6])\}")
_CPU_NAMES = {"AP"}  # of Samsung: beside the processor
_MOCK = "test "  # the sensor of emulators always shows the same
_RANGES_C = dict.fromkeys((_CPU, _SOC), (4.0, 110.0))
_RANGES_C |= dict.fromkeys((_BATTERY, _SKIN), (2.0, 65.0))
# The estimate of the surface comes first; other sensors of this type are single thermistors.
_BEST_SKIN = re.compile(r"(virtual-)?skin|type_skin", re.IGNORECASE)


class ServiceTemperature(NamedTuple):
    """One temperature of the HAL, with the type of the sensor as Android numbers it."""

    name: str
    kind: int | None
    milli_c: int


def is_thermalservice(path: str) -> bool:
    """Whether a path names a thermalservice value and not a kernel node."""
    return path.startswith(SERVICE)


def thermal_status(text: str) -> int | None:
    """How much the framework throttles: its own status, or that of a skin sensor if it is higher.

    A Xiaomi 13T Pro at a third of its clocks reports 0, and 3 with its skin temperature.
    """
    stated = _STATUS.search(text)
    if stated is None:
        return None
    sensors = "" if _SDHMS.search(text) else _current_part(text)  # its types have other numbers
    skin = [int(level) for level in _SKIN_STATUS.findall(sensors)]
    return max(int(stated[1]), *skin) if skin else int(stated[1])


def parse_thermalservice(text: str) -> dict[str, str]:
    """Temperatures in thousandths of a degree, and the thermal status, by path."""
    status = thermal_status(text)
    values = {} if status is None else {STATUS: str(status)}
    for row in service_temperatures(text):
        values[f"{SERVICE}{row.name}"] = str(row.milli_c)
    return values


def thermalservice_zones(text: str) -> tuple[tuple[ThermalZone, ...], ThermalZone | None]:
    """The zones of the CPU, else of the SoC, and the zone of the body: skin, or else battery."""
    kinds: dict[int, list[tuple[ThermalZone, float]]] = {}
    for row in service_temperatures(text):
        low_c, high_c = _RANGES_C.get(row.kind if row.kind is not None else -1, (0.0, 0.0))
        temp_c = plausible_temp_c(row.milli_c, 0.001)
        if row.kind is not None and temp_c is not None and low_c <= temp_c <= high_c:
            zone = ThermalZone(path=f"{SERVICE}{row.name}", type=row.name, scale=0.001)
            kinds.setdefault(row.kind, []).append((zone, temp_c))
    battery_c = max((temp_c for _, temp_c in kinds.get(_BATTERY, ())), default=0.0)
    cpu = kinds.get(_CPU) or kinds.get(_SOC, [])
    body = sorted(kinds.get(_SKIN, []), key=lambda at: _BEST_SKIN.fullmatch(at[0].type) is None)
    body += kinds.get(_BATTERY, [])
    return (
        tuple(zone for zone, temp_c in cpu if temp_c >= battery_c - CPU_BELOW_BATTERY_K),
        body[0][0] if body else None,
    )


def _current_part(text: str) -> str:
    return text.partition(FROM_HAL)[2].partition(NEXT_PART)[0]


def service_temperatures(text: str) -> list[ServiceTemperature]:
    """The current temperatures; of several sensors with one name none can be distinguished."""
    is_sdhms = _SDHMS.search(text.partition(FROM_HAL)[0]) is not None
    rows: dict[str, ServiceTemperature | None] = {}
    for value, kind, raw_name in TEMPERATURE.findall(_current_part(text))[:ZONES_MAX]:
        name = safe_text(raw_name, 64)
        if name.startswith(_MOCK):
            continue
        by_name = is_sdhms or name.startswith("TYPE_")
        number = _SDHMS_TYPES.get(name.removeprefix("TYPE_")) if by_name else int(kind)
        if number is not None and not _fits(name, number):
            number = None
        row = ServiceTemperature(name, number, round(float(value) * 1000))
        rows[name] = None if name in rows else row
    return [row for row in rows.values() if row is not None]


def _fits(name: str, kind: int) -> bool:
    """Whether the name of a sensor does not contradict its type."""
    place = zone_place(name)
    if kind not in {_CPU, _SOC}:
        return place not in ON_DIE and _POWER_CHIP.fullmatch(name) is None
    is_other = _OTHER_PART.fullmatch(name) is not None or place not in {None, *ON_DIE}
    return name in _CPU_NAMES or (is_temperature(name) and not is_other)
