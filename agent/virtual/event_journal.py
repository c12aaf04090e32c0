"""The journal of one virtual phone: what really happened on it, as JSON lines on the host.

The journal is append-only and lies outside the phone's file system, so the program under test can
neither read nor change it. Tests use it as an independent witness.

Every line has `event` (see JournalEvent), `phone` (its serial number), `model_s` (phone time),
`host_ns` (the host's monotonic clock) and `wall_time` (UTC), and the facts of its event.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TextIO


class JournalEvent(StrEnum):
    """What can happen on a phone; the comments name the facts of each event."""

    BOOT = "boot"  # boot_id, profile
    REBOOT = "reboot"  # mode: the phone goes down
    POWER_OFF = "power_off"
    ADBD_RESTART = "adbd_restart"  # uid: adb root or adb unroot
    INIT_SERVICE = "init_service"  # name, running
    FRAMEWORK_MODE = "framework_mode"  # name, on: doze, data saver, dexopt
    FIXED_PERFORMANCE = "fixed_performance"  # enabled
    SETTING_WRITE = "setting_write"  # namespace, name, old, new
    PROPERTY_WRITE = "property_write"  # name, new
    ADB_CONNECT = "adb_connect"  # peer
    ADB_DISCONNECT = "adb_disconnect"
    ADB_SERVICE = "adb_service"  # name of the service that the host opened
    PUSH_START = "push_start"  # path
    PUSH_END = "push_end"  # path, bytes, error, text (of a short file)
    PROCESS_START = "process_start"  # pid, parent, session, uid, argv, mask, clocks in kHz
    PROCESS_EXEC = "process_exec"  # the same
    PROCESS_AFFINITY = "process_affinity"  # the same: the process moved to other cores
    PROCESS_STOP = "process_stop"  # pid, status
    UNKNOWN_COMMAND = "unknown_command"  # argv, uid: a command that the phone does not have
    LOW_MEMORY_KILL = "low_memory_kill"  # pid
    RUN_START = "run_start"  # pid, case, mask, threads, expected_s
    RUN_STOP = "run_stop"  # pid, reason
    WATCHDOG_RESTORE = "watchdog_restore"  # pid, folder
    SYSFS_WRITE = "sysfs_write"  # path, old, new, text, uid; error if the kernel refused it
    FILE_WRITE = "file_write"  # path, operation, bytes, text, uid
    FILE_REMOVE = "file_remove"  # path, uid
    FILE_RENAME = "file_rename"  # path, target, uid
    DIRECTORY_CREATE = "directory_create"  # path, uid
    LINK_CREATE = "link_create"  # path, target, uid
    MISCHIEF_START = "mischief_start"  # id, kind, options
    MISCHIEF_STOP = "mischief_stop"  # id, kind, reason
    MISCHIEF_ERROR = "mischief_error"  # id, kind, reason


class EventJournal:
    """The journal of one phone; without a folder nothing is written."""

    def __init__(self, folder: Path | None, serial: str, model_time: Callable[[], float]) -> None:
        self._model_time = model_time
        self._serial = serial
        self._file: TextIO | None = None
        self.path: Path | None = None
        self.listener: Callable[[str, dict[str, object]], None] | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = folder / f"{serial}.jsonl"
            self._file = self.path.open("a", encoding="ascii")

    def write(self, event: JournalEvent, **facts: object) -> None:
        """Append one line and flush it, then tell the listener."""
        if self._file is not None:
            self._append(event, facts)
        if self.listener is not None:
            self.listener(event, facts)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, event: JournalEvent, facts: dict[str, object]) -> None:
        assert self._file is not None
        line = {
            "event": event,
            "phone": self._serial,
            "model_s": round(self._model_time(), 6),
            "host_ns": time.monotonic_ns(),
            "wall_time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **facts,
        }
        # JSON escapes everything but ASCII: hosts send characters that end a line for some readers
        # (such as U+2028) and not for others.
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
