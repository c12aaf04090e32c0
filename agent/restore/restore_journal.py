"""RestoreJournal: what is about to be changed on a phone, and the old values.

It is written and synced before the change: on the host for the next start of the agent, on the
phone for the watchdog. Restoring goes in reverse order and attempts every change, whatever fails.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from agent.phone.kernel_nodes import THERMAL, first_number
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import (
    CHANGED_NODES,
    CHANGED_SETTINGS,
    LANE_DIR,
    RESTORED_MARK,
    lane_file,
)
from agent.restore.fence import fenced_command, raise_if_overtaken
from agent.restore.reversible_change import RESET_BY_REBOOT, ChangeKind, ReversibleChange
from agent.restore.watchdog import Watchdog
from workloads.protocol.base import WireModel
from workloads.protocol.faults import ShellFailed
from workloads.text import safe_text

# The directory entries have to survive a crash too; a shell without fsync syncs the whole disk.
_SYNC = 'fsync "$0" "$@" 2>/dev/null || sync'
_OPEN_FILES: set[Path] = set()  # a phone that reconnects during its run has no leftovers


class JournalRecord(WireModel):
    """The journal of one phone as stored on the host's disk."""

    serial: str
    boot_id: str
    fence: int
    changes: tuple[ReversibleChange, ...] = ()


class RestoreJournal:
    """The open journal of one lane."""

    def __init__(
        self, phone: Phone, state_dir: Path, record: JournalRecord, watchdog: Watchdog
    ) -> None:
        self._phone = phone
        self._watchdog = watchdog
        self._file = journal_file(state_dir, record.serial)
        self._record = record

    @property
    def changes(self) -> tuple[ReversibleChange, ...]:
        """Everything that was changed so far."""
        return self._record.changes

    def open(self) -> None:
        """Write the empty journal; it need not survive a power cut, because nothing is changed."""
        _OPEN_FILES.add(self._file)
        _write_file(self._file, self._record)

    def close(self) -> None:
        """Leave what is not restored to restore_leftovers."""
        _OPEN_FILES.discard(self._file)

    def record_changes(self, changes: Sequence[ReversibleChange]) -> None:
        """Write down what is about to be changed; only then may it be changed.

        Every change passes here, so fence and watchdog are checked here.
        """
        if not changes:
            return
        self._watchdog.check()
        lists = sorted({_list_of(change) for change in changes})
        self._record = self._record.model_copy(update={"changes": (*self.changes, *changes)})
        _write_file(self._file, self._record, synced=True)  # guard: journal-on-host
        for name in lists:
            lines = [change.line() for change in self.changes if _list_of(change) == name]
            content = "".join(lines).encode()
            self._phone.push(content, lane_file(name))  # guard: journal-on-phone
        self._phone.shell_checked(["sh", "-c", _SYNC, *map(lane_file, lists), LANE_DIR])

    def restore(self) -> None:
        """Restore everything and delete the journal; it stays if a part failed."""
        restore_changes(self._phone, self._record, self._record.fence)
        self.discard()

    def discard(self) -> None:
        """Delete the journal without touching the phone: another lane has restored it."""
        self._file.unlink(missing_ok=True)


def journal_file(state_dir: Path, serial: str) -> Path:
    """The file of a phone's journal on the host."""
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in serial)
    return state_dir / "journal" / f"{plain}.json"


def is_journal_open(file: Path) -> bool:
    """Whether a lane of this process has this journal open."""
    return file in _OPEN_FILES


def read_journal(file: Path) -> JournalRecord | None:
    """Read a journal from the host's disk; None if there is none."""
    try:
        return JournalRecord.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        # The journal is renamed into place, so an invalid file is not a torn journal of ours.
        return None


def without_nodes(changes: Sequence[ReversibleChange]) -> tuple[ReversibleChange, ...]:
    """The changes that the watchdog cannot restore."""
    return tuple(change for change in changes if change.kind is not ChangeKind.NODE)


def restore_changes(phone: Phone, record: JournalRecord, fence: int | None = None) -> None:
    """Restore the old values in reverse order, and delete the phone's own lists."""
    boot_id = phone.boot_id() if record.changes else record.boot_id
    # A reboot has reset the kernel's nodes; Android's settings survive it.
    rebooted = bool(record.boot_id) and boot_id != record.boot_id
    skipped = RESET_BY_REBOOT if rebooted else frozenset()
    changes = [change for change in reversed(record.changes) if change.kind not in skipped]
    # Twice: a daemon may overwrite the first attempt.
    failures = _undo(phone, changes) and _undo(phone, changes)
    if failures:
        text = f"not all settings of {record.serial} could be restored: {'; '.join(failures)}"
        raise ShellFailed(text)
    # The watchdog exits when the list of nodes is gone, so that is deleted last.
    lists = (CHANGED_SETTINGS, RESTORED_MARK, CHANGED_NODES)
    delete = ["rm", "-f", *map(lane_file, lists)]
    if fence is None:
        phone.shell(delete)
    else:
        raise_if_overtaken(phone.shell_batch([fenced_command(fence, delete)])[0], fence)


def _list_of(change: ReversibleChange) -> str:
    """The phone's list of a change: the watchdog restores nodes, an agent the rest."""
    return CHANGED_NODES if change.kind is ChangeKind.NODE else CHANGED_SETTINGS


def _undo(phone: Phone, changes: Sequence[ReversibleChange]) -> list[str]:
    """Restore old values, read them back, and return what failed."""
    if not changes:
        return []
    # A key that was changed twice ends with its oldest value, which comes last.
    checked = {change.key: change for change in changes}
    commands = {key: change.check_command() for key, change in checked.items()}
    checks = {command.line(): command for command in commands.values() if command is not None}
    undo = [change.undo_command() for change in changes]
    results = phone.shell_batch([*undo, *checks.values()])
    shown = dict(zip(checks, results[len(undo) :], strict=True))
    undone, ignored = set(), []
    for key, command in commands.items():
        result = shown[command.line()] if command is not None else None
        change = checked[key]
        if result is None or result.status != 0:
            continue
        if change.is_undone(result.text):
            undone.add(key)
        elif not _is_thermal_cap(phone, change, result.text):
            value = safe_text(change.shown_value(result.text), 40)
            ignored.append(f"{key} to '{safe_text(change.old, 40)}' (it is '{value}')")
    # A phone that refused the change refuses the old value too, and still has it.
    refused = [
        f"{change.key} to '{safe_text(change.old, 40)}' ({safe_text(result.text, 60)})"
        for change, result in zip(changes, results, strict=False)
        if result.status != 0 and change.key not in undone
    ]
    return refused + ignored  # guard: restored-value-read-back


def _is_thermal_cap(phone: Phone, change: ReversibleChange, text: str) -> bool:
    """Whether a clock limit reads lower than it was set because the phone is too hot just now."""
    value, old = first_number(text), first_number(change.old)
    if not change.key.endswith("_freq") or value is None or old is None or value > old:
        return False
    states = phone.find_nodes([f"{THERMAL}/cooling_device*/cur_state"])
    return any(first_number(state) for state in states.values())


def _write_file(file: Path, record: JournalRecord, synced: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("w") as stream:
        stream.write(record.model_dump_json())
        stream.flush()
        if synced:
            os.fsync(stream.fileno())
    part.replace(file)
    if not synced:
        return
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
