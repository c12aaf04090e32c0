"""Measures what virtual phones cost: memory, connecting, idling, answering, pushing, running.

    python -m benchmarks.virtual_phones [--phones 300] [--adb PATH]

Prints figures and asserts nothing. The phones run in one process behind one stock adb server;
what a phone alone can do is measured with raw ADB packets, without an adb server in between.
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

from agent.virtual.fleet_server import PhoneAddress
from tests.virtual.running_fleet import wait_until_ready
from tests.virtual.sample_plans import HOME, RUNNER, a_plan

_MIB = 1 << 20
_PAYLOAD = 1 << 20
_IDLE_S = 5.0
_PUSH_MIB = 128
_ANSWERS = 1000


@dataclass(frozen=True)
class PhoneProcess:
    """A process with virtual phones."""

    pid: int
    phones: list[PhoneAddress]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        row = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(row.split()[1]) / 1024

    def core_share(self, seconds: float) -> float:
        cpu_before, started = self.cpu_s(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_s() - cpu_before) / (time.monotonic() - started)


@contextmanager
def run_phones(*words: str) -> Iterator[PhoneProcess]:
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "agent.virtual", "up", *words, "--ready-file", str(ready)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield PhoneProcess(process.pid, wait_until_ready(process, ready))
            finally:
                process.terminate()


# -- raw ADB


class RawConnection:
    """One ADB connection, packet by packet."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb", buffering=1 << 16)
        self._last_local_id = 0
        self.send(b"CNXN", 0x01000001, _PAYLOAD, b"host::features=shell_v2,cmd,stat_v2")
        self.receive()

    def send(self, command: bytes, arg0: int, arg1: int, payload: bytes = b"") -> None:
        number = int.from_bytes(command, "little")
        header = struct.pack("<6I", number, arg0, arg1, len(payload), 0, number ^ 0xFFFFFFFF)
        self._socket.sendall(header + payload)

    def receive(self) -> tuple[bytes, int, bytes]:
        command, arg0, _, length, _, _ = struct.unpack("<6I", self._reader.read(24))
        return command.to_bytes(4, "little"), arg0, self._reader.read(length)

    def open(self, service: str) -> tuple[int, int]:
        self._last_local_id += 1
        self.send(b"OPEN", self._last_local_id, 0, service.encode() + b"\0")
        command, remote, _ = self.receive()
        assert command == b"OKAY", (service, command)
        return self._last_local_id, remote

    def run(self, command: str) -> bytes:
        """Run a command over shell v2; return its packets."""
        local, remote = self.open(f"shell,v2,raw:{command}")
        output = b""
        while (packet := self.receive())[0] != b"CLSE":
            if packet[0] == b"WRTE":
                output += packet[2]
                self.send(b"OKAY", local, remote)
        self.send(b"CLSE", local, remote)
        return output

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
        command, _, answer = self.receive()
        assert (command, answer[:4]) == (b"WRTE", b"OKAY"), answer
        self.send(b"OKAY", local, remote)
        self.send(b"CLSE", local, remote)
        self.receive()


# -- measurements


def connect_all(adb: Path, phones: list[PhoneAddress]) -> float:
    """Return the seconds until one adb server has connected every phone, with 32 threads."""
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
                        _request(port, "host:version")
                        break
                    except OSError:
                        time.sleep(0.01)
                started = time.monotonic()
                with ThreadPoolExecutor(32) as pool:
                    list(pool.map(lambda p: _request(port, f"host:connect:{p.address}"), phones))
                while _request(port, "host:devices").count("\tdevice\n") < len(phones):
                    time.sleep(0.005)
                return time.monotonic() - started
            finally:
                server.terminate()


def _request(port: int, request: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.sendall(f"{len(request):04x}{request}".encode())
        return b"".join(iter(lambda: stream.recv(65536), b"")).decode()


def answer_ms(address: str) -> tuple[float, float]:
    """Return median and 95th percentile of `shell true` in milliseconds."""
    connection = RawConnection(address)
    times_ms = []
    for _ in range(_ANSWERS):
        started = time.perf_counter()
        connection.run("true")
        times_ms.append((time.perf_counter() - started) * 1000)
    times_ms.sort()
    return statistics.median(times_ms), times_ms[int(len(times_ms) * 0.95)]


def push_mb_s(address: str) -> float:
    connection = RawConnection(address)
    content = os.urandom(_PUSH_MIB * _MIB)
    started = time.monotonic()
    connection.push("/data/local/tmp/large", content)
    rate = len(content) / 1e6 / (time.monotonic() - started)
    connection.run("rm /data/local/tmp/large")
    return rate


def start_run(address: str) -> None:
    """Start a long run with its sampler."""
    connection = RawConnection(address)
    connection.push(f"{HOME}/runner", RUNNER, 0o755)
    connection.push(f"{HOME}/plan", a_plan())
    list_sensors = (
        "ls -d /sys/class/thermal/thermal_zone*/temp /sys/class/power_supply/battery/*_now"
    )
    clocks = "/sys/devices/system/cpu/cpufreq/policy*/scaling_*_freq"
    connection.run(f"mkdir -p {HOME}/dir; {list_sensors} {clocks} > {HOME}/dir/nodes")
    connection.run(
        f"cd {HOME}; setsid taskset f0 ./runner run plan dir --seconds 90000 "
        "--max-seconds 90000 >/dev/null 2>&1 </dev/null &"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=300)
    parser.add_argument("--adb", type=Path, default=Path(adbutils.__file__).parent / "binaries/adb")
    options = parser.parse_args()
    with run_phones("--phones", str(options.phones)) as fleet:
        print(f"{len(fleet.phones)} phones, one process")
        print(f"  resident, before connecting   {fleet.resident_mb():8.0f} MB")
        print(f"  connect all, one adb server   {connect_all(options.adb, fleet.phones):8.2f} s")
        print(f"  resident, afterwards          {fleet.resident_mb():8.0f} MB   (target: < 150)")
        print(f"  idle                          {fleet.core_share(_IDLE_S):8.1%} of a core")
        median, p95 = answer_ms(fleet.phones[0].address)
        print(f"  shell true, raw, p50 / p95    {median:8.2f} / {p95:.2f} ms   (target: < 1)")
        rate = max(push_mb_s(fleet.phones[0].address) for _ in range(3))
        print(f"  push, raw, best of 3          {rate:8.0f} MB/s   (target: > 100)")
    six = ("meizu-16t", "xiaomi-mi-9", "samsung-s8-plus", "redmi-note-9-pro", "huawei-mate-30")
    with run_phones(*six, "huawei-honor-8", "--speed", "100") as running:
        for phone in running.phones:
            start_run(phone.address)
        time.sleep(1.0)
        print("6 phones with a run each, at 100 times real time")
        print(f"  busy                          {running.core_share(_IDLE_S):8.1%} of a core")


if __name__ == "__main__":
    main()
