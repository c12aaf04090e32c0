"""What really happened on a phone, as JSON lines outside the phone's own file system.

Append-only, and out of reach of whoever drives the phone: the independent witness of the tests.
Every line has `event`, `phone` (its serial), `model_s` (the phone's clock), `host_ns` (ours) and
`wall`. The events:

    boot, off, reboot, adbd, service   the phone and its daemons come, go, restart
    connect, disconnect, open          a host; a service it opened, by name
    process_start, process_exec        pid, parent, session, uid, argv, mask, clocks in kHz
    process_stop                       pid, status
    affinity                           pid, mask: moved to other cores
    run_start, run_stop, guard_restores, low_memory_kill   what the runner did or suffered
    sysfs                              path, old, new, text, uid, fault: a node was written
    file                               path, how (create, write, append), uid, and the text written
    remove, rename, folder, link       paths and uid: locks and fences are files like any other
    push, pushed                       path, bytes, fault: the file service
    setting, property                  what the framework was told
    unknown_command                    argv that the phone does not have
    mischief_*                         trouble that was made, by whom nobody on the phone knows
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
        self.path: Path | None = None
        self.listener: Callable[[str, dict[str, object]], None] | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = folder / f"{serial}.jsonl"
            self._file = self.path.open("a", encoding="ascii")

    def write(self, event: str, **facts: object) -> None:
        """Append one line and let it reach the file before anything else happens."""
        if self._file is not None:
            self._append(event, facts)
        if self.listener is not None:
            self.listener(event, facts)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, event: str, facts: dict[str, object]) -> None:
        assert self._file is not None
        line = {
            "event": event,
            "phone": self._serial,
            "model_s": round(self._model_now(), 6),
            "host_ns": time.monotonic_ns(),
            "wall": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **facts,
        }
        # Escaped, whatever a host sent: some characters end a line for one reader and not another.
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
