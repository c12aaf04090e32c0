"""The checks of a host with phones: USB, cables, hubs, and the adb servers that compete for them.

What is read from the computer is a HostUsb; `judge_usb` is pure and decides on it alone.
"""

import os
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from orchestrator.app.checks.check_finding import ERROR, OK, WARNING, CheckFinding, Severity
from workloads.protocol.phone_address import is_over_network
from workloads.protocol.unusable_phone import PhoneProblem, problem_of_state
from workloads.text import safe_text

ADB_INTERFACE = ("ff", "42", "01")
STORAGE, HUB, INPUT = "08", "09", "03"  # classes of USB interfaces that no phone without adb has
ADB_TIMEOUT_S = 2.0
KERNEL_LOG_BYTES_MAX = 4 * 1024 * 1024
# Makers of phones (http://www.linux-usb.org/usb.ids).
PHONE_VENDORS = {
    *("18d1", "04e8", "2717", "12d1", "22d9", "2d95", "22b8", "0fce", "1004", "0bb4", "2a70"),
    *("0e8d", "05c6", "2a45", "339b", "1782", "2ae5", "2e04", "2b0e", "1ebf", "19d2"),
}
# Lines of the Linux kernel (drivers/usb/core/hub.c) about a port whose phone does not start.
_PORT_FAILURE = re.compile(
    r"usb (?:usb(?=\d+-port))?(\S+?)(-port\d+)?: (?:device not accepting address|"
    r"device descriptor read|unable to enumerate|cannot enable|cannot reset|disabled by hub)"
)


class UsbPort(NamedTuple):
    """What is connected to one USB port."""

    port: str  # as the kernel names it: 1-1.4
    name: str
    serial: str
    vendor: str
    interfaces: tuple[tuple[str, str, str], ...]  # class, subclass and protocol
    node: str
    may_open: bool

    @property
    def has_adb(self) -> bool:
        """Whether USB debugging is on."""
        return ADB_INTERFACE in self.interfaces

    @property
    def is_phone(self) -> bool:
        """Whether this is a phone, with USB debugging or without."""
        classes = {interface[0] for interface in self.interfaces}
        is_other = bool(classes & {STORAGE, HUB, INPUT})
        return self.has_adb or (self.vendor in PHONE_VENDORS and not is_other)


class AdbProcess(NamedTuple):
    """An adb server of this computer that uses USB."""

    pid: int
    port: int


@dataclass(frozen=True)
class HostUsb:
    """USB and adb of this computer as they were read."""

    ports: tuple[UsbPort, ...] = ()
    states: Mapping[str, str] | None = None  # of adb's phones; None: no server answers
    servers: tuple[AdbProcess, ...] = ()
    known: Collection[str] = ()  # serial numbers of phones that this host had
    overcurrents: Mapping[str, int] = field(default_factory=dict)  # by port of a hub
    failures: Mapping[str, int] = field(default_factory=dict)  # failed starts by port


def judge_usb(usb: HostUsb) -> Iterator[CheckFinding]:
    """Say for each phone what keeps it from being used, and what is wrong with adb and hubs."""
    phones = [port for port in usb.ports if port.is_phone]
    for port in phones:
        yield _judge_port(port, usb)
    on_usb = {port.serial for port in phones}
    for address, state in (usb.states or {}).items():
        problem = problem_of_state(state)
        if problem is not None and address not in on_usb:
            yield _finding_of(address, WARNING, problem)
    yield from _judge_missing(usb, on_usb)
    yield from _judge_servers(usb.servers)
    for where, count in usb.overcurrents.items():
        text = f"hub port {where} was switched off {count} times because it drew too much current"
        yield CheckFinding("usb hub", WARNING, text, "use a powered hub, or fewer phones per hub")
    present = {port.port for port in usb.ports}
    for where, count in usb.failures.items():
        if where in present:
            continue  # it started in the end
        text = f"port {where} dropped its phone: the kernel could not start it {count} times"
        fix = "try another cable, then another port; power the hub"
        yield CheckFinding("usb hub", WARNING, text, fix)
    if not phones:
        fix = "if one is plugged in: use a cable that carries data, then another port"
        yield CheckFinding("usb", OK, "no phone is connected by USB", fix)


def _judge_port(port: UsbPort, usb: HostUsb) -> CheckFinding:
    name = f"{port.name or 'a phone'} ({port.serial or port.port})"
    if not port.has_adb:
        text = f"{name} is connected for charging or file transfer only: USB debugging is off"
        return CheckFinding("usb", WARNING, text, "switch on USB debugging in Developer options")
    if not port.may_open:
        return _finding_of(f"{name} at {port.node}", ERROR, PhoneProblem.NO_RIGHTS)
    if usb.states is None:
        return CheckFinding("usb", OK, f"{name} can be opened; no adb server runs")
    state = usb.states.get(port.serial)
    if state is None:
        fix = "stop other programs that use it, then: adb kill-server"
        return CheckFinding("usb", ERROR, f"{name} is on USB, but adb does not list it", fix)
    problem = problem_of_state(state)
    if problem is None:
        return CheckFinding("usb", OK, f"{name} is ready")
    return _finding_of(name, ERROR if problem is PhoneProblem.NO_RIGHTS else WARNING, problem)


def _finding_of(name: str, level: Severity, problem: PhoneProblem) -> CheckFinding:
    what, _, fix = problem.text.partition("; ")
    return CheckFinding("usb", level, f"{name}: {what}", fix)


