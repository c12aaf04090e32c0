"""The control socket: JSON lines over a unix socket that only its owner can open.

It has nothing to do with adb; whoever drives the phones cannot find it.
"""

import asyncio
import json
import socket
from collections.abc import Mapping
from pathlib import Path

from agent.virtual.mischief.director import Mischief
from agent.virtual.mischief.effect import BadMischief

_LINE_MAX = 64 * 1024
_WAIT_S = 10.0


def socket_path(folder: Path) -> Path:
    return folder / "mischief.sock"


class ControlSocket:
    """Listens in a folder, for as long as the phones run."""

    def __init__(self, folder: Path, mischief: Mischief) -> None:
        self._path = socket_path(folder)
        self._mischief = mischief
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=_LINE_MAX)
        self._path.chmod(0o600)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # gone, or a line without end
        finally:
            writer.close()

    def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
            return {"ok": True, **self._obey(request)}
        except (BadMischief, ValueError, TypeError, AttributeError) as error:
            return {"ok": False, "error": str(error)}

    def _obey(self, request: dict[str, object]) -> dict[str, object]:
        do = request.pop("do", None)
        match do:
            case "add":
                return {"id": self._mischief.ask(request)}
            case "clear":
                number, phone = request.get("id"), request.get("phone")
                cleared = self._mischief.clear(
                    None if number is None else int(str(number)),
                    None if phone is None else str(phone),
                )
                return {"cleared": cleared}
            case "list":
                return {"mischief": self._mischief.list()}
            case "journal":
                lines = int(str(request.get("lines", 20)))
                return {"journal": self._mischief.tail(str(request.get("phone")), lines)}
            case _:
                raise BadMischief(f"do={do!r}: say add, clear, list or journal")


def ask_control(folder: Path, request: Mapping[str, object]) -> dict[str, object]:
    """Send one request to the phones whose control socket lies in a folder."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_WAIT_S)
        line.connect(str(socket_path(folder)))
        line.sendall(json.dumps(request).encode() + b"\n")
        answer = line.makefile("rb").readline()
    said = json.loads(answer)
    if not isinstance(said, dict) or not said.get("ok"):
        raise BadMischief(str(said.get("error")) if isinstance(said, dict) else "no answer")
    return said
