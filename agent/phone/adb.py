"""AdbServer: the only module that uses adbutils, and where its errors become faults of Farmhand.

adbutils starts a server on the default port if it finds none; that is prevented here.
"""

import importlib.resources
import os
import re
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
from agent.phone.shell_link import AdbDown, ShellLink
from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts
from workloads.protocol.faults import FarmError, FarmTrouble, Hung, PhoneTrouble, Unreachable
from workloads.protocol.unusable_phone import READY
from workloads.text import safe_text

SHARED_PORT = 5037
ABSENT = "absent"  # adb does not list the phone
NO_ADB = (
    "adb was not found on this host; install it (Debian: apt install adb; others: Android SDK "
    "platform-tools) or set ADBUTILS_ADB_PATH to its path"
)
_PAIRED = re.compile(r"\[guid=([A-Za-z0-9_-]{1,63})\]")
_SERVICE = re.compile(
    r"^([A-Za-z0-9_-]{1,63})\t_adb-tls-connect\._tcp\.?\t(\d[\d.]{6,14}:\d{1,5})$", re.MULTILINE
)
# PR_SET_PDEATHSIG survives exec, so that adb dies with the agent, even after kill -9.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 15)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@contextmanager
def translate_adb_errors(what: str) -> Iterator[None]:
    """Turn every error of adbutils and its sockets into a fault of Farmhand."""
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
        raise PhoneTrouble(f"{what}: adb sent an invalid reply ({safe_text(error)})") from error


def find_adb(private: bool, named: Path | None = None) -> Path:
    """Find an adb. A private server prefers the bundled one, whose version is tested."""
    chosen = named or os.environ.get("ADBUTILS_ADB_PATH")
    if chosen:
        if not os.access(chosen, os.X_OK):
            raise FarmTrouble(f"{chosen} is not an executable adb; correct ADBUTILS_ADB_PATH")
        return Path(chosen)
    bundled = Path(str(importlib.resources.files("adbutils.binaries") / "adb"))
    on_path = shutil.which("adb")
    candidates = [Path(on_path)] if on_path else []
    candidates = [bundled, *candidates] if private else [*candidates, bundled]
    for adb in candidates:
        if os.access(adb, os.X_OK):
            return adb
    raise FarmTrouble(NO_ADB)


def parse_phone_states(text: str) -> dict[str, str]:
    """Parse adb's list of phones: one line per phone, with address and state."""
    lines = (line.split("\t") for line in text.splitlines())
    return {parts[0]: parts[1] for parts in lines if len(parts) == 2}


class _Connection(AdbConnection):  # type: ignore[misc]
    """A connection that fails if there is no server, instead of starting one."""

    def _safe_connect(self) -> socket.socket:
        connected: socket.socket = self._create_socket()
        return connected


