"""Every door adb has into a phone: keys, root, forwards, reverses, logs, packages, reboots."""

import asyncio
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.virtual.adb.authority import Authority, read_public_key
from agent.virtual.shelf import Shelf, ShelfPlan, shelf_in_thread
from tests.virtual.conftest import StartPhone, Witness
from tests.virtual.host import ADB, WAIT_S, AdbHost, PhoneAt, free_port, read_exactly, until


def state(host: AdbHost, address: str) -> str:
    listed = host.adb("devices").out.splitlines()
    return next((line.split("\t")[1] for line in listed if line.startswith(address)), "absent")


@contextmanager
def on_shelf(host: AdbHost, plan: ShelfPlan) -> Iterator[tuple[Shelf, PhoneAt]]:
    with shelf_in_thread(plan) as (shelf, (address,)):
        try:
            yield shelf, PhoneAt(host, address.address)
        finally:
            host.adb("disconnect", address.address)


@pytest.fixture
def their_key(host: AdbHost) -> Path:
    """The public key of the host under test."""
    private = host.home / ".android" / "adbkey"
    until(private.exists, "the server has made its key")
    public = private.with_name("asked.pub")
    public.write_bytes(subprocess.check_output([ADB, "pubkey", private], env=host.env))
    return public


# -- keys


def test_a_host_with_a_known_key_comes_in(host: AdbHost, their_key: Path) -> None:
    plan = ShelfPlan(("meizu-16t",), speed=100.0, adb_keys=(their_key,))
    with on_shelf(host, plan) as (_, phone):
        host.adb("connect", phone.address)
        until(lambda: state(host, phone.address) == "device", "the signature is good")
        assert "in" == phone.out("echo in")


def test_an_unknown_host_waits_until_somebody_accepts_it(host: AdbHost) -> None:
    with on_shelf(host, ShelfPlan(("meizu-16t",), speed=100.0)) as (shelf, phone):
        authority = shelf.servers[0].authority
        authority.forget()
        host.adb("connect", phone.address)
        until(lambda: state(host, phone.address) == "unauthorized", "it is unauthorized")
        refused = host.adb("-s", phone.address, "shell", "true")
        assert refused.status != 0
        assert "unauthorized" in refused.err
        until(lambda: authority.waiting == 1, "the key waits")
        loop = shelf.servers[0].listener.get_loop()  # type: ignore[union-attr]
        asyncio.run_coroutine_threadsafe(_accept(authority), loop).result(WAIT_S)
        until(lambda: state(host, phone.address) == "device", "it is let in")
        host.adb("disconnect", phone.address)
        host.adb("connect", phone.address)
        until(lambda: state(host, phone.address) == "device", "it is remembered")


async def _accept(authority: Authority) -> None:
    assert authority.accept() == 1


def test_a_forged_signature_is_refused(their_key: Path) -> None:
    key = read_public_key(their_key.read_bytes())
    assert key is not None
    assert not key.signed(b"t" * 20, b"s" * 256)
    assert not key.signed(b"t" * 20, b"")
    assert read_public_key(b"bm8ga2V5 somebody@somewhere") is None
    assert read_public_key(b"\xff\xfe") is None


# -- root


def test_adb_root_restarts_adbd_on_a_userdebug_build(host: AdbHost) -> None:
    with on_shelf(host, ShelfPlan(("meizu-16t:userdebug",), speed=100.0)) as (_, phone):
        host.adb("connect", phone.address)
        assert "2000" == phone.out("id -u")
        assert "restarting adbd as root" in host.adb("-s", phone.address, "root").out
        host.adb("-s", phone.address, "wait-for-device")
        assert "0" == phone.out("id -u")
        phone.put("/data/owned_by_root", b"x")
        assert "already running as root" in host.adb("-s", phone.address, "root").out
        assert "non root" in host.adb("-s", phone.address, "unroot").out
        host.adb("-s", phone.address, "wait-for-device")
        until(lambda: state(host, phone.address) == "device", "it is back")
        assert "2000" == phone.out("id -u")


# -- sockets


@pytest.mark.parametrize("there", ["tcp:7", "localabstract:echo"])
def test_a_forwarded_port_reaches_the_phone(host: AdbHost, phone: PhoneAt, there: str) -> None:
    port = free_port()
    assert host.adb("-s", phone.address, "forward", f"tcp:{port}", there).status == 0
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as line:
        for size in (1, 70_000):
            line.sendall(b"x" * size)
            assert b"x" * size == read_exactly(line, size)
    host.adb("-s", phone.address, "forward", "--remove", f"tcp:{port}")


def test_a_forward_to_nobody_is_closed(host: AdbHost, phone: PhoneAt) -> None:
    port = free_port()
    host.adb("-s", phone.address, "forward", f"tcp:{port}", "tcp:4711")
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as line:
        assert b"" == line.recv(1)
    host.adb("-s", phone.address, "forward", "--remove", f"tcp:{port}")
    assert phone.run("nc localhost 4711").err == "nc: connect: Connection refused\n"
    assert "hello" == phone.out("echo hello | nc localhost 7")


