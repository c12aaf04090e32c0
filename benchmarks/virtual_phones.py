"""What virtual phones cost: memory, connecting, idling, answering, pushing, working.

    python -m benchmarks.virtual_phones [--phones 300] [--adb PATH]

Prints and asserts nothing. The phones live in one process of their own behind one stock adb server
of their own; what the phone alone can do is measured over raw ADB packets, with nothing between.
"""

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import adbutils  # type: ignore[import-untyped]

from agent.virtual.shelf import PhoneAddress, wait_until_ready
from tests.virtual.plans import HOME, RUNNER, a_plan

_MIB = 1 << 20
_PAYLOAD = 1 << 20
_IDLE_S = 5.0
_PUSH_MIB = 128
_ANSWERS = 1000


@dataclass(frozen=True)
class Lab:
    """Phones in a process of their own."""

    pid: int
    phones: list[PhoneAddress]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        row = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(row.split()[1]) / 1024

    def share_of_a_core(self, seconds: float) -> float:
        before, began = self.cpu_s(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_s() - before) / (time.monotonic() - began)


@contextmanager
def lab(*words: str) -> Iterator[Lab]:
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "agent.virtual", "up", *words, "--ready-file", str(ready)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield Lab(process.pid, wait_until_ready(process, ready))
            finally:
                process.terminate()


# -- raw ADB


class Wire:
    """One connection, packet by packet."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb", buffering=1 << 16)
        self._locals = 0
        self.send(b"CNXN", 0x01000001, _PAYLOAD, b"host::features=shell_v2,cmd,stat_v2")
        self.receive()

    def send(self, word: bytes, first: int, second: int, payload: bytes = b"") -> None:
        number = int.from_bytes(word, "little")
        header = struct.pack("<6I", number, first, second, len(payload), 0, number ^ 0xFFFFFFFF)
        self._socket.sendall(header + payload)

    def receive(self) -> tuple[bytes, int, bytes]:
        word, first, _, length, _, _ = struct.unpack("<6I", self._reader.read(24))
        return word.to_bytes(4, "little"), first, self._reader.read(length)

    def open(self, service: str) -> tuple[int, int]:
        self._locals += 1
        self.send(b"OPEN", self._locals, 0, service.encode() + b"\0")
        word, remote, _ = self.receive()
        assert word == b"OKAY", (service, word)
        return self._locals, remote

    def run(self, command: str) -> bytes:
        """A v2 shell from open to close."""
        local, remote = self.open(f"shell,v2,raw:{command}")
        said = b""
        while (packet := self.receive())[0] != b"CLSE":
            if packet[0] == b"WRTE":
                said += packet[2]
                self.send(b"OKAY", local, remote)
        self.send(b"CLSE", local, remote)
        return said

    def push(self, path: str, content: bytes, mode: int = 0o644) -> None:
        local, remote = self.open("sync:")
        target = f"{path},{0o100000 | mode}".encode()
        stream = bytearray(b"SEND" + struct.pack("<I", len(target)) + target)
        for start in range(0, len(content), 65536):
            chunk = content[start : start + 65536]
            stream += b"DATA" + struct.pack("<I", len(chunk)) + chunk
        stream += b"DONE" + struct.pack("<I", 0)
        for start in range(0, len(stream), _PAYLOAD):
            self.send(b"WRTE", local, remote, bytes(stream[start : start + _PAYLOAD]))
            while self.receive()[0] != b"OKAY":
                pass
        word, _, said = self.receive()
        assert (word, said[:4]) == (b"WRTE", b"OKAY"), said
        self.send(b"OKAY", local, remote)
        self.send(b"CLSE", local, remote)
        self.receive()


# -- what is measured


def connect_all(adb: Path, phones: list[PhoneAddress]) -> float:
    """Seconds until one adb server has every phone, asked by 32 threads at once."""
    with tempfile.TemporaryDirectory() as home, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        env = {**os.environ, "ADB_USB": "0", "ADB_EMU": "0", "HOME": home}
        command = [adb, "-P", str(port), "nodaemon", "server"]
        with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as server:
            try:
                while True:
                    try:
                        _ask(port, "host:version")
                        break
                    except OSError:
                        time.sleep(0.01)
                began = time.monotonic()
                with ThreadPoolExecutor(32) as pool:
                    list(pool.map(lambda p: _ask(port, f"host:connect:{p.address}"), phones))
                while _ask(port, "host:devices").count("\tdevice\n") < len(phones):
                    time.sleep(0.005)
                return time.monotonic() - began
            finally:
                server.terminate()


def _ask(port: int, request: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        line.sendall(f"{len(request):04x}{request}".encode())
        return b"".join(iter(lambda: line.recv(65536), b"")).decode()


def answer_ms(address: str) -> tuple[float, float]:
    """Median and 95th percentile of `shell true`."""
    wire = Wire(address)
    took = []
    for _ in range(_ANSWERS):
        began = time.perf_counter()
        wire.run("true")
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    return statistics.median(took), took[int(len(took) * 0.95)]


def push_mb_s(address: str) -> float:
    wire = Wire(address)
    content = os.urandom(_PUSH_MIB * _MIB)
    began = time.monotonic()
    wire.push("/data/local/tmp/much", content)
    rate = len(content) / 1e6 / (time.monotonic() - began)
    wire.run("rm /data/local/tmp/much")
    return rate


def start_work(address: str) -> None:
    """A run that goes on and on, with its sampler."""
    wire = Wire(address)
    wire.push(f"{HOME}/runner", RUNNER, 0o755)
    wire.push(f"{HOME}/plan", a_plan())
    listed = "ls -d /sys/class/thermal/thermal_zone*/temp /sys/class/power_supply/battery/*_now"
    clocks = "/sys/devices/system/cpu/cpufreq/policy*/scaling_*_freq"
    wire.run(f"mkdir -p {HOME}/dir; {listed} {clocks} > {HOME}/dir/nodes")
    wire.run(
        f"cd {HOME}; setsid taskset f0 ./runner run plan dir --seconds 90000 "
        "--max-seconds 90000 >/dev/null 2>&1 </dev/null &"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=300)
    parser.add_argument("--adb", type=Path, default=Path(adbutils.__file__).parent / "binaries/adb")
    asked = parser.parse_args()
    with lab("--phones", str(asked.phones)) as many:
        print(f"{len(many.phones)} phones, one process")
        print(f"  resident, before connecting   {many.resident_mb():8.0f} MB")
        print(f"  connect all, one adb server   {connect_all(asked.adb, many.phones):8.2f} s")
        print(f"  resident, afterwards          {many.resident_mb():8.0f} MB   (wanted: < 150)")
        print(f"  idle                          {many.share_of_a_core(_IDLE_S):8.1%} of a core")
        median, late = answer_ms(many.phones[0].address)
        print(f"  shell true, raw, p50 / p95    {median:8.2f} / {late:.2f} ms   (wanted: < 1)")
        rate = max(push_mb_s(many.phones[0].address) for _ in range(3))
        print(f"  push, raw, best of 3          {rate:8.0f} MB/s   (wanted: > 100)")
    six = ("meizu-16t", "xiaomi-mi-9", "samsung-s8-plus", "redmi-note-9-pro", "huawei-mate-30")
    with lab(*six, "huawei-honor-8", "--speed", "100") as working:
        for phone in working.phones:
            start_work(phone.address)
        time.sleep(1.0)
        print("6 phones at work, 100 times faster than life")
        print(f"  busy                          {working.share_of_a_core(_IDLE_S):8.1%} of a core")


if __name__ == "__main__":
    main()