def _judge_missing(usb: HostUsb, on_usb: Collection[str]) -> Iterator[CheckFinding]:
    """Phones that this host had by USB and that neither USB nor adb shows now."""
    listed = {*on_usb, *(usb.states or {})}
    for serial in sorted(usb.known):
        if serial not in listed and not is_over_network(serial):
            text = f"{serial} was on this host and is not on USB now"
            fix = "use a cable that carries data, not a charge-only one; check power and hub port"
            yield CheckFinding("usb", WARNING, text, fix)


def _judge_servers(servers: Collection[AdbProcess]) -> Iterator[CheckFinding]:
    if len(servers) < 2:
        return
    names = ", ".join(f"pid {server.pid} on port {server.port}" for server in servers)
    text = f"{len(servers)} adb servers compete for the phones on USB: {names}"
    yield CheckFinding("adb server", ERROR, text, "keep one; end the others with kill PID")


def read_host_usb(adb_port: int, known: Collection[str], root: Path = Path("/")) -> HostUsb:
    """Read USB and adb of this computer; `root` is another root folder for tests."""
    ports = tuple(_read_ports(root))
    names = _parse_failures(_read_kernel_log(root))
    return HostUsb(
        ports,
        list_adb_phones(adb_port),
        tuple(_read_servers(root)),
        known,
        dict(_read_overcurrents(root)),
        names,
    )


def _read_ports(root: Path) -> Iterator[UsbPort]:
    for device in sorted((root / "sys/bus/usb/devices").glob("*-*")):
        if ":" in device.name:
            continue
        interfaces = tuple(
            sorted(
                (
                    _word(interface / "bInterfaceClass"),
                    _word(interface / "bInterfaceSubClass"),
                    _word(interface / "bInterfaceProtocol"),
                )
                for interface in device.parent.glob(f"{device.name}:*")
            )
        )
        bus, number = _word(device / "busnum"), _word(device / "devnum")
        numbered = bus.isdigit() and number.isdigit()
        node = f"dev/bus/usb/{int(bus):03d}/{int(number):03d}" if numbered else ""
        yield UsbPort(
            port=device.name,
            name=safe_text(_word(device / "product"), 60),
            serial=safe_text(_word(device / "serial"), 64),
            vendor=_word(device / "idVendor"),
            interfaces=interfaces,
            node=f"/{node}",
            may_open=bool(node) and os.access(root / node, os.R_OK | os.W_OK),
        )


def _read_overcurrents(root: Path) -> Iterator[tuple[str, int]]:
    for file in sorted((root / "sys/bus/usb/devices").glob("*:1.0/*-port*/over_current_count")):
        count = _word(file)
        if count.isdigit() and int(count) > 0:
            yield file.parent.name, int(count)


def _parse_failures(log: str) -> dict[str, int]:
    """Count failed starts by port; a port that works in the end is retried a few times at most."""
    counts = Counter(map(_port_name, _PORT_FAILURE.finditer(log)))
    return {port: count for port, count in sorted(counts.items()) if count > 1}


def _port_name(line: re.Match[str]) -> str:
    """The name of what is at a port: usb1-port4 is 1-4, 1-1-port4 is 1-1.4."""
    where, port = line[1], (line[2] or "").removeprefix("-port")
    return f"{where}{'.' if '-' in where else '-'}{port}" if port else where


def _read_kernel_log(root: Path) -> str:
    """The kernel's messages; empty where this user may not read them."""
    try:
        log = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    parts, size = [], 0
    try:
        while size < KERNEL_LOG_BYTES_MAX and (part := os.read(log, 65536)):
            parts.append(part)
            size += len(part)
    except OSError:
        pass  # everything was read
    finally:
        os.close(log)
    return b"".join(parts).decode(errors="replace")


def _read_servers(root: Path) -> Iterator[AdbProcess]:
    """The adb servers that look for phones on USB; private servers of agents do not."""
    for folder in sorted((root / "proc").glob("[0-9]*")):
        words = _words(folder / "cmdline")
        if not words or Path(words[0]).name != "adb" or "server" not in words:
            continue
        if "ADB_USB=0" not in _words(folder / "environ"):
            yield AdbProcess(int(folder.name), _server_port(words))


def _server_port(words: list[str]) -> int:
    for option, value in pairwise(words):
        port = value.rpartition(":")[2]
        if option in ("-P", "-L") and port.isdigit():
            return int(port)
    return 5037


def list_adb_phones(port: int) -> dict[str, str] | None:
    """Ask a running adb server for the states of its phones; None if none answers."""
    reply = _ask_adb(port, "host:devices")
    if reply is None:
        return None
    lines = (line.split("\t") for line in reply.splitlines())
    return {parts[0]: parts[1] for parts in lines if len(parts) == 2}


def adb_server_version(port: int) -> int | None:
    """Ask a running adb server for its version, e.g. 41; None if none answers."""
    reply = _ask_adb(port, "host:version")
    try:
        return int(reply, 16) if reply is not None else None
    except ValueError:
        return None


def _ask_adb(port: int, request: str) -> str | None:
    """Ask an adb server; it is never started."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ADB_TIMEOUT_S) as server:
            server.sendall(f"{len(request):04x}{request}".encode())
            reply = b""
            while part := server.recv(65536):
                reply += part
    except OSError:
        return None
    return reply[8:].decode(errors="replace") if reply.startswith(b"OKAY") else None


def _words(file: Path) -> list[str]:
    try:
        return [word for word in file.read_bytes().decode(errors="replace").split("\0") if word]
    except OSError:
        return []


def _word(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
