"""Vendor daemons that set clocks and switch cores, recognised by their service names. Pure."""

import re
from collections.abc import Iterable

PERF_DAEMONS_MAX = 32
_HAL = r"([-_]hal)?[-_\d.]*"
_PERFORMANCE = re.compile(
    rf"(vendor\.)?(mpdecision|perfd|perf\d?[-_]hal[-_\d]*|perfhub|(perfgenius|uniperf){_HAL}"
    r"|perfservice|miperf|fpsgo|mtkpower.*|urcc([-_]hal.*)?|oiface|gameopt([-_]hal.*)?)"
)
_THERMAL = re.compile(
    r"(vendor\.)?horae|(vendor\.)?(mi_|nv)?thermal(d|loadalgod|_manager|[-_]?(engine|hal|daemon|server|core).*)?"
)
_SERVICE = re.compile(r"^\[init\.svc\.([A-Za-z0-9_.-]{1,64})\]: \[running\]\r?$", re.MULTILINE)


def running_services(properties: str) -> tuple[str, ...]:
    """The running services of init, from the output of `getprop`."""
    return tuple(sorted(set(_SERVICE.findall(properties))))


def find_perf_daemons(services: Iterable[str]) -> tuple[str, ...]:
    """Those of the running services that change clocks."""
    names = (name for name in services if is_perf_daemon(name, thermal=True))
    return tuple(sorted(set(names)))[:PERF_DAEMONS_MAX]


def is_perf_daemon(service: str, thermal: bool) -> bool:
    """Whether a service is a performance daemon or, with `thermal`, a thermal daemon."""
    if _PERFORMANCE.fullmatch(service):
        return True
    return thermal and _THERMAL.fullmatch(service) is not None