def test_a_listener_in_the_phone_is_reached_from_the_host(host: AdbHost, phone: PhoneAt) -> None:
    port = free_port()
    phone.out("setsid nc -l -p 6000 > /data/local/tmp/heard 2>&1 < /dev/null &")
    until(lambda: phone.run("pgrep -f 'nc -l -p'").status == 0, "it listens")
    host.adb("-s", phone.address, "forward", f"tcp:{port}", "tcp:6000")
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as line:
        line.sendall(b"from the host")
        until(lambda: "from the host" in phone.out("cat /data/local/tmp/heard"), "it was heard")
    host.adb("-s", phone.address, "forward", "--remove", f"tcp:{port}")


def test_a_reversed_port_reaches_the_host(host: AdbHost, phone: PhoneAt) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(line.recv(100).upper())

        threading.Thread(target=answer, daemon=True).start()
        made = host.adb("-s", phone.address, "reverse", "tcp:6100", f"tcp:{port}")
        assert made.status == 0, made
        listed = host.adb("-s", phone.address, "reverse", "--list").out
        assert f"tcp:6100 tcp:{port}" in listed
        assert "HELLO" == phone.out("echo hello | nc localhost 6100")
    assert host.adb("-s", phone.address, "reverse", "--remove", "tcp:6100").status == 0
    assert host.adb("-s", phone.address, "reverse", "--remove", "tcp:6100").status != 0
    assert phone.run("nc localhost 6100").status == 1


# -- logs and packages


def test_logcat_shows_what_was_logged_and_goes_on(host: AdbHost, phone: PhoneAt) -> None:
    phone.out("logcat -c; log -t farm 'one line'")
    assert "farm    : one line" in host.adb("-s", phone.address, "logcat", "-d").out
    with phone.host.dial(phone.address, "shell:logcat farm:I") as stream:
        stream.settimeout(WAIT_S)
        seen = stream.recv(65536)
        phone.out("log -t other hidden; log -t farm second")
        while b"second" not in seen:
            seen += stream.recv(65536)
    assert b"hidden" not in seen


def test_an_install_is_refused_politely(host: AdbHost, phone: PhoneAt, tmp_path: Path) -> None:
    apk = tmp_path / "app.apk"
    apk.write_bytes(b"PK" + b"x" * 300_000)
    said = host.adb("-s", phone.address, "install", str(apk))
    assert said.status != 0
    assert "INSTALL_FAILED_USER_RESTRICTED" in said.out + said.err
    assert "alive" == phone.out("echo alive")


def test_only_honest_features_are_offered(host: AdbHost, phone: PhoneAt) -> None:
    offered = set(host.adb("-s", phone.address, "features").out.split())
    assert {"shell_v2", "cmd", "stat_v2", "ls_v2", "sendrecv_v2", "fixed_push_mkdir"} == offered


# -- comings and goings


def test_a_link_is_pushed_as_a_link(host: AdbHost, phone: PhoneAt, tmp_path: Path) -> None:
    phone.put("/data/local/tmp/target", b"behind")
    with host.dial(phone.address, "sync:") as stream:
        name = b"/data/local/tmp/alink,41471"
        stream.sendall(b"SEND" + len(name).to_bytes(4, "little") + name)
        stream.sendall(b"DATA\x06\0\0\0targetDONE\x01\0\0\0")
        assert b"OKAY" == read_exactly(stream, 4)
    assert "behind" == phone.out("cat /data/local/tmp/alink")
    assert "target" == phone.out("readlink /data/local/tmp/alink")


def test_a_tracker_sees_a_phone_go_and_come(host: AdbHost, start_phone: StartPhone) -> None:
    phone = start_phone(speed=300.0)
    with socket.create_connection(("127.0.0.1", host.port), timeout=WAIT_S) as tracker:
        tracker.sendall(b"0012host:track-devices")
        assert b"OKAY" == read_exactly(tracker, 4)

        def seen(word: str) -> None:
            while True:
                size = int(read_exactly(tracker, 4), 16)
                text = read_exactly(tracker, size).decode()
                if f"{phone.address}\t{word}\n" in text:
                    return

        seen("device")
        host.adb("-s", phone.address, "reboot")
        seen("offline")
        host.adb("disconnect", phone.address)

        def back() -> bool:
            return "connected" in host.adb("connect", phone.address).out

        until(back, "it is back")
        seen("device")


def test_a_reboot_clears_what_only_memory_held(
    host: AdbHost, start_phone: StartPhone, witness: Witness
) -> None:
    phone = start_phone(speed=300.0)
    phone.out("setsid sleep 90000 >/dev/null 2>&1 &")
    phone.out("echo x > /dev/shm_like 2>/dev/null; log -t farm before")
    host.adb("-s", phone.address, "reboot")

    def back() -> bool:
        host.adb("disconnect", phone.address)
        return "connected" in host.adb("connect", phone.address).out

    until(back, "it is back")
    assert "90000" not in phone.out("ps -A -o args")
    assert "before" not in phone.out("logcat -d")
    boots = witness("boot")
    assert len({boot["boot_id"] for boot in boots}) == len(boots) == 2
