"""The journal: what is about to be changed on a phone, and what stood there before.

Written and synced before the change, on the host for the next start of the agent, on the phone for
the dead-man. Putting back goes in reverse order and tries every part, whatever fails.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from agent.control.change import FORGOTTEN_AT_BOOT, Change, parse_changes
from agent.control.fence import fenced, refuse_newer
from agent.control.guard import LANE_DIR, SILENCE_S, Guard, lane_file
from agent.phone.nodes import THERMAL, first_number
from agent.phone.phone import (
    BOOT_ID,
    UPTIME,
    Answer,
    Command,
    Phone,
    reading,
    whole_nodes,
)
from agent.run.lines import hello_pid
from workloads.fault import ShellFailed
from workloads.noun import Noun
from workloads.text import safe_text

LIST_BYTES_MAX = 64 * 1024
# What shows whether a dead lane left anything behind on the phone.
LEFTOVER_LOOKS = (
    Command(["cat", lane_file("restore")]),
    Command(["cat", lane_file("settings")]),
    Command(["test", "-e", lane_file("restored")]),
    reading([UPTIME, BOOT_ID, lane_file("alive")]),
)
# Their names have to outlive a crash too; a shell without fsync makes all of the disk safe.
_SYNC = 'fsync "$0" "$@" 2>/dev/null || sync'
_IN_USE: set[Path] = set()  # a phone that comes back during its run is not a leftover


class Page(Noun):
    """The journal of one phone as it lies on the host's disk."""

    serial: str
    boot_id: str
    fence: int
    changes: tuple[Change, ...] = ()


class Journal:
    """The open journal of one lane."""

    def __init__(self, phone: Phone, state_dir: Path, page: Page, guard: Guard) -> None:
        self._phone = phone
        self._guard = guard
        self._file = journal_file(state_dir, page.serial)
        self.page = page

    def open(self) -> None:
        """Put the empty page on the disk."""
        _IN_USE.add(self._file)
        _write_synced(self._file, self.page)

    def close(self) -> None:
        """Leave the journal to whoever looks for leftovers."""
        _IN_USE.discard(self._file)

    def note(self, changes: Sequence[Change]) -> None:
        """Write down what is about to be changed; only then may it be changed.

        This is the gate before every change: fence and dead-man are looked at here.
        """
        if not changes:
            return
        self._guard.check()
        lists = sorted({_list_of(change) for change in changes})
        self.page = self.page.model_copy(update={"changes": (*self.page.changes, *changes)})
        _write_synced(self._file, self.page)
        for name in lists:
            lines = [change.line() for change in self.page.changes if _list_of(change) == name]
            self._phone.push("".join(lines).encode(), lane_file(name))
        self._phone.must(["sh", "-c", _SYNC, *map(lane_file, lists), LANE_DIR])

    def restore(self) -> None:
        """Put everything back and close the journal; it stays open when a part failed."""
        _put_back(self._phone, self.page, self.page.fence)
        self.forget()

    def forget(self) -> None:
        """Close the journal without touching the phone: somebody else has put it back."""
        self._file.unlink(missing_ok=True)


def journal_file(state_dir: Path, serial: str) -> Path:
    """Where a phone's journal lies on the host."""
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in serial)
    return state_dir / "journal" / f"{plain}.json"


def restore_leftovers(
    phone: Phone, state_dir: Path, ours: bool = False, seen: Sequence[Answer] | None = None
) -> bool:
    """Put back what a dead lane left changed, from either journal; say whether there was any.

    Harmless when there is nothing to do or a lane is at work, so it is called whenever a phone
    turns up. A lane that another host feeds is left alone, unless it is ours: we hold its lease.
    `seen` is what LEFTOVER_LOOKS showed, where somebody has looked already.
    """
    file = journal_file(state_dir, phone.known.serial)
    if file in _IN_USE:
        return False
    page = _read_page(file)
    on_phone = _phone_page(phone, seen or phone.batch(LEFTOVER_LOOKS))
    if page is None and (not on_phone.open or (on_phone.fed and not ours)):
        return False
    if page is None:
        changes = on_phone.changes
        page = Page(serial=phone.known.serial, boot_id=on_phone.boot_id, fence=0, changes=changes)
    elif on_phone.put_back:
        # The dead-man has put the nodes back; settings and services are beyond its reach.
        kept = tuple(change for change in page.changes if _list_of(change) != "restore")
        page = page.model_copy(update={"changes": kept})
    kill_runner(phone)
    _put_back(phone, page)
    file.unlink(missing_ok=True)
    return True


def _list_of(change: Change) -> str:
    """Nodes are the dead-man's to put back; the rest waits for an agent."""
    return "restore" if change.kind == "node" else "settings"


