"""What `farm doctor` looks at: a function a question; it answers what was found and what helps."""

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from workloads.lab_settings import SETTINGS_FILE, Lab
from workloads.protocol.faults import FarmError
from workloads.redis_connection import without_password
from workloads.units import format_bytes

DISK_ERROR_B, DISK_WARNING_B = 200 * 10**6, 2 * 10**9
SKEW_WARNING_S = 2.0
LISTENING = "0A"
USB = Path("/sys/bus/usb/devices")
ADB_INTERFACE = ("ff", "42", "01")


class Severity(StrEnum):
    """How well it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


@dataclass(frozen=True)
class CheckFinding:
    """What was found about one thing, and what helps if it is not well."""

    what: str
    level: Severity
    text: str
    fix: str = ""


def check_python() -> Iterator[CheckFinding]:
    """Whether this Python is new enough."""
    version = ".".join(map(str, sys.version_info[:3]))
    new = sys.version_info >= (3, 11)
    yield CheckFinding(
        "python", OK if new else ERROR, version, "" if new else "install Python 3.11"
    )


def check_disk(lab: Lab) -> Iterator[CheckFinding]:
    """Whether there is room for reports."""
    folder = next(each for each in (lab.root, *lab.root.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    level = ERROR if free < DISK_ERROR_B else WARNING if free < DISK_WARNING_B else OK
    fix = "" if level == OK else f"make room where {folder} lies"
    yield CheckFinding("disk", level, f"{format_bytes(free)} free at {folder}", fix)


def check_secrets(lab: Lab) -> Iterator[CheckFinding]:
    """Whether others may read a password."""
    file = lab.root / SETTINGS_FILE
    urls = (lab.settings.broker.url, lab.settings.store.url)
    if not file.exists() or not any(urlsplit(url).password for url in urls if url):
        return
    if file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield CheckFinding(
            "secrets", ERROR, f"others can read the password in {file}", f"chmod 600 {file}"
        )
    else:
        yield CheckFinding("secrets", OK, f"only you can read {file}")


def check_adb(lab: Lab) -> Iterator[CheckFinding]:
    """Whether adb is here, and whether its server listens to others."""
    program = shutil.which("adb") or _bundled_adb()
    if program is None:
        yield CheckFinding("adb", ERROR, "there is no adb", "install adb (Debian: apt install adb)")
    else:
        asked = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
        first = (asked.stdout.splitlines() or ["it says nothing"])[0]
        yield CheckFinding("adb", OK if asked.returncode == 0 else ERROR, f"{first} ({program})")
    port = lab.settings.agent.adb_port
    if port in _listening_to_others():
        text = f"the adb server listens to everybody on port {port}: they own your phones"
        yield CheckFinding("adb server", ERROR, text, "restart it without -a: adb kill-server")


def _bundled_adb() -> str | None:
    spec = find_spec("adbutils")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in Path(folder).glob("binaries/adb*"):
            if os.access(found, os.X_OK):
                return str(found)
    return None


def check_udev() -> Iterator[CheckFinding]:
    """Whether this user may open the phones that are on USB."""
    phones = sorted({interface.parent for interface in _adb_interfaces()})
    if not phones:
        yield CheckFinding("usb", OK, "no phone with USB debugging on is plugged in")
    for phone in phones:
        node = _usb_node(phone)
        name = _word(phone / "product") or phone.name
        if node is not None and os.access(node, os.R_OK | os.W_OK):
            yield CheckFinding("usb", OK, f"{name} may be opened")
        else:
            fix = "install udev rules (Debian: apt install android-sdk-platform-tools-common)"
            yield CheckFinding("usb", ERROR, f"{name} is there, and {node} may not be opened", fix)


def _adb_interfaces() -> Iterator[Path]:
    names = ("bInterfaceClass", "bInterfaceSubClass", "bInterfaceProtocol")
    for interface in USB.glob("*:*") if USB.exists() else ():
        if tuple(_word(interface / name) for name in names) == ADB_INTERFACE:
            yield interface.resolve()


def _usb_node(phone: Path) -> Path | None:
    bus, number = _word(phone / "busnum"), _word(phone / "devnum")
    return Path(f"/dev/bus/usb/{int(bus):03d}/{int(number):03d}") if bus and number else None


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def check_broker(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the broker answers, and to whom."""
    from orchestrator.dispatch.central_broker import CentralBroker

    url, shown = lab.broker_url, without_password(lab.broker_url)
    broker = CentralBroker(url)
    try:
        broker.check()
        open_ = broker.allows_anonymous_access()
    except FarmError as error:
        fix = f"start the lab: farm up --lab {lab.root}" if lab.has_embedded_broker else "start it"
        yield CheckFinding("broker", ERROR, str(error), fix)
        return
    finally:
        broker.close()
    yield CheckFinding("broker", OK, f"answers at {shown}")
    yield from judge_broker(url, open_, _listening_to_others())


