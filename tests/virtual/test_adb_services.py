"""The services of ADB: keys, root, forwards, logs, packages, links, reboots."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.virtual.adb.host_keys import parse_public_key
from agent.virtual.fleet_server import FleetConfig, FleetServer
from tests.virtual.adb_host import (
    ADB,
    WAIT_S,
    AdbHost,
    AdbPhone,
    free_port,
    read_exactly,
    wait_until,
)
from tests.virtual.conftest import JournalReader, StartPhone
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME


def state(host: AdbHost, address: str) -> str:
    listed = host.adb("devices").out.splitlines()
    return next((line.split("\t")[1] for line in listed if line.startswith(address)), "absent")


@contextmanager
def running_phone(host: AdbHost, config: FleetConfig) -> Iterator[tuple[FleetServer, AdbPhone]]:
    with serve_fleet_in_thread(config) as (fleet, (address,)):
        try:
            yield fleet, AdbPhone(host, address.address)
        finally:
            host.adb("disconnect", address.address)


@pytest.fixture
def their_key(host: AdbHost) -> Path:
    """The public key of the host under test."""
    private = host.home / ".android" / "adbkey"
    public = private.with_name("asked.pub")

    def is_exported() -> bool:
        if not private.exists():
            return False
        command = [ADB, "pubkey", private]  # fails while the server still writes the key
        result = subprocess.run(command, env=host.env, capture_output=True, check=False)
        public.write_bytes(result.stdout)
        return parse_public_key(result.stdout) is not None

    wait_until(is_exported, "the server has written its key")
    return public


# -- keys


def test_a_host_with_a_known_key_is_accepted(host: AdbHost, their_key: Path) -> None:
    config = FleetConfig(("meizu-16t",), speed=EVENT_TIME, adb_keys=(their_key,))
    with running_phone(host, config) as (_, phone):
        host.adb("connect", phone.address)
        wait_until(lambda: state(host, phone.address) == "device", "the signature is good")
        assert phone.out("echo in") == "in"


def test_an_unknown_host_is_unauthorized(host: AdbHost) -> None:
    with running_phone(host, FleetConfig(("meizu-16t",), speed=EVENT_TIME)) as (fleet, phone):
        fleet.servers[0].host_keys.require_keys()
        host.adb("connect", phone.address)
        wait_until(lambda: state(host, phone.address) == "unauthorized", "it is unauthorized")
        refused = host.adb("-s", phone.address, "shell", "true")
        assert refused.status != 0
        assert "unauthorized" in refused.err


def test_a_forged_signature_is_refused(their_key: Path) -> None:
    key = parse_public_key(their_key.read_bytes())
    assert key is not None
    assert not key.verifies(b"t" * 20, b"s" * 256)
    assert not key.verifies(b"t" * 20, b"")
    assert parse_public_key(b"bm8ga2V5 somebody@somewhere") is None
    assert parse_public_key(b"\xff\xfe") is None


# -- root


def test_adb_root_restarts_adbd_on_a_userdebug_build(host: AdbHost) -> None:
    with running_phone(host, FleetConfig(("meizu-16t:userdebug",), speed=EVENT_TIME)) as (_, phone):
        host.adb("connect", phone.address)
        assert phone.out("id -u") == "2000"
        assert "restarting adbd as root" in host.adb("-s", phone.address, "root").out
        host.adb("-s", phone.address, "wait-for-device")
        assert phone.out("id -u") == "0"
        phone.put("/data/owned_by_root", b"x")
        assert "already running as root" in host.adb("-s", phone.address, "root").out
        assert "non root" in host.adb("-s", phone.address, "unroot").out
        host.adb("-s", phone.address, "wait-for-device")
        wait_until(lambda: state(host, phone.address) == "device", "it is back")
        assert phone.out("id -u") == "2000"


# -- forwarded ports


def test_a_forward_to_a_closed_port_is_closed(host: AdbHost, phone: AdbPhone) -> None:
    port = free_port()
    host.adb("-s", phone.address, "forward", f"tcp:{port}", "tcp:4711")
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as line:
        assert line.recv(1) == b""
    host.adb("-s", phone.address, "forward", "--remove", f"tcp:{port}")


# -- packages


def test_an_install_is_refused_with_a_message(
    host: AdbHost, phone: AdbPhone, tmp_path: Path
) -> None:
    apk = tmp_path / "app.apk"
    apk.write_bytes(b"PK" + b"x" * 300_000)
    result = host.adb("-s", phone.address, "install", str(apk))
    assert result.status != 0
    assert "INSTALL_FAILED_USER_RESTRICTED" in result.out + result.err
    assert phone.out("echo alive") == "alive"


def test_only_supported_features_are_offered(host: AdbHost, phone: AdbPhone) -> None:
    offered = set(host.adb("-s", phone.address, "features").out.split())
    assert offered == {"shell_v2", "cmd", "stat_v2", "ls_v2", "sendrecv_v2", "fixed_push_mkdir"}


# -- connections and reboots


def test_a_link_is_pushed_as_a_link(host: AdbHost, phone: AdbPhone, tmp_path: Path) -> None:
    phone.put("/data/local/tmp/target", b"behind")
    with host.open_service(phone.address, "sync:") as stream:
        name = b"/data/local/tmp/alink,41471"
        stream.sendall(b"SEND" + len(name).to_bytes(4, "little") + name)
        stream.sendall(b"DATA\x06\0\0\0targetDONE\x01\0\0\0")
        assert read_exactly(stream, 4) == b"OKAY"
    assert phone.out("cat /data/local/tmp/alink") == "behind"
    assert " -> target\n" in phone.run("ls -l /data/local/tmp/alink").out


def test_a_tracker_reports_a_disconnect_and_a_reconnect(
    host: AdbHost, start_phone: StartPhone
) -> None:
    phone = start_phone()
    with socket.create_connection(("127.0.0.1", host.port), timeout=WAIT_S) as tracker:
        tracker.sendall(b"0012host:track-devices")
        assert read_exactly(tracker, 4) == b"OKAY"

        def wait_for_state(state: str) -> None:
            while True:
                size = int(read_exactly(tracker, 4), 16)
                text = read_exactly(tracker, size).decode()
                if f"{phone.address}\t{state}\n" in text:
                    return

        wait_for_state("device")
        host.adb("-s", phone.address, "reboot")
        wait_for_state("offline")

        def back() -> bool:
            host.adb("disconnect", phone.address)
            return "connected" in host.adb("connect", phone.address).out

        wait_until(back, "it is back")
        wait_for_state("device")


def test_a_reboot_clears_the_state_in_memory(
    host: AdbHost, start_phone: StartPhone, journal_events: JournalReader
) -> None:
    phone = start_phone()
    phone.out("setsid sleep 90000 >/dev/null 2>&1 &")
    host.adb("-s", phone.address, "reboot")

    def back() -> bool:
        host.adb("disconnect", phone.address)
        return "connected" in host.adb("connect", phone.address).out

    wait_until(back, "it is back")
    assert "90000" not in phone.out("ps -A -o args")
    boots = journal_events("boot")
    assert len({boot["boot_id"] for boot in boots}) == len(boots) == 2
