"""Restore what a dead lane left changed on a phone, by the host's journal or the phone's lists."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agent.phone.kernel_nodes import first_number
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import (
    BOOT_ID,
    CHANGED_NODES,
    CHANGED_SETTINGS,
    HEARTBEAT,
    LANE_DIR,
    OUTPUT,
    PLAN,
    PROGRAM_DIR,
    RESTORED_MARK,
    UPTIME,
    lane_file,
)
from agent.phone.shell_command import (
    ShellCommand,
    ShellResult,
    parse_complete_nodes,
    read_nodes_command,
)
from agent.restore.restore_journal import (
    JournalRecord,
    is_journal_open,
    journal_file,
    read_journal,
    restore_changes,
    without_nodes,
)
from agent.restore.reversible_change import ReversibleChange, parse_changes
from workloads.text import safe_text

LIST_BYTES_MAX = 64 * 1024
PID_MAX = 2**22
# The commands that show whether a dead lane left anything behind on the phone.
LEFTOVER_QUERIES = (
    ShellCommand(["cat", lane_file(CHANGED_NODES)]),
    ShellCommand(["cat", lane_file(CHANGED_SETTINGS)]),
    ShellCommand(["test", "-e", lane_file(RESTORED_MARK)]),
    read_nodes_command([UPTIME, BOOT_ID, lane_file(HEARTBEAT)]),
)


def restore_leftovers(
    phone: Phone, state_dir: Path, ours: bool = False, results: Sequence[ShellResult] | None = None
) -> bool:
    """Restore what a dead lane left changed; return whether there was anything.

    Harmless if there is nothing to do or a lane is at work, so it is called whenever a phone
    appears. A lane that another host keeps alive is left alone, unless we hold the phone's lease
    (`ours`). `results` are those of LEFTOVER_QUERIES if the caller has them already.
    """
    file = journal_file(state_dir, phone.facts.serial)
    if is_journal_open(file):
        return False
    record = read_journal(file)
    on_phone = _parse_phone_lists(phone, results or phone.shell_batch(LEFTOVER_QUERIES))
    if record is None and (not on_phone.exists or (on_phone.alive and not ours)):
        return False
    if record is None:
        record = JournalRecord(
            serial=phone.facts.serial, boot_id=on_phone.boot_id, fence=0, changes=on_phone.changes
        )
    elif on_phone.restored:
        # The watchdog has restored the nodes; it cannot restore settings and services.
        record = record.model_copy(update={"changes": without_nodes(record.changes)})
    kill_leftover_processes(phone)
    restore_changes(phone, record)
    file.unlink(missing_ok=True)
    return True


class _PhoneLists(NamedTuple):
    """The journal as stored on the phone."""

    exists: bool
    restored: bool  # the watchdog has restored the nodes
    alive: bool  # an agent has sent a heartbeat recently
    boot_id: str
    changes: tuple[ReversibleChange, ...]


def _parse_phone_lists(phone: Phone, results: Sequence[ShellResult]) -> _PhoneLists:
    nodes, settings, restored, times = results
    lists = [result for result in (settings, nodes) if result.status == 0]
    values = parse_complete_nodes(times.text)
    now = first_number(values.get(UPTIME, ""))
    heartbeat = first_number(values.get(lane_file(HEARTBEAT), ""))
    timeout_s = phone.timeouts.watchdog_timeout_s
    return _PhoneLists(
        exists=bool(lists),
        restored=restored.status == 0 and nodes.status != 0,
        alive=now is not None and heartbeat is not None and 0 <= now - heartbeat <= timeout_s,
        boot_id=parse_boot_id(results),
        changes=tuple(
            change for result in lists for change in parse_changes(result.text[:LIST_BYTES_MAX])
        ),
    )


def parse_boot_id(results: Sequence[ShellResult]) -> str:
    """The boot id in the results of LEFTOVER_QUERIES."""
    return safe_text(parse_complete_nodes(results[-1].text).get(BOOT_ID, ""), 64)


def kill_leftover_processes(phone: Phone) -> None:
    """Kill a runner or program whose lane is gone; its pid may long belong to another process."""
    # An external program, the script that started it, and the sampler beside it.
    patterns = (f"{lane_file(PROGRAM_DIR)}/", f"sh {lane_file(PLAN)}", f"sample {LANE_DIR}")
    phone.shell_batch([ShellCommand(["pkill", "-9", "-f", pattern]) for pattern in patterns])
    if phone.shell(["pkill", "-9", "-f", f"run {lane_file(PLAN)}"]).status in {0, 1}:
        return
    # A phone without pkill: use the pid in the runner's first record, if it wrote one.
    first = phone.shell(["head", "-n", "1", lane_file(OUTPUT)])
    pid = _runner_pid(first.text) if first.status == 0 else None
    if pid is None:
        return
    command_line = phone.shell(["cat", f"/proc/{pid}/cmdline"])
    if command_line.status == 0 and "runner-" in command_line.text:
        phone.shell(["kill", "-9", str(pid)])


def _runner_pid(first_line: str) -> int | None:
    """The pid in a runner's hello record; None if the line is not one."""
    try:
        record = json.loads(first_line)
    except (ValueError, RecursionError):
        return None
    pid = record.get("pid") if isinstance(record, dict) else None
    return pid if type(pid) is int and 2 <= pid <= PID_MAX else None
