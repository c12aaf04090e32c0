"""What really happened on a phone, as JSON lines outside the phone's own file system.

Append-only, and out of reach of whoever drives the phone: the independent witness of the tests.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO


class Journal:
    """One phone's witness; without a folder it stays silent."""

    def __init__(self, folder: Path | None, serial: str, model_now: Callable[[], float]) -> None:
        self._model_now = model_now
        self._serial = serial
        self._file: TextIO | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"{serial}.jsonl").open("a", encoding="utf-8")

    def write(self, event: str, **facts: object) -> None:
        """Append one line and let it reach the file before anything else happens."""
        if self._file is None:
            return
        line = {
            "event": event,
            "phone": self._serial,
            "model_s": round(self._model_now(), 6),
            "host_ns": time.monotonic_ns(),
            "wall": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **facts,
        }
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
