"""`farm doctor` on a host: what keeps a phone on USB from being used, distinguished."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.app.checks.check_finding import ERROR, OK, WARNING, CheckFinding
from orchestrator.app.checks.lab_checks import judge_versions
from orchestrator.app.checks.usb_checks import (
    AdbProcess,
    HostUsb,
    UsbPort,
    adb_server_version,
    judge_usb,
    list_adb_phones,
    read_host_usb,
)

ADB, MTP, DISK = ("ff", "42", "01"), ("06", "01", "01"), ("08", "06", "50")
PIXEL = UsbPort("1-1.2", "Pixel 8", "PH1", "18d1", (MTP, ADB), "/dev/bus/usb/001/004", True)


def findings(usb: HostUsb) -> list[CheckFinding]:
    return [finding for finding in judge_usb(usb) if finding.level is not OK]


def only(usb: HostUsb) -> CheckFinding:
    (finding,) = findings(usb)
    return finding


@pytest.mark.parametrize(
    ("state", "text", "fix"),
    [
        ("unauthorized", "does not trust this host", "tap Allow"),
        ("offline", "gets no answer", "reconnect its cable"),
        ("no permissions (missing udev rules?)", "may not open it", "udev rules"),
        ("recovery", "recovery or bootloader", "start Android"),
    ],
)
def test_states_of_adb_are_told_apart(state: str, text: str, fix: str) -> None:
    for ports in ((PIXEL,), ()):
        finding = only(HostUsb(ports, {"PH1": state}))
        assert text in finding.text
        assert fix in finding.fix


def test_a_phone_that_works_gives_no_warning() -> None:
    assert not findings(HostUsb((PIXEL,), {"PH1": "device"}, known={"PH1"}))
    assert not findings(HostUsb((PIXEL,), None))
    assert [finding.text for finding in judge_usb(HostUsb())] == ["no phone is connected by USB"]


def test_rights_debugging_cables_servers_and_hubs_are_told_apart() -> None:
    denied = only(HostUsb((PIXEL._replace(may_open=False),), {}))
    assert (denied.level, "/dev/bus/usb/001/004" in denied.text) == (ERROR, True)
    charging = only(HostUsb((PIXEL._replace(interfaces=(MTP,)),), {}))
    assert "USB debugging is off" in charging.text
    # A cable without data lines shows nothing on USB at all.
    assert "charge-only" in only(HostUsb((), {}, known={"PH1", "192.168.0.7:5555"})).fix
    held = only(HostUsb((PIXEL,), {}))
    assert (held.level, "adb does not list it" in held.text) == (ERROR, True)
    servers = (AdbProcess(12, 5037), AdbProcess(40, 5038))
    rivals = only(HostUsb((PIXEL,), {"PH1": "device"}, servers))
    assert "2 adb servers compete" in rivals.text
    assert not findings(HostUsb((PIXEL,), {"PH1": "device"}, servers[:1]))
    hub = only(HostUsb((PIXEL,), {"PH1": "device"}, overcurrents={"1-1-port3": 2}))
    assert "powered hub" in hub.fix
    dropped = only(HostUsb((PIXEL,), {"PH1": "device"}, failures={"1-1.4": 5}))
    assert "port 1-1.4 dropped its phone" in dropped.text
    disk = PIXEL._replace(serial="D", vendor="04e8", interfaces=(DISK,))
    assert not findings(HostUsb((disk,), {}))


def test_adbs_of_two_versions_end_each_other() -> None:
    text = "Android Debug Bridge version 1.0.39"
    assert [finding.level for finding in judge_versions(text, 41)] == [ERROR]
    assert not list(judge_versions("Android Debug Bridge version 1.0.41", 41))
    assert not list(judge_versions(text, None))


def test_usb_is_read_from_the_kernel(tmp_path: Path) -> None:
    """A phone, a hub with a port that was switched off, two adb servers and one without USB."""
    usb = tmp_path / "sys/bus/usb/devices"
    files = {
        "1-1/product": "Pixel 8\x1b[2J",
        "1-1/serial": "PH1",
        "1-1/idVendor": "18d1",
        "1-1/busnum": "1",
        "1-1/devnum": "4",
        "1-1:1.0/bInterfaceClass": "ff",
        "1-1:1.0/bInterfaceSubClass": "42",
        "1-1:1.0/bInterfaceProtocol": "01",
        "1-2/idVendor": "hostile",
        "1-2/busnum": "५",
        "2-0:1.0/usb2-port1/over_current_count": "3",
        "2-0:1.0/usb2-port2/over_current_count": "0",
    }
    for name, content in files.items():
        file = usb / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    node = tmp_path / "dev/bus/usb/001/004"
    node.parent.mkdir(parents=True)
    node.touch()
    kernel_log = (
        "6,1,1,-;usb 1-1.4: device descriptor read/64, error -110\n"
        "3,2,2,-;usb 1-1-port4: unable to enumerate USB device\n"
        "3,3,3,-;usb 2-3: device not accepting address 9, error -71\n"
        "3,4,4,-;usb usb2-port3: unable to enumerate USB device\n"
        "6,5,5,-;usb 3-1: new high-speed USB device number 4 using xhci_hcd\n"
        "3,6,6,-;usb 3-2: device descriptor read/64, error -71\n"
    )
    (tmp_path / "dev/kmsg").write_text(kernel_log)
    for pid, words, environment in (
        (12, ("/usr/bin/adb", "-L", "tcp:5037", "fork-server", "server"), ""),
        (40, ("adb", "-P", "5039", "nodaemon", "server"), "HOME=/x\0ADB_USB=1\0"),
        (41, ("adb", "-P", "5040", "nodaemon", "server"), "HOME=/x\0ADB_USB=0\0"),
        (42, ("adb", "shell"), ""),
    ):
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "cmdline").write_text("\0".join(words) + "\0")
        (folder / "environ").write_text(environment)
    found = read_host_usb(1, (), tmp_path)
    phone = found.ports[0]
    assert (phone.serial, phone.has_adb, phone.may_open) == ("PH1", True, True)
    assert "\x1b" not in phone.name
    assert not found.ports[1].is_phone
    assert found.servers == (AdbProcess(12, 5037), AdbProcess(40, 5039))
    assert found.overcurrents == {"usb2-port1": 3}
    assert found.failures == {"1-1.4": 2, "2-3": 2}
    retried = HostUsb((PIXEL,), {"PH1": "device"}, failures={PIXEL.port: 3})
    assert not findings(retried)  # it started in the end
    assert {finding.level for finding in judge_usb(found)} >= {ERROR, WARNING}
    if os.geteuid() != 0:  # root may open everything
        node.chmod(0)
        assert not read_host_usb(1, (), tmp_path).ports[0].may_open


@pytest.fixture
def adb_port() -> Iterator[int]:
    """A server that answers as adb does."""
    replies = {b"host:devices": b"PH1\tdevice\nPH2\tunauthorized\n", b"host:version": b"0029"}
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in replies:
                connection, _ = listener.accept()
                with connection:
                    request = connection.recv(100)[4:]
                    text = replies[request]
                    connection.sendall(b"OKAY%04x" % len(text) + text)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(timeout=120)


def test_a_running_adb_server_is_asked(adb_port: int) -> None:
    assert list_adb_phones(adb_port) == {"PH1": "device", "PH2": "unauthorized"}
    assert adb_server_version(adb_port) == 41
    assert list_adb_phones(1) is None
