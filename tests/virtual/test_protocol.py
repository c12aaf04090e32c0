"""The device side of ADB with hand-made packets: flow control, refusals and invalid input."""

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.virtual.fleet_server import FleetConfig
from tests.virtual.adb_host import WAIT_S, AdbPhone, read_exactly, wait_until
from tests.virtual.conftest import StartPhone
from tests.virtual.running_fleet import serve_fleet_in_thread

CNXN, OPEN, OKAY, CLSE, WRTE = b"CNXN", b"OPEN", b"OKAY", b"CLSE", b"WRTE"
BANNER = b"host::features=shell_v2,cmd,stat_v2,ls_v2,sendrecv_v2"


def packet(word: bytes, first: int, second: int, payload: bytes = b"") -> bytes:
    number = int.from_bytes(word, "little")
    total = sum(payload) & 0xFFFFFFFF
    magic = number ^ 0xFFFFFFFF
    return struct.pack("<6I", number, first, second, len(payload), total, magic) + payload


def read_packet(stream: socket.socket) -> tuple[bytes, int, int, bytes]:
    word, first, second, length, _, _ = struct.unpack("<6I", read_exactly(stream, 24))
    return word.to_bytes(4, "little"), first, second, read_exactly(stream, length)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a phone that no adb server is connected to."""
    with serve_fleet_in_thread(FleetConfig(("redmi-note-9-pro",), speed=50.0)) as (_, (address,)):
        yield int(address.address.rpartition(":")[2])


# Prints 655,361 bytes.
LONG_OUTPUT = b"a=0123456789; for i in 1 2 3 4 5 6 7 8; do a=$a$a; a=$a$a; done; echo $a"


@contextmanager
def connected(port: int, greet: bool = True) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as stream:
        if greet:
            stream.sendall(packet(CNXN, 0x01000001, 1024 * 1024, BANNER))
            word, version, size, banner = read_packet(stream)
            assert (word, version, size) == (CNXN, 0x01000001, 1024 * 1024)
            assert banner.startswith(b"device::ro.product.name=joyeuse;ro.product.model=Redmi")
        yield stream


def ask(port: int, command: bytes) -> bytes:
    """Run one v1 command from start to end."""
    with connected(port) as stream:
        stream.sendall(packet(OPEN, 7, 0, b"shell:" + command + b"\0"))
        word, local, remote, _ = read_packet(stream)
        assert (word, remote) == (OKAY, 7)
        text = b""
        while True:
            word, _, _, payload = read_packet(stream)
            if word == CLSE:
                return text
            text += payload
            stream.sendall(packet(OKAY, 7, local))


def test_one_packet_is_in_flight_until_it_is_acknowledged(port: int) -> None:
    with connected(port) as stream:
        stream.sendall(packet(OPEN, 9, 0, b"shell:" + LONG_OUTPUT + b"\0"))
        _, local, _, _ = read_packet(stream)
        word, _, _, first = read_packet(stream)
        assert word == WRTE
        stream.settimeout(0.1)
        with pytest.raises(TimeoutError):
            stream.recv(1)
        stream.settimeout(WAIT_S)
        text = first
        stream.sendall(packet(OKAY, 9, local))
        while (answer := read_packet(stream))[0] == WRTE:
            text += answer[3]
            stream.sendall(packet(OKAY, 9, local))
        assert text == 2**16 * b"0123456789" + b"\n"


def test_a_small_payload_limit_is_honoured(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as stream:
        stream.sendall(packet(CNXN, 0x01000000, 4096, BANNER))
        read_packet(stream)
        stream.sendall(packet(OPEN, 3, 0, b"shell:" + LONG_OUTPUT + b"\0"))
        _, local, _, _ = read_packet(stream)
        while (answer := read_packet(stream))[0] == WRTE:
            assert len(answer[3]) <= 4096
            stream.sendall(packet(OKAY, 3, local))


def test_an_unknown_service_is_closed_with_local_id_0(port: int) -> None:
    with connected(port) as stream:
        stream.sendall(packet(OPEN, 5, 0, b"nonsense:\0"))
        assert read_packet(stream) == (CLSE, 0, 5, b"")


def test_a_write_to_a_closed_stream_is_answered_with_close(port: int) -> None:
    with connected(port) as stream:
        stream.sendall(packet(WRTE, 5, 4711, b"x"))
        assert read_packet(stream) == (CLSE, 0, 5, b"")


@pytest.mark.parametrize(
    "nonsense",
    [
        bytes(range(100, 124)),  # not a header
        packet(CNXN, 1, 2)[:20] + b"\0\0\0\0",  # wrong magic
        struct.pack("<6I", 0x4E584E43, 1, 2, 0xFFFFFFFF, 0, 0x4E584E43 ^ 0xFFFFFFFF),  # too long
        packet(OPEN, 1, 0, b"shell:id\0"),  # before CNXN
        packet(b"HELO", 1, 0),  # no such command
        b"GET / HTTP/1.1\r\nHost: phone\r\n\r\n",
    ],
)
def test_an_invalid_packet_ends_only_its_connection(port: int, nonsense: bytes) -> None:
    with connected(port, greet=nonsense[:4] == b"HELO") as stream:
        stream.sendall(nonsense)
        assert stream.recv(1) == b""
    assert ask(port, b"echo alive") == b"alive\n"


def test_random_bytes_after_the_greeting_have_no_effect(port: int) -> None:
    rng = random.Random(1)
    for _ in range(30):
        with connected(port) as stream:
            words = [CNXN, OPEN, OKAY, CLSE, WRTE, b"SYNC", b"AUTH"]
            for _ in range(rng.randrange(1, 8)):
                payload = rng.randbytes(rng.randrange(200))
                first, second = rng.randrange(4), rng.randrange(4)
                stream.sendall(packet(rng.choice(words), first, second, payload))
            stream.sendall(rng.randbytes(rng.randrange(100)))
    assert ask(port, b"echo alive") == b"alive\n"


def test_a_host_that_ignores_flow_control_is_disconnected(port: int) -> None:
    with connected(port) as stream:
        stream.sendall(packet(OPEN, 5, 0, b"shell:sleep 100000\0"))
        _, local, _, _ = read_packet(stream)
        flood = packet(WRTE, 5, local, b"x" * 60_000)
        with pytest.raises(ConnectionError):
            stream.sendall(flood * 1000)
    assert ask(port, b"echo alive") == b"alive\n"


def test_invalid_data_in_the_file_service_ends_the_stream(port: int) -> None:
    for request in (b"WHAT\x04\0\0\0abcd", b"SEND\xff\xff\0\0", b"SEND\x05\0\0\0/x,33NOPE\1\0\0\0"):
        with connected(port) as stream:
            stream.sendall(packet(OPEN, 5, 0, b"sync:\0"))
            _, local, _, _ = read_packet(stream)
            stream.sendall(packet(WRTE, 5, local, request))
            words: list[bytes] = []
            while not words or words[-1] != CLSE:
                word, _, _, payload = read_packet(stream)
                words.append(word)
                if word == WRTE:
                    assert payload.startswith(b"FAIL")
                    stream.sendall(packet(OKAY, 5, local))
    assert ask(port, b"echo alive") == b"alive\n"


def test_an_interrupted_push_leaves_no_file(phone: AdbPhone) -> None:
    target = b"/data/local/tmp/cut/half,33188"
    chunk = b"DATA" + struct.pack("<I", 65536) + b"x" * 65536
    for parts in (1, 5):
        with phone.host.open_service(phone.address, "sync:") as stream:
            stream.sendall(b"SEND" + struct.pack("<I", len(target)) + target + chunk * parts)
            stream.sendall(chunk[:1000])
    assert phone.run("cat /data/local/tmp/cut/half").status == 1
    phone.put("/data/local/tmp/cut/half", b"whole")
    with phone.host.open_service(phone.address, "sync:") as stream:
        stream.sendall(b"SEND" + struct.pack("<I", len(target)) + target + chunk)
    assert phone.out("cat /data/local/tmp/cut/half") == "whole"


def test_a_foreground_command_ends_with_its_stream(start_phone: StartPhone) -> None:
    phone = start_phone(speed=1.0)
    stream = phone.host.open_service(phone.address, "shell,v2,raw:sleep 90001")
    wait_until(lambda: "90001" in phone.out("ps -A -o args"), "it runs")
    stream.close()
    wait_until(lambda: "90001" not in phone.out("ps -A -o args"), "it died")


def test_a_detached_command_outlives_its_stream(phone: AdbPhone) -> None:
    pid = phone.out("setsid sleep 90002 >/dev/null 2>&1 </dev/null & echo $!")
    assert phone.out(f"cat /proc/{pid}/cmdline") == "sleep\x0090002\x00"
    phone.out(f"kill {pid}")
    assert phone.run(f"kill -0 {pid}").status == 1


def test_a_stream_stays_open_while_a_background_command_holds_its_output(phone: AdbPhone) -> None:
    """As on a phone: a background command whose output is not redirected keeps the stream open."""
    before = phone.uptime()
    assert phone.out("(sleep 20; echo late) & echo started") == "started\nlate"
    assert phone.uptime() - before >= 20
