"""`runner watchdog`: the on-phone watchdog (dead-man's switch).

It restores the phone's settings when the agent's heartbeat stops or a temperature limit is
exceeded.
"""

import asyncio
import json
import signal

from agent.virtual.event_journal import JournalEvent
from agent.virtual.phone_clock import ScheduledAction
from agent.virtual.process_table import Process
from agent.virtual.runner.runner_contract import RunnerExit
from agent.virtual.virtual_phone import VirtualPhone

_CHECK_PERIOD_S = 1.0
_PROGRAM_FOLDER = "work"  # folder of a foreign program within DIR


class VirtualWatchdog:
    """Watches the files of DIR in phone time."""

    def __init__(
        self, phone: VirtualPhone, process: Process, folder: str, timeout_s: float
    ) -> None:
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._phone = phone
        self._process = process
        self._folder = folder
        self._timeout_s = timeout_s
        self._heartbeat_at = phone.clock.now
        self._last_heartbeat = self._read("heartbeat")
        self._next_check: ScheduledAction | None = None
        self._too_hot_since: float | None = None

    def start(self) -> None:
        self._check()

    def cancel(self) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None

    def _check(self) -> None:
        now = self._phone.clock.now
        restore = self._read("restore")
        if restore is None:
            self.outcome.set_result(int(RunnerExit.DONE))
            return
        heartbeat = self._read("heartbeat")
        if heartbeat != self._last_heartbeat:
            self._last_heartbeat, self._heartbeat_at = heartbeat, now
        if now - self._heartbeat_at >= self._timeout_s or self._stays_too_hot(now):
            self._restore(restore.decode("utf-8", "replace"))
            return
        due = min(now + _CHECK_PERIOD_S, self._heartbeat_at + self._timeout_s)
        self._next_check = self._phone.clock.schedule(due, self._check)

    def _stays_too_hot(self, now: float) -> bool:
        """Return whether a limit was exceeded in two checks in a row, a second apart."""
        if not self._is_above_limit():
            self._too_hot_since = None
            return False
        if self._too_hot_since is None:
            self._too_hot_since = now
        return now - self._too_hot_since >= _CHECK_PERIOD_S - 1e-6

    def _is_above_limit(self) -> bool:
        for line in (self._read("temp_limits") or b"").decode("utf-8", "replace").splitlines():
            path, _, limit = line.partition("\t")
            try:
                value = self._phone.tree.read(path, self._process.uid)
                if int(value.split()[0]) > int(limit):
                    return True
            except (OSError, ValueError, IndexError):
                continue
        return False

    def _restore(self, restore: str) -> None:
        self._phone.journal.write(
            JournalEvent.WATCHDOG_RESTORE, folder=self._folder, pid=self._process.pid
        )
        self._kill_runner()
        tree, uid = self._phone.tree, self._process.uid
        for line in reversed(restore.splitlines()):
            path, tab, value = line.partition("\t")
            if tab:
                try:
                    tree.append(tree.open_for_writing(path, uid), f"{value}\n".encode(), uid)
                except OSError:
                    continue  # one node that refuses must not keep the others changed
        tree.rename(f"{self._folder}/restore", f"{self._folder}/restored", uid)
        self.outcome.set_result(int(RunnerExit.GUARD_RESTORED))

    def _kill_runner(self) -> None:
        first = (self._read("out.jsonl") or b"").partition(b"\n")[0]
        try:
            pid = int(json.loads(first)["pid"])
        except (ValueError, KeyError, TypeError):
            return
        runner = self._phone.processes.find(pid)
        program_prefix = f"{self._folder}/{_PROGRAM_FOLDER}/"
        if runner is not None and (
            "run" in runner.argv[1:2]
            or any(word.startswith(program_prefix) for word in runner.argv)
        ):
            self._phone.processes.kill(runner, signal.SIGKILL)

    def _read(self, name: str) -> bytes | None:
        try:
            return self._phone.tree.read(f"{self._folder}/{name}", self._process.uid)
        except OSError:
            return None
