"""`reverse:`: names inside the phone that lead out to the host, over streams the phone opens.

A name lives as long as the connection that asked for it.
"""

from collections.abc import Awaitable, Callable

from agent.virtual.adb.stream import AdbStream
from agent.virtual.network import Duplex, Network, join

OpenStream = Callable[[str], Awaitable[AdbStream | None]]
_PORTS = range(30_000, 32_000)


class Reverses:
    """What one host has reversed."""

    def __init__(self, network: Network, open_stream: OpenStream) -> None:
        self._network = network
        self._open_stream = open_stream
        self._targets: dict[str, str] = {}

    def close(self) -> None:
        """The host is gone."""
        for name in list(self._targets):
            self._remove(name)

    def answer(self, request: str) -> bytes:
        """One request of adb's, as adbd answers it."""
        verb, _, rest = request.partition(":")
        match verb:
            case "forward":
                return self._forward(rest)
            case "killforward":
                return b"OKAY" if self._remove(rest) else failure(f"listener '{rest}' not found")
            case "killforward-all":
                self.close()
                return b"OKAY"
            case "list-forward":
                rows = "".join(f"(reverse) {a} {b}\n" for a, b in self._targets.items())
                return _sized(rows)
            case _:
                return failure(f"unknown request '{verb}'")

    def _forward(self, rest: str) -> bytes:
        keep = rest.startswith("norebind:")
        name, _, target = rest.removeprefix("norebind:").partition(";")
        if not target or ":" not in name:
            return failure("bad forward")
        told = b""
        if name == "tcp:0":
            name = next(
                f"tcp:{port}" for port in _PORTS if self._network.find(f"tcp:{port}") is None
            )
            port = name.partition(":")[2]
            told = _sized(port)
        if name in self._targets:
            if keep:
                return failure("cannot rebind existing socket")
            self._remove(name)

        async def listener(peer: Duplex) -> None:
            stream = await self._open_stream(target)
            if stream is not None:
                try:
                    await join(peer, stream)
                finally:
                    stream.end()

        if not self._network.listen(name, listener):
            return failure(f"cannot bind '{name}': Address already in use")
        self._targets[name] = target
        return b"OKAY" + told

    def _remove(self, name: str) -> bool:
        found = self._targets.pop(name, None) is not None
        return found and self._network.leave(name)


def failure(text: str) -> bytes:
    return b"FAIL" + _sized(text)


def _sized(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")[:0xFFFF]
    return f"{len(raw):04x}".encode() + raw
