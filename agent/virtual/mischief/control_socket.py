"""The control socket: accepts faults as JSON lines, with the keys of a script; only its owner can
open it.

It is independent of adb; the program that drives the phones does not know it.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.virtual.mischief.fault_type import InvalidMischief
from agent.virtual.mischief.fleet_injector import FleetInjector

_LINE_MAX = 64 * 1024
_TIMEOUT_S = 10.0


def socket_path(folder: Path) -> Path:
    return folder / "mischief.sock"


def _use_address(path: Path, use: Callable[[str], object]) -> None:
    """Use the address of a socket; a path of more than 107 bytes is none, so it is shortened."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        use(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


class ControlSocket:
    """Listens in a directory as long as the phones run."""

    def __init__(self, folder: Path, mischief: FleetInjector) -> None:
        self._path = socket_path(folder)
        self._mischief = mischief
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        _use_address(self._path, listener.bind)
        self._path.chmod(0o600)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LINE_MAX)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._respond(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # the client is gone, or its line is too long
        finally:
            writer.close()

    def _respond(self, line: bytes) -> dict[str, object]:
        try:
            entry = json.loads(line)
            return {"number": self._mischief.add_entry(entry) if entry else self._mischief.clear()}
        except InvalidMischief as error:
            return {"error": str(error), "key": error.key}
        except (ValueError, TypeError, AttributeError) as error:
            return {"error": str(error), "key": ""}


def send_entry(folder: Path, entry: Mapping[str, object]) -> int:
    """Add a fault to the phones whose control socket is in a directory; return its number.

    An empty entry ends all faults; the answer is how many there were.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        _use_address(socket_path(folder), connection.connect)
        connection.sendall(json.dumps(entry).encode() + b"\n")
        answer = json.loads(connection.makefile("rb").readline())
    if "error" in answer:
        raise InvalidMischief(str(answer["error"]), str(answer["key"]))
    return int(answer["number"])
