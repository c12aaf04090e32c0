"""The door to adb: the only file that knows adbutils, and where its failures become ours.

adbutils starts a server by itself on the default port when it finds none; here it may not.
"""

import importlib.resources
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from adbutils import AdbConnection  # type: ignore[import-untyped]
from adbutils.errors import (  # type: ignore[import-untyped]
    AdbConnectionError,
    AdbError,
    AdbTimeout,
)

from agent.deadline import Deadline
from agent.phone.link import AdbDown, Link
from workloads.fault import FarmError, FarmTrouble, Hung, PhoneTrouble, Unreachable
from workloads.text import safe_text

SHARED_PORT = 5037
READY = "device"  # adb's word for a phone that takes commands
SERVER_START_S = 20.0  # a server that looks for USB phones needs 3 s and more
HOST_CALL_S = 5.0
NO_ADB = (
    "There is no adb on this host: install it (Debian: apt install adb; others: Android SDK "
    "platform-tools) or name it in ADBUTILS_ADB_PATH."
)
# PR_SET_PDEATHSIG outlives exec, so adb itself dies with the agent, even after kill -9.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 15)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn whatever adbutils and its sockets raise into a fault of ours."""
    try:
        yield
    except FarmError:
        raise
    except AdbConnectionError as error:
        raise AdbDown(f"{what}: the adb server does not answer") from error
    except (AdbTimeout, TimeoutError) as error:
        raise Hung(f"{what}: no answer in time") from error
    except (AdbError, EOFError, OSError) as error:
        raise Unreachable(f"{what}: {safe_text(error) or 'the link was lost'}") from error
    except (ValueError, struct.error, AssertionError) as error:
        raise PhoneTrouble(f"{what}: adb's answer makes no sense ({safe_text(error)})") from error


def find_adb(private: bool, named: Path | None = None) -> Path:
    """Find an adb. A private server prefers the bundled one: its version is the tested one."""
    chosen = named or os.environ.get("ADBUTILS_ADB_PATH")
    if chosen:
        if not os.access(chosen, os.X_OK):
            raise FarmTrouble(f"There is no adb at {chosen}, which the settings name.")
        return Path(chosen)
    bundled = Path(str(importlib.resources.files("adbutils.binaries") / "adb"))
    on_path = shutil.which("adb")
    found = [Path(on_path)] if on_path else []
    found = [bundled, *found] if private else [*found, bundled]
    for adb in found:
        if os.access(adb, os.X_OK):
            return adb
    raise FarmTrouble(NO_ADB)


def parse_states(text: str) -> dict[str, str]:
    """Read adb's list of phones: address and state, one a line."""
    lines = (line.split("\t") for line in text.splitlines())
    return {parts[0]: parts[1] for parts in lines if len(parts) == 2}


class _Connection(AdbConnection):  # type: ignore[misc]
    """A connection to the server that fails when there is none, instead of starting one."""

    def _safe_connect(self) -> socket.socket:
        made: socket.socket = self._create_socket()
        return made