def judge_broker(url: str, open_: bool, listening: Collection[int]) -> Iterator[CheckFinding]:
    """What is wrong with how a broker can be reached: by whom, and who can listen in."""
    if url.startswith("unix:"):
        return
    where, shown = urlsplit(url), without_password(url)
    elsewhere = not _is_loopback(where.hostname or "")
    if open_ and (elsewhere or (where.port or 6379) in listening):
        text = f"{shown} takes anybody without a password: they can run jobs on your phones"
        yield CheckFinding(
            "broker", ERROR, text, "set a password or ACL users, or bind it to loopback"
        )
    elif url.startswith("redis:") and elsewhere:
        text = f"{shown} is not encrypted: its password crosses the network as it is"
        yield CheckFinding("broker", WARNING, text, "use rediss://")


def _is_loopback(name: str) -> bool:
    if name in ("localhost", ""):
        return True
    try:
        return all(
            str(found[4][0]).startswith(("127.", "::1")) for found in socket.getaddrinfo(name, None)
        )
    except OSError:
        return False


def _listening_to_others() -> set[int]:
    """Ports of this machine that listen beyond loopback."""
    ports = set()
    for name in ("tcp", "tcp6"):
        for line in _word(Path(f"/proc/net/{name}")).splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            local = address.endswith("0100007F") or address == "0" * 24 + "01000000"
            if fields[3] == LISTENING and not local:
                ports.add(int(port, 16))
    return ports


def check_store(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the store answers and has the right tables."""
    from orchestrator.store.database import Database

    try:
        database = Database(lab.store_url)
        database.check()
        database.close()
    except FarmError as error:
        yield CheckFinding("store", ERROR, str(error), f"start the lab: farm up --lab {lab.root}")
        return
    yield CheckFinding("store", OK, f"answers at {without_password(lab.store_url)}")


def check_services(lab: Lab) -> Iterator[CheckFinding]:
    """Whether the scheduler is awake, and whether every host's clock is right."""
    from orchestrator.dispatch.central_broker import CentralBroker

    broker = CentralBroker(lab.broker_url)
    try:
        board, beats = broker.status(), broker.heartbeats()
    except FarmError:
        return  # the broker's own finding says it
    finally:
        broker.close()
    if board is None:
        yield CheckFinding("scheduler", ERROR, "it is silent", f"farm up --lab {lab.root}")
    else:
        yield CheckFinding("scheduler", OK, "awake")
    now = datetime.now(UTC)
    if not beats:
        yield CheckFinding("hosts", WARNING, "no agent is up", "farm agent run")
    for beat in beats:
        off_s = (beat.sent_at - now).total_seconds()
        far = abs(off_s) > lab.settings.scheduler.lease_timeout_s / 2
        level = ERROR if far else WARNING if abs(off_s) > SKEW_WARNING_S else OK
        here = sum(phone.state != "away" for phone in beat.phones)
        text = f"{here} phones, clock {off_s:+.1f} s"
        fix = "" if level == OK else "let it keep the time with NTP; jobs expire by its clock"
        yield CheckFinding(f"host {beat.host}", level, text, fix)


def all_findings(lab: Lab) -> Iterator[CheckFinding]:
    """Everything, in the order in which one would look."""
    yield from check_python()
    yield from check_disk(lab)
    yield from check_secrets(lab)
    yield from check_adb(lab)
    yield from check_udev()
    yield from check_broker(lab)
    yield from check_store(lab)
    yield from check_services(lab)
