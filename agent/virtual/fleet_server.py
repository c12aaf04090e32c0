"""A shelf of phones in one process: start them, say where they listen, stop them.

Tests and demos take a whole shelf as a context manager, in a thread or as a process.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agent.virtual.adb.authority import PublicKey, read_public_key
from agent.virtual.adb.server import PhoneServer
from agent.virtual.mischief.control import ControlSocket
from agent.virtual.mischief.director import Mischief
from agent.virtual.phone import Phone
from agent.virtual.profiles import load_profile
from agent.virtual.specs import PhoneSpec, read_words

_READY_S = 20.0
_NATIVE_BOOT_S = 1.0


@dataclass(frozen=True, slots=True)
class ShelfPlan:
    """Which phones to put on the shelf: PROFILE[:MANNER]..[=SERIAL] words, or specs."""

    profiles: tuple[str, ...] = ()
    count: int = 1
    speed: float = 1.0
    port_base: int = 0
    journal: Path | None = None
    seed: int = 0
    phones: tuple[PhoneSpec, ...] = ()
    stock: bool = False  # all of them
    native: bool = False
    mischief: Path | None = None  # a script of trouble
    control: Path | None = None  # the folder of the socket that takes more of it
    adb_keys: tuple[Path, ...] = ()  # hosts that may come in; without any, all may
    ports: Mapping[str, int] = field(default_factory=dict)  # by serial; the rest as they come

    def specs(self) -> tuple[PhoneSpec, ...]:
        return (*read_words(self.profiles, self.count), *self.phones)


@dataclass(frozen=True, slots=True)
class PhoneAddress:
    """Where a phone listens."""

    serial: str
    profile: str
    address: str

    def line(self) -> str:
        return f"{self.serial} {self.profile} {self.address}"


class Shelf:
    """Running phones; lives in one event loop."""

    def __init__(self, plan: ShelfPlan) -> None:
        phones = [_phone(spec, plan) for spec in plan.specs()]
        if len({phone.serial for phone in phones}) < len(phones):
            raise ValueError("two phones would have the same serial")
        ports = [
            plan.ports.get(phone.serial, plan.port_base + index if plan.port_base else 0)
            for index, phone in enumerate(phones)
        ]
        self.servers = [PhoneServer(phone, port) for phone, port in zip(phones, ports, strict=True)]
        if keys := [_key(path) for path in plan.adb_keys]:
            for server in self.servers:
                server.authority.give(*keys)
        self.mischief = Mischief(self.servers, plan.seed)
        self._script = plan.mischief
        self._control = ControlSocket(plan.control, self.mischief) if plan.control else None

    async def start(self) -> list[PhoneAddress]:
        for server in self.servers:
            await server.start()
        self.mischief.begin()
        if self._script is not None:
            self.mischief.run_script(self._script)
        if self._control is not None:
            await self._control.start()
        return [
            PhoneAddress(server.phone.serial, server.phone.profile.id, f"127.0.0.1:{server.port}")
            for server in self.servers
        ]

    async def stop(self) -> None:
        if self._control is not None:
            await self._control.stop()
        self.mischief.clear()
        await asyncio.gather(*(server.stop() for server in self.servers))


def _key(path: Path) -> PublicKey:
    key = read_public_key(path.read_bytes())
    if key is None:
        raise ValueError(f"{path} is no public key of adb's; it is called adbkey.pub")
    return key


def _phone(spec: PhoneSpec, plan: ShelfPlan) -> Phone:
    profile = load_profile(spec.profile)
    if spec.stock or plan.stock:
        profile = profile.model_copy(update={"rooted": False})
    if spec.userdebug:
        build = profile.build | {"ro.debuggable": "1", "ro.build.type": "userdebug"}
        profile = profile.model_copy(update={"build": build})
    native = spec.native or plan.native
    if native:
        profile = profile.model_copy(update={"rooted": False, "boot_s": _NATIVE_BOOT_S})
    speed = spec.speed or plan.speed
    seed = plan.seed if spec.seed is None else spec.seed
    return Phone(profile, spec.unit, speed, seed, spec.serial, plan.journal, native)


def write_ready_file(path: Path, addresses: Sequence[PhoneAddress]) -> None:
    """Say in one stroke that all phones listen."""
    aside = path.with_name(path.name + ".new")
    aside.write_text(json.dumps([asdict(address) for address in addresses], indent=1) + "\n")
    aside.replace(path)


def ports_of(ready_file: Path) -> dict[str, int]:
    """Where the phones of before listened, so that hosts find them again; nowhere if unknown."""
    if not ready_file.exists():
        return {}
    try:
        before = [PhoneAddress(**entry) for entry in json.loads(ready_file.read_text())]
        return {phone.serial: int(phone.address.rpartition(":")[2]) for phone in before}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{ready_file} is no list of phones: {error}") from error


@contextmanager
def shelf_in_thread(plan: ShelfPlan) -> Iterator[tuple[Shelf, list[PhoneAddress]]]:
    """Phones in a thread of this process, for tests that look inside them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="shelf", daemon=True)
    thread.start()

    async def build() -> tuple[Shelf, list[PhoneAddress]]:
        shelf = Shelf(plan)
        return shelf, await shelf.start()

    shelf, addresses = asyncio.run_coroutine_threadsafe(build(), loop).result(_READY_S)
    try:
        yield shelf, addresses
    finally:
        asyncio.run_coroutine_threadsafe(shelf.stop(), loop).result(_READY_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_READY_S)
        loop.close()


@contextmanager
def shelf_process(plan: ShelfPlan) -> Iterator[list[PhoneAddress]]:
    """Phones in a process of their own, as `farm virtual up` starts them."""
    with tempfile.TemporaryDirectory(prefix="shelf-") as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "agent.virtual", "up", *plan.profiles]
        command += ["--count", str(plan.count), "--speed", str(plan.speed)]
        command += ["--seed", str(plan.seed), "--ready-file", str(ready)]
        command += ["--stock"] * plan.stock + ["--native"] * plan.native
        if plan.port_base:
            command += ["--port-base", str(plan.port_base)]
        if plan.journal is not None:
            command += ["--journal", str(plan.journal)]
        if plan.mischief is not None:
            command += ["--mischief", str(plan.mischief)]
        if plan.control is not None:
            command += ["--control", str(plan.control)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                yield wait_until_ready(process, ready)
            finally:
                process.terminate()


def wait_until_ready(process: "subprocess.Popen[bytes]", ready: Path) -> list[PhoneAddress]:
    deadline = time.monotonic() + _READY_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the phones did not start (exit status {process.returncode})")
        time.sleep(0.01)
    return [PhoneAddress(**entry) for entry in json.loads(ready.read_text())]
