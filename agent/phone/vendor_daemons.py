"""Vendors' daemons that set clocks and switch cores, known by their names. Pure."""

import re

OPPONENTS_MAX = 32
_PERFORMANCE = re.compile(
    r"(vendor\.)?(mpdecision|perfd|perf[-_]hal[-_\d]*|perfhub|perfgenius|perfservice|miperf|fpsgo)"
)
_THERMAL = re.compile(r"(vendor\.)?(mi_|nv)?thermal(d|[-_]?(engine|hal|daemon|server|core).*)")
_SERVICE = re.compile(r"^\[init\.svc\.([A-Za-z0-9_.-]{1,64})\]: \[running\]\r?$", re.MULTILINE)


def find_opponents(properties: str) -> tuple[str, ...]:
    """The daemons that run and meddle with clocks, from all that `getprop` prints."""
    found = (name for name in _SERVICE.findall(properties) if is_opponent(name, thermal=True))
    return tuple(sorted(set(found)))[:OPPONENTS_MAX]


def is_opponent(service: str, thermal: bool) -> bool:
    """Whether a daemon is to be stopped; with thermal, also one that guards against heat."""
    if _PERFORMANCE.fullmatch(service):
        return True
    return thermal and _THERMAL.fullmatch(service) is not None
