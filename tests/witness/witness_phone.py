"""WitnessPhone: a witness in its own namespaces, behind a forwarder that records every packet."""

import ctypes
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.witness.android_root import SHELL_GROUPS, SHELL_UID

ADBD_PORT = 5555
NEW_NET = 0x40000000
START_TIMEOUT_S = 20.0
_HEADER = struct.Struct("<6I")
_SHELL_PACKET = struct.Struct("<BI")


class Packet(NamedTuple):
    """A packet that adb's server sent to the phone."""

    connection: int
    command: str
    stream: int
    body: bytes


class WitnessPhone:
    """A phone that is switched on; close() switches it off."""

    def __init__(
        self, root: Path, layout: Path, *, uid: int = SHELL_UID, emulator: str = ""
    ) -> None:
        self.packets: list[Packet] = []
        self._root, self._layout = root, layout
        self._uid, self._emulator = uid, emulator
        self._cable = threading.Event()
        self._cable.set()
        self._closed = False
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._switch_on()
        threading.Thread(target=self._forward, name="witness", daemon=True).start()

    @property
    def address(self) -> str:
        """Its address for adb."""
        return f"127.0.0.1:{self._port}"

    def unplug(self) -> None:
        """Pull the cable."""
        self._cable.clear()
        for link in tuple(self._sockets):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def plug(self) -> None:
        """Put the cable in again."""
        self._cable.set()

    def end_adbd(self) -> None:
        """End adbd alone, as an update of its settings does."""
        os.kill(self._init, signal.SIGHUP)

    def end_everything(self) -> None:
        """End adbd with everything that it has started, as some phones do."""
        os.kill(self._init, signal.SIGUSR1)

    def reboot(self) -> None:
        """Switch off and on: processes and kernel nodes are gone, files stay."""
        self._switch_off()
        self._switch_on()

    def close(self) -> None:
        """Switch the phone off and close its port."""
        self._closed = True
        self._listener.close()
        self.unplug()
        self._switch_off()

    def shell_lines(self) -> Iterator[str]:
        """Every line that was written into a shell of the phone, in order."""
        services: dict[tuple[int, int], str] = {}
        texts: dict[tuple[int, int], bytearray] = {}
        for packet in self.packets:
            key = (packet.connection, packet.stream)
            if packet.command == "OPEN":
                services[key] = packet.body.rstrip(b"\0").decode()
            elif packet.command == "WRTE" and services.get(key, "").startswith("shell,v2"):
                texts.setdefault(key, bytearray()).extend(packet.body)
        for text in texts.values():
            yield from _stdin_of(bytes(text)).decode(errors="replace").splitlines()

    def _switch_on(self) -> None:
        (self._layout / "ready").unlink(missing_ok=True)
        settings = {
            "root": str(self._root),
            "layout": str(self._layout),
            "boot_id": str(uuid.uuid4()),
            "uid": self._uid,
            "groups": list(SHELL_GROUPS),
            "emulator": self._emulator,
            "nonce": secrets.token_hex(4),
        }
        python, folder = [sys.executable, "-S"], Path(__file__).parent
        namespaces = ["unshare", "-m", "-n", "-u", "-p", "-f", "--kill-child"]
        if self._emulator:
            namespaces = [*python, str(folder / "user_namespace.py")]
        command = [*namespaces, *python, str(folder / "phone_init.py"), json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (self._layout / "ready").exists():
            assert self._process.poll() is None, "the witness did not start"
            assert time.monotonic() < deadline, "the witness does not get ready"
            time.sleep(0.02)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._init = int(children.read_text().split()[-1])

    def _switch_off(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGTERM)
        self._process.wait(timeout=10)

    def _forward(self) -> None:
        count = 0
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._cable.is_set():
                near.close()
                continue
            count += 1
            far = self._dial()
            if far is None:
                near.close()
                continue
            for link in (near, far):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.add(link)
            for source, target, number in ((near, far, count), (far, near, 0)):
                arguments = (source, target, number)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _dial(self) -> socket.socket | None:
        """Connect to adbd inside of the phone's network namespace."""
        made: list[socket.socket] = []

        def dial() -> None:
            with Path(f"/proc/{self._init}/ns/net").open("rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), NEW_NET) != 0:
                    return
            made.append(socket.create_connection(("127.0.0.1", ADBD_PORT), timeout=5))

        def try_to_dial() -> None:
            with suppress(OSError):
                dial()

        thread = threading.Thread(target=try_to_dial)  # only this thread enters the namespace
        thread.start()
        thread.join()
        if not made:
            return None
        made[0].settimeout(None)
        return made[0]

    def _pump(self, source: socket.socket, target: socket.socket, connection: int) -> None:
        pending = bytearray()
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                if connection:
                    pending += data
                    self._record(pending, connection)
        for link in (source, target):
            self._sockets.discard(link)
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def _record(self, pending: bytearray, connection: int) -> None:
        while len(pending) >= _HEADER.size:
            command, stream, _, length, _, _ = _HEADER.unpack(pending[: _HEADER.size])
            if len(pending) < _HEADER.size + length:
                return
            name = struct.pack("<I", command).decode("latin1")
            body = bytes(pending[_HEADER.size : _HEADER.size + length])
            self.packets.append(Packet(connection, name, stream, body))
            del pending[: _HEADER.size + length]


def _stdin_of(stream: bytes) -> bytes:
    """The stdin of a shell in adb's shell protocol, version 2."""
    content = bytearray()
    while len(stream) >= _SHELL_PACKET.size:
        kind, length = _SHELL_PACKET.unpack(stream[: _SHELL_PACKET.size])
        if kind == 0:
            content += stream[_SHELL_PACKET.size : _SHELL_PACKET.size + length]
        stream = stream[_SHELL_PACKET.size + length :]
    return bytes(content)