class _PhonePage(NamedTuple):
    """The journal as the phone has it."""

    open: bool
    put_back: bool
    fed: bool
    boot_id: str
    changes: tuple[Change, ...]


def _phone_page(phone: Phone, seen: Sequence[Answer]) -> _PhonePage:
    nodes, settings, restored, clock = seen
    found = [answer for answer in (settings, nodes) if answer.status == 0]
    times = whole_nodes(clock.text)
    now, alive = (
        first_number(times.get(UPTIME, "")),
        first_number(times.get(lane_file("alive"), "")),
    )
    silence_s = SILENCE_S * max(1.0, phone.clock.value)
    return _PhonePage(
        open=bool(found),
        put_back=restored.status == 0 and nodes.status != 0,
        fed=now is not None and alive is not None and 0 <= now - alive <= silence_s,
        boot_id=boot_of(seen),
        changes=tuple(change for answer in found for change in _listed(answer.text)),
    )


def boot_of(seen: Sequence[Answer]) -> str:
    """Which boot LEFTOVER_LOOKS saw."""
    return safe_text(whole_nodes(seen[-1].text).get(BOOT_ID, ""), 64)


def _listed(text: str) -> tuple[Change, ...]:
    return parse_changes(text[:LIST_BYTES_MAX])


def kill_runner(phone: Phone) -> None:
    """End a runner that outlived its lane; its pid may long belong to somebody else."""
    # A foreign program, the script that speaks for it, and the sampler beside it.
    beside = (f"{lane_file('work')}/", f"sh {lane_file('plan')}", f"sample {LANE_DIR}")
    phone.batch([Command(["pkill", "-9", "-f", words]) for words in beside])
    if phone.shell(["pkill", "-9", "-f", f"run {lane_file('plan')}"]).status in {0, 1}:
        return
    # A phone without pkill: trust what the runner itself said, if it came to speak.
    first = phone.shell(["head", "-n", "1", lane_file("out.jsonl")])
    pid = hello_pid(first.text) if first.status == 0 else None
    if pid is None:
        return
    name = phone.shell(["cat", f"/proc/{pid}/cmdline"])
    if name.status == 0 and "runner-" in name.text:
        phone.shell(["kill", "-9", str(pid)])


def _put_back(phone: Phone, page: Page, fence: int | None = None) -> None:
    boot_id = phone.boot_id() if page.changes else page.boot_id
    # After a reboot the kernel's nodes are as the kernel makes them; settings outlive it.
    fresh = bool(page.boot_id) and boot_id != page.boot_id
    passed = FORGOTTEN_AT_BOOT if fresh else frozenset()
    undone = [change for change in reversed(page.changes) if change.kind not in passed]
    failed = _undo(phone, undone) and _undo(phone, undone)  # a daemon may win the first round
    if failed:
        raise ShellFailed(f"{page.serial} was not put back in full: {'; '.join(failed)}")
    # The dead-man takes the missing list for our word that all is well, so it goes last.
    end = ["rm", "-f", lane_file("settings"), lane_file("restored"), lane_file("restore")]
    if fence is None:
        phone.shell(end)
    else:
        refuse_newer(phone.batch([fenced(fence, end)])[0], fence)


def _undo(phone: Phone, undone: Sequence[Change]) -> list[str]:
    """Put old values back and read them; say what did not take."""
    if not undone:
        return []
    # What was changed twice ends with its oldest value, which comes last.
    looked = {change.key: change for change in undone if change.look() is not None}
    looks = [look for change in looked.values() if (look := change.look()) is not None]
    answers = phone.batch([*(change.undo() for change in undone), *looks])
    refused = [
        f"{change.key} to '{safe_text(change.old, 40)}' ({safe_text(answer.text, 60)})"
        for change, answer in zip(undone, answers, strict=False)
        if answer.status != 0
    ]
    ignored = [
        f"{change.key} to '{safe_text(change.old, 40)}' (it says '{safe_text(answer.text, 40)}')"
        for change, answer in zip(looked.values(), answers[len(undone) :], strict=True)
        if answer.status == 0 and not change.is_undone(answer.text)
        if not _is_cap(phone, change, answer.text)
    ]
    return refused + ignored


def _is_cap(phone: Phone, change: Change, text: str) -> bool:
    """Whether a limit reads lower than it was set because the phone is too hot just now."""
    seen, old = first_number(text), first_number(change.old)
    if not change.key.endswith("_freq") or seen is None or old is None or seen > old:
        return False
    states = phone.find_nodes([f"{THERMAL}/cooling_device*/cur_state"])
    return any(first_number(state) for state in states.values())


def _write_synced(file: Path, page: Page) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("w") as stream:
        stream.write(page.model_dump_json())
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_page(file: Path) -> Page | None:
    try:
        return Page.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        # A torn page cannot be: it is renamed into place. Whatever this is, it is not ours.
        return None
