"""Refuses requests before anything of them is used: wrong host, foreign web page, too large."""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
# A name, an IPv4 address or an IPv6 address in brackets; then a port or nothing.
_HOST = re.compile(
    r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<v6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?"
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse = Callable[[int, str], App]


class RequestGuard:
    """Checks the headers Host and Origin, so that no web page reaches an API on loopback.

    A malicious page can make a browser call 127.0.0.1, directly or by a name that resolves to it.
    Its requests carry that name as Host, or the page's address as Origin.
    """

    def __init__(self, app: App, names: Collection[str], refuse: Refuse) -> None:
        self._app = app
        self._names = frozenset(name.lower().strip("[]") for name in names)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        hosts, origins = (_values(scope, name) for name in (b"host", b"origin"))
        app = self._app
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._names:
            app = self._refuse(421, "the API is not known by this name; see api.names in lab.toml")
        elif any(_site_of(item) not in self._names for item in origins):
            app = self._refuse(403, "a web page of another site may not use the API")
        elif b"%00" in scope["raw_path"] + scope["query_string"]:  # PostgreSQL refuses it
            app = self._refuse(400, "the address contains a NUL character; remove it")
        await app(scope, receive, send)


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted]


def _site_of(origin: str) -> str:
    scheme, _, host = origin.partition("://")
    return _name_of(host) if scheme in ("http", "https") else ""


def _name_of(text: str) -> str:
    """Return the name or address in a header Host; nothing if it is anything else."""
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 1) not in range(1, 65_536):
        return ""
    if found["name"] is not None:
        return found["name"].lower()
    try:
        return str(ipaddress.IPv6Address(found["v6"]))
    except ValueError:
        return ""
