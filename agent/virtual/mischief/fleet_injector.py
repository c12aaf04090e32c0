"""The fault injector of a fleet: hands each planned fault to the phones that it is for.

The same seed draws the same phones, chances and delays, whatever else happens.
"""

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from agent.virtual.adb.phone_server import PhoneServer
from agent.virtual.mischief.fault_type import InjectionTarget, InvalidMischief
from agent.virtual.mischief.injector import PhoneInjector
from agent.virtual.mischief.mischief_script import MischiefPlan, parse_plan, read_mischief_script

_TIMEOUT_S = 20.0
Result = TypeVar("Result")


class FleetInjector:
    """Entry point for tests, scripts and the control socket; any thread may call it."""

    def __init__(self, servers: Sequence[PhoneServer], seed: int = 0) -> None:
        self._servers = {server.phone.serial: server for server in servers}
        self._seed = seed
        self._numbers = itertools.count(1)
        self._injectors: dict[str, PhoneInjector] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def bind_to_running_loop(self) -> None:
        """Remember the event loop and the thread that the phones run in."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()

    def run_script(self, path: Path) -> None:
        """Add every fault of a mischief script."""
        plans, seed = read_mischief_script(path)
        self._seed = self._seed if seed is None else seed
        for plan in plans:
            self._add(plan)

    def add(self, kind: str, **keys: object) -> int:
        """Add a fault with the keys of a script (`for_` for `for`); return its number."""
        return self.add_entry({"kind": kind, **{key.rstrip("_"): keys[key] for key in keys}})

    def add_entry(self, entry: Mapping[str, object]) -> int:
        """Add a fault with its keys in one mapping; return its number."""
        plan = parse_plan(entry)
        return self._run_in_loop(lambda: self._add(plan))

    def clear(self, number: int | None = None) -> int:
        """Stop one fault, or all; return how many there were."""
        injectors = self._injectors.values()
        return self._run_in_loop(lambda: sum(injector.clear(number) for injector in injectors))

    def _add(self, plan: MischiefPlan) -> int:
        number = next(self._numbers)
        serials = [
            serial
            for serial in self._servers
            if plan.matches_phone(serial)
            and (plan.some >= 1 or self._rng(number, serial).random() < plan.some)
        ]
        if not serials and plan.some >= 1:
            raise InvalidMischief(f"no phone matches {' or '.join(plan.phones)}", key="phones")
        for serial in serials:
            self._injector_for(serial).add(number, plan, self._rng(number, serial))
        return number

    def _injector_for(self, serial: str) -> PhoneInjector:
        if serial not in self._injectors:
            server = self._servers[serial]
            neighbours = tuple(other for other in self._servers if other != serial)
            self._injectors[serial] = PhoneInjector(
                InjectionTarget(server.phone, server, neighbours)
            )
        return self._injectors[serial]

    def _rng(self, number: int, serial: str) -> random.Random:
        return random.Random(f"{self._seed}:mischief {number}:{serial}")

    def _run_in_loop(self, work: Callable[[], Result]) -> Result:
        """Call a function in the thread that the phones run in."""
        if self._loop is None or threading.current_thread() is self._thread:
            return work()

        async def run_work() -> Result:
            return work()

        return asyncio.run_coroutine_threadsafe(run_work(), self._loop).result(_TIMEOUT_S)
