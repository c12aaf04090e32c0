"""A network of namespaces for tests: a switch in this process that can delay, lose and cut.

Every computer is a network namespace with one TAP device. The switch forwards the frames of these
devices itself, so it needs no traffic control of the kernel, and nothing outside can reach it.
"""

import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_TUNSETIFF, _TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
_numbers = itertools.count(1)


@dataclass
class SwitchPort:
    """The cable of one computer; the faults may be changed at any time."""

    name: str
    address: str
    namespace: str
    tap: int
    delay_s: float = 0.0
    loss: float = 0.0
    is_cut: bool = False

    def wrap(self, *command: str) -> list[str]:
        """Return a command that runs on this computer."""
        return ["ip", "netns", "exec", self.namespace, *command]


def missing_rights() -> str:
    """Return why namespaces cannot be used here; empty if they can."""
    if shutil.which("ip") is None:
        return "the program ip is not installed"
    name = f"farm-try-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"network namespaces are not allowed: {done.stderr.strip()}"
    _ip("netns", "delete", name)
    return "" if os.access("/dev/net/tun", os.R_OK | os.W_OK) else "/dev/net/tun cannot be opened"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class LabNetwork:
    """Computers with addresses 10.77.0.1, 10.77.0.2, ... in the order of their names."""

    def __init__(self, names: Sequence[str], seed: int = 1) -> None:
        prefix = f"farm-{os.getpid()}-{next(_numbers)}"
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._names = names
        self._prefix = prefix
        self.ports: dict[str, SwitchPort] = {}
        self._place_of: dict[bytes, SwitchPort] = {}
        self._under_way: list[tuple[float, int, SwitchPort, bytes]] = []
        self._frames = itertools.count()
        self.dropped = 0

    def __getitem__(self, name: str) -> SwitchPort:
        return self.ports[name]

    @contextmanager
    def running(self) -> Iterator["LabNetwork"]:
        """Create the computers, and forward their frames until the end."""
        thread = threading.Thread(target=self._forward, daemon=True)
        try:
            for number, name in enumerate(self._names, start=1):
                self._add(name, number)
            thread.start()
            yield self
        finally:
            self._stop.set()
            if thread.ident is not None:
                thread.join()
            for port in self.ports.values():
                os.close(port.tap)
                with suppress(subprocess.CalledProcessError):
                    _ip("netns", "delete", port.namespace)

    def _add(self, name: str, number: int) -> None:
        namespace, link = f"{self._prefix}-{name}", f"ft{os.getpid() % 100000}x{number}"
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", link.encode(), _TAP_WITHOUT_HEADER))
        address = f"10.77.0.{number}"
        _ip("netns", "add", namespace)
        self.ports[name] = SwitchPort(name, address, namespace, tap)
        _ip("link", "set", link, "netns", namespace)
        inside = ("-n", namespace)
        _ip(*inside, "addr", "add", f"{address}/24", "dev", link)
        for each in ("lo", link):
            _ip(*inside, "link", "set", each, "up")

    def _forward(self) -> None:
        by_tap = {port.tap: port for port in self.ports.values()}
        while not self._stop.is_set():
            now = time.monotonic()
            wait_s = max(0.0, self._under_way[0][0] - now) if self._under_way else 0.1
            readable, _, _ = select.select(list(by_tap), [], [], min(wait_s, 0.1))
            for tap in readable:
                with suppress(BlockingIOError):
                    for _ in range(64):
                        self._take(by_tap[tap], os.read(tap, 65536))
            self._deliver()

    def _take(self, port: SwitchPort, frame: bytes) -> None:
        self._place_of[frame[6:12]] = port
        known = self._place_of.get(frame[:6])
        targets = [known] if known else [each for each in self.ports.values() if each is not port]
        for target in targets:
            if self._is_lost(port) or self._is_lost(target):
                self.dropped += 1
                continue
            due = time.monotonic() + port.delay_s + target.delay_s
            heapq.heappush(self._under_way, (due, next(self._frames), target, frame))

    def _is_lost(self, port: SwitchPort) -> bool:
        return port.is_cut or (port.loss > 0 and self._random.random() < port.loss)

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, target, frame = heapq.heappop(self._under_way)
            with suppress(OSError):  # a full queue loses the frame, as on a real cable
                os.write(target.tap, frame)