class AdbServer:
    """An adb server: a private child process, or the one that all tools of this host share."""

    def __init__(
        self,
        home: Path,
        *,
        private: bool = True,
        port: int = 0,
        usb: bool = False,
        adb: Path | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.home = home
        self.private = private
        self.usb = usb
        self.port = port or (_free_port() if private else SHARED_PORT)
        self._adb = find_adb(private, adb)
        self._timeouts = timeouts
        self._addresses: set[str] = set()
        self._stopping = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "AdbServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make sure that a server answers; a shared one is started if absent and never stopped."""
        if self.private:
            self.home.mkdir(parents=True, exist_ok=True)
            # The kernel signals the child when the thread that started it ends; this one stays.
            self._supervisor = threading.Thread(
                target=self._supervise, name="adb-server", daemon=True
            )
            self._supervisor.start()
        elif not self._answers():
            command = [str(self._adb), "-P", str(self.port), "start-server"]
            limit_s = self._timeouts.adb_start_timeout_s
            with translate_adb_errors("adb start-server"):
                subprocess.run(command, check=False, capture_output=True, timeout=limit_s)
        deadline = Deadline.after(self._timeouts.adb_start_timeout_s)
        while not self._answers():
            if deadline.expired:
                raise FarmTrouble(f"the adb server did not start on port {self.port}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop a private server; leave a shared one running."""
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()
        if self._supervisor is not None:
            self._supervisor.join(timeout=self._timeouts.adb_request_timeout_s)

    @property
    def pid(self) -> int | None:
        """The process id of a private server; None while there is none."""
        return None if self._child is None else self._child.pid

    def kill(self) -> None:
        """Kill a private server, which is then started again."""
        assert self._child is not None, "only a private server that was started can be killed"
        self._child.kill()

    def connect(self, address: str, deadline: Deadline) -> str:
        """Connect a phone over TCP and return its state; what adb prints is not reliable."""
        self._addresses.add(address)
        state = self.list().get(address, ABSENT)
        if state == READY:
            return state
        with translate_adb_errors(f"connecting {address}"):
            # A stale entry blocks its address, and adb never removes it by itself.
            self._request(f"host:disconnect:{address}", deadline, may_fail=True)
            self._request(f"host:connect:{address}", deadline)
        # adb prints 'failed to authenticate' 10 ms before the phone is ready.
        settled = deadline.within(0.5)
        while (state := self.list().get(address, ABSENT)) != READY and not settled.expired:
            time.sleep(0.02)
        return state

    def pair(self, address: str, code: str, deadline: Deadline) -> str:
        """Pair with a phone that shows a code (Android 11), and return where it can be reached.

        That is the address that the phone announces by mDNS: some versions of adb (36.0.0) connect
        to the name of a service only if it is announced after the pairing.
        """
        with translate_adb_errors(f"pairing with {address}"):
            connection = self._dial(deadline)
            with closing(connection.conn):
                connection.send_command(f"host:pair:{code}:{address}")
                connection.check_okay()
                length = connection.read_string(4)
                if length in {"OKAY", "FAIL"}:  # a second status; its text says the same
                    length = connection.read_string(4)
                reply = connection.read_string(int(length, 16))
        paired = _PAIRED.search(reply)
        if paired is None:
            raise Unreachable(
                f"pairing with {address} failed ({safe_text(reply, 200)}); compare address and "
                "code with the phone's screen, which shows both only while its dialog is open"
            )
        with translate_adb_errors(f"looking for {paired[1]}"):
            services = self._request("host:mdns:services", deadline, may_fail=True)
        announced = {match[1]: match[2] for match in _SERVICE.finditer(services)}
        return announced.get(paired[1], f"{paired[1]}._adb-tls-connect._tcp")

    def disconnect(self, address: str) -> None:
        """Disconnect a TCP phone."""
        self._addresses.discard(address)
        with translate_adb_errors(f"disconnecting {address}"):
            self._request(f"host:disconnect:{address}", self._soon(), may_fail=True)

    def list(self) -> dict[str, str]:
        """The address and state of every phone that the server knows."""
        with translate_adb_errors("listing phones"):
            return parse_phone_states(self._request("host:devices", self._soon()))

    def track(self, stop: threading.Event) -> Iterator[dict[str, str]]:
        """Yield the full list whenever it changes, despite any failure, until `stop` is set."""
        while not stop.is_set():
            try:
                yield from self._track_once(stop)
            except FarmError:
                stop.wait(0.2)

    def open(self, address: str, *, use_root: bool = True) -> ShellLink:
        """Return the link to a phone; nothing is sent before its first use."""
        return ShellLink(address, self.service, self._timeouts, use_root=use_root)

    def service(self, address: str, name: str, deadline: Deadline) -> socket.socket:
        """Open a service of the phone and return the bare socket.

        adbutils sleeps 10 ms whenever it closes a connection; a bare socket closes at once.
        """
        with translate_adb_errors(f"phone at {address}"):
            connection = self._dial(deadline)
            try:
                # Not host:tport, which servers before 1.0.41 do not have:
                # https://github.com/openatx/adbutils/issues/145
                connection.send_command(f"host:transport:{address}")
                connection.check_okay()
                connection.send_command(name)
                connection.check_okay()
            except BaseException:
                connection.conn.close()
                raise
            stream: socket.socket = connection.conn
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return stream

    def _dial(self, deadline: Deadline) -> AdbConnection:
        connection = _Connection("127.0.0.1", self.port)
        connection.conn.settimeout(max(deadline.remaining, 0.001))
        return connection

    def _soon(self) -> Deadline:
        return Deadline.after(self._timeouts.adb_request_timeout_s)

    def _request(self, request: str, deadline: Deadline, may_fail: bool = False) -> str:
        connection = self._dial(deadline)
        with closing(connection.conn):
            connection.send_command(request)
            try:
                connection.check_okay()
                reply: str = connection.read_string_block()
            except AdbError:
                if may_fail:
                    return ""
                raise
            return reply

    def _track_once(self, stop: threading.Event) -> Iterator[dict[str, str]]:
        with translate_adb_errors("watching phones"):
            connection = self._dial(self._soon())
            with closing(connection.conn), DefaultSelector() as selector:
                connection.send_command("host:track-devices")
                connection.check_okay()
                selector.register(connection.conn, EVENT_READ)
                while not stop.is_set():
                    if selector.select(timeout=0.5):
                        yield parse_phone_states(connection.read_string_block())

    def _answers(self) -> bool:
        try:
            return bool(self._request("host:version", self._soon()))
        except (AdbError, EOFError, OSError, ValueError):
            return False

    def _supervise(self) -> None:
        """Run the private server, and restart it when it dies; it forgets its TCP phones then."""
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
            threading.Thread(target=self._reconnect_phones, daemon=True).start()
            self._child.wait()
            self._stopping.wait(0.1)

    def _reconnect_phones(self) -> None:
        deadline = Deadline.after(self._timeouts.adb_start_timeout_s)
        while not self._answers() and not deadline.expired:
            time.sleep(0.02)
        for address in tuple(self._addresses):
            try:
                self.connect(address, self._soon())
            except FarmError:
                continue  # the phone registry tries again


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
