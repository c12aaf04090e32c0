"""`guard`: the dead-man. Puts the phone back when the agent has been silent for too long, or when
the phone is hotter than it may be."""

import asyncio
import json
import signal

from agent.virtual.phone import Phone
from agent.virtual.processes import Process
from agent.virtual.runner.contract import Exit
from agent.virtual.timeline import Event

_LOOK_EVERY_S = 1.0
_WORK = "work"  # where a foreign program lies within DIR


class Guard:
    """Watches DIR/alive and DIR/restore in the phone's own time."""

    def __init__(self, phone: Phone, process: Process, folder: str, silence_s: float) -> None:
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._phone = phone
        self._process = process
        self._folder = folder
        self._silence_s = silence_s
        self._heard = phone.timeline.now
        self._alive = self._read("alive")
        self._event: Event | None = None
        self._too_hot_since: float | None = None

    def begin(self) -> None:
        self._look()

    def release(self) -> None:
        if self._event is not None:
            self._event.drop()
            self._event = None

    def _look(self) -> None:
        now = self._phone.timeline.now
        restore = self._read("restore")
        if restore is None:
            self.outcome.set_result(int(Exit.DONE))
            return
        alive = self._read("alive")
        if alive != self._alive:
            self._alive, self._heard = alive, now
        if now - self._heard >= self._silence_s or self._stays_too_hot(now):
            self._put_back(restore.decode("utf-8", "replace"))
            return
        due = min(now + _LOOK_EVERY_S, self._heard + self._silence_s)
        self._event = self._phone.timeline.at(due, self._look)

    def _stays_too_hot(self, now: float) -> bool:
        """Whether a limit is passed at two looks in a row, a second apart."""
        if not self._above_ceiling():
            self._too_hot_since = None
            return False
        if self._too_hot_since is None:
            self._too_hot_since = now
        return now - self._too_hot_since >= _LOOK_EVERY_S - 1e-6

    def _above_ceiling(self) -> bool:
        for line in (self._read("ceiling") or b"").decode("utf-8", "replace").splitlines():
            path, _, limit = line.partition("\t")
            try:
                value = self._phone.tree.read(path, self._process.uid)
                if int(value.split()[0]) > int(limit):
                    return True
            except (OSError, ValueError, IndexError):
                continue
        return False

    def _put_back(self, restore: str) -> None:
        self._phone.journal.write("guard_restores", folder=self._folder, pid=self._process.pid)
        self._kill_runner()
        tree, uid = self._phone.tree, self._process.uid
        for line in reversed(restore.splitlines()):
            path, tab, value = line.partition("\t")
            if tab:
                try:
                    tree.append(tree.open_for_writing(path, uid), f"{value}\n".encode(), uid)
                except OSError:
                    continue  # one stubborn node must not keep the others changed
        tree.rename(f"{self._folder}/restore", f"{self._folder}/restored", uid)
        self.outcome.set_result(int(Exit.GUARD_RESTORED))

    def _kill_runner(self) -> None:
        first = (self._read("out.jsonl") or b"").partition(b"\n")[0]
        try:
            pid = int(json.loads(first)["pid"])
        except (ValueError, KeyError, TypeError):
            return
        runner = self._phone.processes.find(pid)
        foreign = f"{self._folder}/{_WORK}/"
        if runner is not None and (
            "run" in runner.argv[1:2] or any(word.startswith(foreign) for word in runner.argv)
        ):
            self._phone.processes.kill(runner, signal.SIGKILL)

    def _read(self, name: str) -> bytes | None:
        try:
            return self._phone.tree.read(f"{self._folder}/{name}", self._process.uid)
        except OSError:
            return None
