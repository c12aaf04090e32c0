"""A running fleet of virtual phones as a context manager: in a thread, or in a child process."""

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.virtual.fleet_server import FleetConfig, FleetServer, PhoneAddress
from agent.virtual.phone_loop import PhoneLoop
from workloads.cli_options import speed_text

_READY_S = 120.0


@contextmanager
def serve_fleet_in_thread(config: FleetConfig) -> Iterator[tuple[FleetServer, list[PhoneAddress]]]:
    """Run phones in a thread of this process, for tests that inspect them."""
    loop = PhoneLoop()
    thread = threading.Thread(target=loop.run_forever, name="fleet", daemon=True)
    thread.start()

    async def start_fleet() -> tuple[FleetServer, list[PhoneAddress]]:
        fleet = FleetServer(config)
        return fleet, await fleet.start()

    fleet, addresses = asyncio.run_coroutine_threadsafe(start_fleet(), loop).result(_READY_S)
    try:
        yield fleet, addresses
    finally:
        asyncio.run_coroutine_threadsafe(fleet.stop(), loop).result(_READY_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_READY_S)
        loop.close()


@contextmanager
def serve_fleet_in_process(config: FleetConfig) -> Iterator[list[PhoneAddress]]:
    """Run phones in a child process, as `farm virtual up` starts them."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "agent.virtual", "up", *config.profiles]
        command += ["--count", str(config.count), "--speed", speed_text(config.speed)]
        command += ["--seed", str(config.seed), "--ready-file", str(ready)]
        command += ["--stock"] * config.stock + ["--native"] * config.native
        if config.port_base:
            command += ["--port-base", str(config.port_base)]
        if config.journal is not None:
            command += ["--journal", str(config.journal)]
        if config.mischief is not None:
            command += ["--mischief", str(config.mischief)]
        if config.control is not None:
            command += ["--control", str(config.control)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                yield wait_until_ready(process, ready)
            finally:
                process.terminate()


def wait_until_ready(process: "subprocess.Popen[bytes]", ready_file: Path) -> list[PhoneAddress]:
    deadline = time.monotonic() + _READY_S
    while not ready_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the phones did not start (exit status {process.returncode})")
        time.sleep(0.01)
    return [PhoneAddress(**entry) for entry in json.loads(ready_file.read_text())]
