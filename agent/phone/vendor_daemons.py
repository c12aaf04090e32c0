"""Vendor daemons that set clocks and switch cores, recognised by their service names. Pure."""

import re

PERF_DAEMONS_MAX = 32
_PERFORMANCE = re.compile(
    r"(vendor\.)?(mpdecision|perfd|perf[-_]hal[-_\d]*|perfhub|perfgenius|perfservice|miperf|fpsgo)"
)
_THERMAL = re.compile(r"(vendor\.)?(mi_|nv)?thermal(d|[-_]?(engine|hal|daemon|server|core).*)")
_SERVICE = re.compile(r"^\[init\.svc\.([A-Za-z0-9_.-]{1,64})\]: \[running\]\r?$", re.MULTILINE)


def find_perf_daemons(properties: str) -> tuple[str, ...]:
    """The running daemons that change clocks, from the output of `getprop`."""
    names = (name for name in _SERVICE.findall(properties) if is_perf_daemon(name, thermal=True))
    return tuple(sorted(set(names)))[:PERF_DAEMONS_MAX]


def is_perf_daemon(service: str, thermal: bool) -> bool:
    """Whether a service is a performance daemon or, with `thermal`, a thermal daemon."""
    if _PERFORMANCE.fullmatch(service):
        return True
    return thermal and _THERMAL.fullmatch(service) is not None