class AdbServer:
    """An adb server: our own child when private, else the one all tools on this host share."""

    def __init__(
        self,
        home: Path,
        *,
        private: bool = True,
        port: int = 0,
        usb: bool = False,
        adb: Path | None = None,
    ) -> None:
        self.home = home
        self.private = private
        self.usb = usb
        self.port = port or (_free_port() if private else SHARED_PORT)
        self._adb = find_adb(private, adb)
        self._addresses: set[str] = set()
        self._stopping = threading.Event()
        self._keeper: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "AdbServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Have a server that answers; a shared one is started if absent and never stopped."""
        if self.private:
            self.home.mkdir(parents=True, exist_ok=True)
            # The kernel signals the child when the thread that made it ends: this one never does.
            self._keeper = threading.Thread(target=self._keep, name="adb-server", daemon=True)
            self._keeper.start()
        elif not self._answers():
            command = [str(self._adb), "-P", str(self.port), "start-server"]
            with translated("adb start-server"):
                subprocess.run(command, check=False, capture_output=True, timeout=SERVER_START_S)
        deadline = Deadline.after(SERVER_START_S)
        while not self._answers():
            if deadline.expired:
                raise FarmTrouble(f"The adb server did not start on port {self.port}.")
            time.sleep(0.01)

    def stop(self) -> None:
        """End our own server; leave a shared one alone."""
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()
        if self._keeper is not None:
            self._keeper.join(timeout=HOST_CALL_S)

    def connect(self, address: str, deadline: Deadline) -> str:
        """Bring a phone in over TCP and answer its state; adb's own words are not to be trusted."""
        self._addresses.add(address)
        state = self.list().get(address, "absent")
        if state == READY:
            return state
        with translated(f"connecting {address}"):
            # A stale entry blocks its own address, and adb never drops it by itself.
            self._ask(f"host:disconnect:{address}", deadline, may_fail=True)
            self._ask(f"host:connect:{address}", deadline)
        # 'failed to authenticate' is said 10 ms before the phone is there.
        settled = deadline.within(0.5)
        while (state := self.list().get(address, "absent")) != READY and not settled.expired:
            time.sleep(0.02)
        return state

    def disconnect(self, address: str) -> None:
        """Let a TCP phone go."""
        self._addresses.discard(address)
        with translated(f"disconnecting {address}"):
            self._ask(f"host:disconnect:{address}", Deadline.after(HOST_CALL_S), may_fail=True)

    def list(self) -> dict[str, str]:
        """Every phone that the server knows: address and state."""
        with translated("listing phones"):
            return parse_states(self._ask("host:devices", Deadline.after(HOST_CALL_S)))

    def track(self, stop: threading.Event) -> Iterator[dict[str, str]]:
        """Yield the full list whenever it changes, over every failure, until told to stop."""
        while not stop.is_set():
            try:
                yield from self._track_once(stop)
            except FarmError:
                stop.wait(0.2)

    def open(self, address: str) -> Link:
        """Make the link to a phone; nothing is sent before it is used."""
        return Link(address, self.service)

    def service(self, address: str, name: str, deadline: Deadline) -> socket.socket:
        """Open a service of the phone and hand out the bare socket.

        adbutils sleeps 10 ms whenever it closes a connection; a bare socket closes at once.
        """
        with translated(f"phone at {address}"):
            connection = self._dial(deadline)
            try:
                connection.send_command(f"host:tport:serial:{address}")
                connection.check_okay()
                connection.read_exact(8)  # the transport's id
                connection.send_command(name)
                connection.check_okay()
            except BaseException:
                connection.conn.close()
                raise
            made: socket.socket = connection.conn
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made

    def _dial(self, deadline: Deadline) -> AdbConnection:
        connection = _Connection("127.0.0.1", self.port)
        connection.conn.settimeout(max(deadline.remaining, 0.001))
        return connection

    def _ask(self, request: str, deadline: Deadline, may_fail: bool = False) -> str:
        connection = self._dial(deadline)
        with closing(connection.conn):
            connection.send_command(request)
            try:
                connection.check_okay()
                answer: str = connection.read_string_block()
            except AdbError:
                if may_fail:
                    return ""
                raise
            return answer

    def _track_once(self, stop: threading.Event) -> Iterator[dict[str, str]]:
        with translated("watching phones"):
            connection = self._dial(Deadline.after(HOST_CALL_S))
            with closing(connection.conn), DefaultSelector() as selector:
                connection.send_command("host:track-devices")
                connection.check_okay()
                selector.register(connection.conn, EVENT_READ)
                while not stop.is_set():
                    if selector.select(timeout=0.5):
                        yield parse_states(connection.read_string_block())

    def _answers(self) -> bool:
        try:
            return bool(self._ask("host:version", Deadline.after(HOST_CALL_S)))
        except (AdbError, EOFError, OSError, ValueError):
            return False

    def _keep(self) -> None:
        """Run our server, and run it again when it dies; it forgets its TCP phones then."""
        environment = os.environ | {
            "HOME": str(self.home),
            "ANDROID_ADB_LOG_PATH": str(self.home / "adb.log"),
            "ADB_USB": "1" if self.usb else "0",
            "ADB_EMU": "0",
        }
        launcher = [sys.executable, "-S", "-E", "-c", _DIE_WITH_PARENT]
        command = [*launcher, str(self._adb), "-P", str(self.port), "nodaemon", "server"]
        while not self._stopping.is_set():
            with (self.home / "server.log").open("ab") as log:
                self._child = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            if self._stopping.is_set():
                self._child.terminate()
            threading.Thread(target=self._bring_back, daemon=True).start()
            self._child.wait()
            self._stopping.wait(0.1)

    def _bring_back(self) -> None:
        deadline = Deadline.after(SERVER_START_S)
        while not self._answers() and not deadline.expired:
            time.sleep(0.02)
        for address in tuple(self._addresses):
            try:
                self.connect(address, Deadline.after(HOST_CALL_S))
            except FarmError:
                continue  # whoever watches the list tries again


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
