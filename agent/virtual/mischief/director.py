"""The mischief of a whole shelf: plans go in, each phone that they are for gets its imp.

The same seed draws the same phones, chances and delays, whatever else happens.
"""

import asyncio
import itertools
import json
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from agent.virtual.adb.server import PhoneServer
from agent.virtual.mischief.effect import BadMischief, Victim
from agent.virtual.mischief.imp import Imp
from agent.virtual.mischief.script import Plan, read_plan, read_script

_ANSWER_S = 20.0
Said = TypeVar("Said")


class Mischief:
    """What tests, the script and the control socket speak to; safe to call from any thread."""

    def __init__(self, doors: Sequence[PhoneServer], seed: int = 0) -> None:
        self._doors = {door.phone.serial: door for door in doors}
        self._seed = seed
        self._numbers = itertools.count(1)
        self._imps: dict[str, Imp] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Note whose thread the phones live in."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()

    def run_script(self, path: Path) -> None:
        """Take on all plans of a file."""
        plans, seed = read_script(path)
        self._seed = self._seed if seed is None else seed
        for plan in plans:
            self._add(plan)

    def add(self, kind: str, **words: object) -> int:
        """Make trouble, with the words of a script (`for_` for `for`); answer its number."""
        return self.ask({"kind": kind, **{key.rstrip("_"): words[key] for key in words}})

    def ask(self, words: Mapping[str, object]) -> int:
        """The same, with the words in one mapping."""
        plan = read_plan(words)
        return self._inside(lambda: self._add(plan))

    def clear(self, number: int | None = None, phone: str | None = None) -> int:
        """Take trouble back: one number, one phone, or all; answer how much there was."""

        def clear() -> int:
            chosen = [imp for serial, imp in self._imps.items() if phone in (None, serial)]
            return sum(imp.clear(number) for imp in chosen)

        return self._inside(clear)

    def list(self) -> Sequence[dict[str, object]]:
        """Every prank on every phone."""
        return self._inside(
            lambda: [prank for imp in self._imps.values() for prank in imp.describe()]
        )

    def tail(self, phone: str, lines: int = 20) -> Sequence[object]:
        """The last lines of a phone's journal."""
        door = self._doors.get(phone)
        if door is None:
            raise BadMischief(f"there is no phone {phone}; there are {', '.join(self._doors)}")
        if door.phone.journal.path is None:
            raise BadMischief("the phones keep no journal; start them with --journal")
        with door.phone.journal.path.open(encoding="utf-8") as journal:
            return [json.loads(line) for line in deque(journal, maxlen=lines)]

    def _add(self, plan: Plan) -> int:
        number = next(self._numbers)
        chosen = [
            serial
            for serial in self._doors
            if plan.is_for(serial)
            and (plan.some >= 1 or self._dice(number, serial).random() < plan.some)
        ]
        if not chosen and plan.some >= 1:
            raise BadMischief(f"no phone is called {' or '.join(plan.phones)}")
        for serial in chosen:
            self._imp(serial).add(number, plan, self._dice(number, serial))
        return number

    def _imp(self, serial: str) -> Imp:
        if serial not in self._imps:
            door = self._doors[serial]
            others = tuple(other for other in self._doors if other != serial)
            self._imps[serial] = Imp(Victim(door.phone, door, others))
        return self._imps[serial]

    def _dice(self, number: int, serial: str) -> random.Random:
        return random.Random(f"{self._seed}:mischief {number}:{serial}")

    def _inside(self, work: Callable[[], Said]) -> Said:
        """Do something in the phones' own thread."""
        if self._loop is None or threading.current_thread() is self._thread:
            return work()

        async def awaited() -> Said:
            return work()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(_ANSWER_S)
