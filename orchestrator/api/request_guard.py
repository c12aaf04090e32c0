"""Refuses requests before anything of them is used: wrong host, foreign web page, too large."""

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")

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
        self._names = frozenset(name.lower() for name in names)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
        app = self._app
        if _name_of(f"//{host}") not in self._names:
            app = self._refuse(421, "the API is not known by this name; see api.names in lab.toml")
        elif origin and _name_of(origin) not in self._names:
            app = self._refuse(403, "a web page of another site may not use the API")
        elif b"%00" in scope["raw_path"] + scope["query_string"]:  # PostgreSQL refuses it
            app = self._refuse(400, "the address contains a NUL character; remove it")
        await app(scope, receive, send)


def _name_of(url: str) -> str:
    try:
        name = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return name.lower()
