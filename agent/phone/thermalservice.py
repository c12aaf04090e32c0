"""What Android's framework tells where the kernel's nodes are closed to the shell. Pure.

`dumpsys thermalservice` becomes values under paths of their own, so that whoever reads nodes reads
these as well. Its cached part may be hours old: only what comes from the HAL counts.
"""

import re

from agent.phone.nodes import ZONES_MAX
from workloads.phone import ThermalZone
from workloads.text import safe_text

SERVICE = "thermalservice:"
STATUS = f"{SERVICE}status"  # above 0: the framework holds the phone back
_FRESH = "Current temperatures from HAL"
_STATUS = re.compile(r"^Thermal Status: (\d+)$", re.MULTILINE)
_TEMPERATURE = re.compile(
    r"Temperature\{mValue=(-?\d{1,3}(?:\.\d+)?), mType=(-?\d+), mName=([A-Za-z0-9_. -]{1,64}),"
)
_CPU, _BATTERY, _SKIN = 0, 2, 3


def is_framework(path: str) -> bool:
    """Whether a value is the framework's, not a node of the kernel."""
    return path.startswith(SERVICE)


def parse_thermalservice(text: str) -> dict[str, str]:
    """Temperatures in thousandths of a degree, and the status, each under its path."""
    status = _STATUS.search(text)
    values = {STATUS: status[1]} if status else {}
    for value, _, name in _temperatures(text):
        values[f"{SERVICE}{name}"] = str(round(float(value) * 1000))
    return values


def framework_zones(text: str) -> tuple[tuple[ThermalZone, ...], ThermalZone | None]:
    """The CPU's zones, and the one for the slow state of the phone: skin, or else battery."""
    zones: dict[int, list[ThermalZone]] = {}
    for _, kind, name in _temperatures(text):
        zone = ThermalZone(path=f"{SERVICE}{name}", type=safe_text(name, 64), scale=0.001)
        zones.setdefault(int(kind), []).append(zone)
    slow = zones.get(_SKIN, []) + zones.get(_BATTERY, [])
    return tuple(zones.get(_CPU, ())), slow[0] if slow else None


def _temperatures(text: str) -> list[tuple[str, str, str]]:
    _, fresh, told = text.partition(_FRESH)
    return _TEMPERATURE.findall(told)[:ZONES_MAX] if fresh else []
