"""Random input at every level of the protocol: no crash, no hang, no effect on another phone."""

import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent.virtual.fleet_server import FleetConfig, FleetServer
from tests.virtual.adb_host import read_exactly
from tests.virtual.running_fleet import serve_fleet_in_thread
from tests.virtual.test_protocol import CLSE, CNXN, OKAY, OPEN, WRTE, packet, read_packet
from workloads.cli_options import EVENT_TIME

WAIT_S = 120.0
SERVICES = (
    b"shell:",
    b"shell,v2,raw:",
    b"shell,v2,TERM=x,pty:",
    b"exec:",
    b"sync:",
    b"reverse:forward:",
    b"reverse:list-forward",
    b"tcp:7",
    b"localabstract:echo",
    b"root:",
    b"framebuffer:",
    b"jdwp",
    b"",
)
# Fragments of scripts, combined at random; nothing that reboots or runs for long.
SCRAPS = (
    *("echo", "cat", "$(", ")", "`", "'", '"', "${x", "}", "$((", "))", "|", "&&", "||", ";", "&"),
    *("<<EOF\n", "EOF\n", "> /dev/null", "< /sys", "2>&1", "for i in 1 2; do", "done", "if", "fi"),
    *(
        "case x in",
        "esac",
        "f() {",
        "f",
        "while false; do",
        "[",
        "]",
        "-n",
        "*",
        "/sys/*",
        "~",
        "\\",
    ),
    *(
        "sed s/a/b/",
        "wc -l",
        "grep -E '('",
        "tr",
    ),
    *("set -e", "read x", "local", "return 300", "exit -1", "dd", "printf %s%d", "cut -f"),
    *("su -c", "taskset", "taskset zz true", "kill -0 $$", "top", "sort", "#", "\n", "\t", "\x00"),
    *(
        "settings put global x",
        "dumpsys",
        "getprop",
        "ls -la",
        "stat",
        "cd ..",
        "\udcff",
        "é",
        "$?",
    ),
)
WORDS = (b"STAT", b"LIST", b"SEND", b"RECV", b"LST2", b"SND2", b"RCV2", b"DATA", b"DONE", b"QUIT")


