"""Parser for `dumpsys thermalservice`, for phones whose thermal zones the shell cannot read. Pure.

Its values get paths, so that they are read like kernel nodes. The cached part of the output may be
hours old: only the values from the HAL are used.
"""

import re

from agent.phone.kernel_nodes import ZONES_MAX
from workloads.protocol.phone_facts import ThermalZone
from workloads.text import safe_text

SERVICE = "thermalservice:"
STATUS = f"{SERVICE}status"  # above 0: the framework throttles the phone
_FROM_HAL = "Current temperatures from HAL"
_STATUS = re.compile(r"^Thermal Status: (\d+)$", re.MULTILINE)
_TEMPERATURE = re.compile(
    r"Temperature\{mValue=(-?\d{1,3}(?:\.\d+)?), mType=(-?\d+), mName=([A-Za-z0-9_. -]{1,64}),"
)
_CPU, _BATTERY, _SKIN = 0, 2, 3


def is_thermalservice(path: str) -> bool:
    """Whether a path names a thermalservice value and not a kernel node."""
    return path.startswith(SERVICE)


def parse_thermalservice(text: str) -> dict[str, str]:
    """Temperatures in thousandths of a degree, and the thermal status, by path."""
    status = _STATUS.search(text)
    values = {STATUS: status[1]} if status else {}
    for value, _, name in _temperatures(text):
        values[f"{SERVICE}{name}"] = str(round(float(value) * 1000))
    return values


def thermalservice_zones(text: str) -> tuple[tuple[ThermalZone, ...], ThermalZone | None]:
    """The zones of the CPU, and the zone of the body: skin, or else battery."""
    zones: dict[int, list[ThermalZone]] = {}
    for _, kind, name in _temperatures(text):
        zone = ThermalZone(path=f"{SERVICE}{name}", type=safe_text(name, 64), scale=0.001)
        zones.setdefault(int(kind), []).append(zone)
    body = zones.get(_SKIN, []) + zones.get(_BATTERY, [])
    return tuple(zones.get(_CPU, ())), body[0] if body else None


def _temperatures(text: str) -> list[tuple[str, str, str]]:
    _, heading, current = text.partition(_FROM_HAL)
    return _TEMPERATURE.findall(current)[:ZONES_MAX] if heading else []
