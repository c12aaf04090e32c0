"""Commands over a line with a round trip of 200 ms."""

import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.app.operation import Role
from tests.api.conftest import ApiLab

ROUND_TRIP_S = 0.2
LIMIT_S = 3.0
COMMANDS = [
    ("sweep", "list"),
    ("sweep", "show", "small"),
    ("phone", "list"),
    ("sweep", "submit", "examples/smoke.yaml"),
    ("sweep", "pause", "smoke"),
    ("sweep", "cancel", "smoke", "--yes"),
    ("phone", "tag", "VM16", "paper"),
]


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Pass data on, each piece half a round trip after it came."""
    pieces: queue.Queue[tuple[float, bytes]] = queue.Queue()

    def deliver() -> None:
        with suppress(OSError):
            while (piece := pieces.get())[1]:
                time.sleep(max(0.0, piece[0] - time.monotonic()))
                target.sendall(piece[1])
            target.shutdown(socket.SHUT_WR)

    threading.Thread(target=deliver, daemon=True).start()
    with suppress(OSError):
        while data := source.recv(65536):
            pieces.put((time.monotonic() + ROUND_TRIP_S / 2, data))
    pieces.put((0.0, b""))


@contextmanager
def distant(address: tuple[str, int]) -> Iterator[int]:
    """Listen on a port that leads to the address; a connection takes a whole round trip."""
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                near, _ = server.accept()
            except OSError:
                return
            time.sleep(ROUND_TRIP_S)
            far = socket.create_connection(address)
            for ends in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


@pytest.mark.slow
def test_commands_are_quick_at_a_distance(served: ApiLab, tmp_path: Path) -> None:
    took = {}
    with distant(served.address) as port:
        variables = {
            "FARM_API": f"http://127.0.0.1:{port}",
            "FARM_TOKEN": served.tokens[Role.OPERATOR],
            "FARM_LAB": str(tmp_path / "none"),
        }
        for words in COMMANDS:
            started = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "orchestrator", *words],
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=False,
            )
            took[" ".join(words)] = time.monotonic() - started
            assert done.returncode == 0, done.stderr
    assert max(took.values()) < LIMIT_S, took
    sys.stderr.write(f"{took}\n")