class Attacker:
    """One hostile host that reads little and never waits for long."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._rng = random.Random(seed)

    def attack(self) -> None:
        """Open one connection and send one kind of invalid data."""
        acts = (
            self._garbage,
            self._packets,
            self._services,
            self._scripts,
            self._files,
            self._auth,
        )
        with (
            suppress(OSError, EOFError),
            socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_S) as line,
        ):
            self._rng.choice(acts)(line)

    def _greet(self, line: socket.socket) -> None:
        size = self._rng.choice((0, 1, 4096, 1 << 20, 0xFFFFFFFF))
        version = self._rng.choice((0x01000000, 0x01000001, 0, 0xFFFFFFFF))
        line.sendall(packet(CNXN, version, size, self._rng.choice((b"host::", b"", b"\xff\0"))))
        read_packet(line)

    def _garbage(self, line: socket.socket) -> None:
        line.sendall(self._rng.randbytes(self._rng.randrange(1, 3000)))

    def _packets(self, line: socket.socket) -> None:
        self._greet(line)
        for _ in range(self._rng.randrange(1, 30)):
            word = self._rng.choice((CNXN, OPEN, OKAY, CLSE, WRTE, b"AUTH", b"SYNC", b"STLS"))
            first, second = (self._rng.choice((0, 1, 2, 3, 0xFFFFFFFF)) for _ in range(2))
            whole = packet(word, first, second, self._rng.randbytes(self._rng.randrange(64)))
            cut = self._rng.randrange(len(whole)) if self._rng.random() < 0.1 else len(whole)
            line.sendall(whole[:cut])

    def _auth(self, line: socket.socket) -> None:
        for kind in (2, 3, 2, 99):
            line.sendall(packet(b"AUTH", kind, 0, self._rng.randbytes(256)))

    def _services(self, line: socket.socket) -> None:
        self._greet(line)
        for local in range(1, self._rng.randrange(2, 12)):
            tail = self._rng.randbytes(self._rng.randrange(12)).replace(b"r", b"")
            line.sendall(packet(OPEN, local, 0, self._rng.choice(SERVICES) + tail + b"\0"))
            line.sendall(packet(WRTE, local, local, self._rng.randbytes(20)))

    def _scripts(self, line: socket.socket) -> None:
        self._greet(line)
        script = " ".join(self._rng.choices(SCRAPS, k=self._rng.randrange(1, 14)))
        raw = script.encode("utf-8", "surrogateescape")
        kind = self._rng.choice((b"shell:", b"shell,v2,raw:", b"exec:"))
        line.sendall(packet(OPEN, 1, 0, kind + raw + b"\0"))
        self._drain(line)

    def _files(self, line: socket.socket) -> None:
        self._greet(line)
        line.sendall(packet(OPEN, 1, 0, b"sync:\0"))
        _, local, _, _ = read_packet(line)
        requests = b""
        for _ in range(self._rng.randrange(1, 8)):
            path = self._rng.choice((b"/data/local/tmp/z,33188", b"/../..", b"/sys/x", b"\xff" * 9))
            length = len(path) if self._rng.random() < 0.8 else self._rng.randrange(1 << 32)
            requests += self._rng.choice(WORDS) + struct.pack("<I", length) + path
        line.sendall(packet(WRTE, 1, local, requests))
        self._drain(line)

    def _drain(self, line: socket.socket) -> None:
        """Read for a moment, acknowledge some of it, and leave without closing."""
        line.settimeout(0.02)
        with suppress(TimeoutError):
            for _ in range(self._rng.randrange(6)):
                word, first, second, _ = read_packet(line)
                if word == WRTE and self._rng.random() < 0.8:
                    line.sendall(packet(OKAY, second, first))


@contextmanager
def two_phones(journal: Path | None = None) -> Iterator[tuple[FleetServer, int, int]]:
    config = FleetConfig(("meizu-16t", "huawei-honor-8"), speed=EVENT_TIME, journal=journal)
    with serve_fleet_in_thread(config) as (fleet, (attacked, neighbour)):
        yield fleet, *(int(phone.address.rpartition(":")[2]) for phone in (attacked, neighbour))


def check_answer(port: int) -> None:
    """Check that a simple command is executed."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as line:
        line.sendall(packet(CNXN, 0x01000001, 1 << 20, b"host::"))
        read_packet(line)
        line.sendall(packet(OPEN, 1, 0, b"shell:echo alive\0"))
        assert read_packet(line)[0] == OKAY
        word, local, _, payload = read_packet(line)
        assert (word, payload) == (WRTE, b"alive\n")
        line.sendall(packet(OKAY, 1, local))
        assert read_packet(line)[0] == CLSE


def fuzz(attacks: int, first_seed: int, caught: pytest.LogCaptureFixture, journal: Path) -> None:
    """Attack one phone; it and its neighbour must keep answering."""
    with two_phones(journal) as (fleet, attacked, neighbour):
        for number in range(attacks):
            Attacker(attacked, first_seed + number).attack()
            if number % 25 == 24:
                check_answer(attacked)
                check_answer(neighbour)
        quiet = time.monotonic() + WAIT_S
        server = fleet.servers[0]
        while server.connections and time.monotonic() < quiet:
            time.sleep(0.01)
        assert not server.connections, "a connection hangs"
        names = [process.name for process in server.phone.processes.all() if process.pid >= 6000]
        assert not names, f"still running: {names}"
    wrong = [record.getMessage() for record in caught.records if record.levelname == "ERROR"]
    assert not wrong, wrong
    for file in journal.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            json.loads(line)


def test_a_short_fuzz_has_no_effect_on_other_phones(
    caplog: pytest.LogCaptureFixture, journal: Path, seed: int
) -> None:
    fuzz(100, seed, caplog, journal)


@pytest.mark.slow
def test_a_long_fuzz_has_no_effect_on_other_phones(
    caplog: pytest.LogCaptureFixture, journal: Path, seed: int
) -> None:
    fuzz(3000, seed, caplog, journal)


def test_half_a_packet_does_not_block_other_connections() -> None:
    greeting = packet(CNXN, 0x01000001, 1 << 20, b"host::")
    with (
        two_phones() as (_, attacked, neighbour),
        socket.create_connection(("127.0.0.1", attacked), timeout=WAIT_S) as line,
    ):
        line.sendall(greeting[:10])
        check_answer(attacked)
        check_answer(neighbour)
        line.sendall(greeting[10:])
        assert read_exactly(line, 4) == b"CNXN"
