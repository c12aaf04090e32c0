"""Troubles of the cable and of adb itself. What concerns the wire counts host seconds."""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

from agent.virtual.adb.services import banner
from agent.virtual.mischief.effect import Effect, Victim
from agent.virtual.mischief.wire import OtherAdbd, listen_again, turn_deaf

_OLD_ADBD = 0x01000000
_tasks: set["asyncio.Task[None]"] = set()


def pull(victim: Victim, who: object) -> None:
    """Take the cable out, for one more reason."""
    victim.pulled.add(who)
    victim.door.unplug()


def put_back(victim: Victim, who: object) -> None:
    """Put it back when nobody keeps it out any more."""
    victim.pulled.discard(who)
    if not victim.pulled:
        _later(victim.door.plug())


@dataclass(eq=False)
class Unplug(Effect):
    """The cable is out."""

    def start(self, victim: Victim) -> None:
        pull(victim, self)

    def stop(self, victim: Victim) -> None:
        put_back(victim, self)


@dataclass(eq=False)
class Flap(Effect):
    """The cable goes out and in: every `period_s`, for `off_s`, `count` times (0: for ever)."""

    period_s: float = 5.0
    off_s: float = 1.0
    count: int = 0
    _timer: "asyncio.TimerHandle | None" = field(default=None, init=False, repr=False)
    _done: int = field(default=0, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        pull(victim, self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.off_s, self._back, victim)

    def stop(self, victim: Victim) -> None:
        if self._timer is not None:
            self._timer.cancel()
        put_back(victim, self)

    def _back(self, victim: Victim) -> None:
        put_back(victim, self)
        self._done += 1
        if self._done == self.count:
            self.ended()
            return
        pause = max(self.period_s - self.off_s, 0.0)
        self._timer = asyncio.get_running_loop().call_later(pause, self.start, victim)


@dataclass(eq=False)
class Hang(Effect):
    """The phone stops answering; TCP stays open, and what runs on the phone runs on."""

    def start(self, victim: Victim) -> None:
        victim.wire.stop(self)

    def stop(self, victim: Victim) -> None:
        victim.wire.go(self)


@dataclass(eq=False)
class Partition(Effect):
    """Nothing gets through, and nobody is told: not even TCP answers."""

    def start(self, victim: Victim) -> None:
        victim.wire.stop(self)
        turn_deaf(_sockets(victim))

    def stop(self, victim: Victim) -> None:
        listen_again(_sockets(victim))
        victim.wire.go(self)


@dataclass(eq=False)
class Slow(Effect):
    """The link carries so many bytes a second (0: as many as it can), each packet that late."""

    bytes_per_s: float = 0.0
    latency_s: float = 0.05

    def start(self, victim: Victim) -> None:
        victim.wire.bytes_per_s, victim.wire.latency_s = self.bytes_per_s, self.latency_s

    def stop(self, victim: Victim) -> None:
        victim.wire.bytes_per_s = victim.wire.latency_s = 0.0


@dataclass(eq=False)
class Unauthorized(Effect):
    """The phone asks somebody to allow this host; clearing it is the tap on 'allow'."""

    def start(self, victim: Victim) -> None:
        victim.wire.locked.add(self)
        victim.door.drop()

    def stop(self, victim: Victim) -> None:
        victim.wire.locked.discard(self)
        victim.wire.let_in()


@dataclass(eq=False)
class Offline(Effect):
    """The phone takes connections and never says a word."""

    def start(self, victim: Victim) -> None:
        victim.wire.mute.add(self)
        victim.door.drop()

    def stop(self, victim: Victim) -> None:
        victim.wire.mute.discard(self)
        victim.wire.let_in()


@dataclass(eq=False)
class VersionClash(Effect):
    """Versions of adb that do not fit together.

    The phone answers as an old adbd: another protocol version, small packets, no features, no
    shell v2. With `server`, a foreign client ends the adb server on that port instead, as clients
    do that find a server of another version.
    """

    version: int = _OLD_ADBD
    payload: int = 4096
    features: str = ""
    server: int = 0

    def start(self, victim: Victim) -> None:
        if self.server:
            _later(_end_server(self.server))
            return
        plain = banner(victim.phone).partition("features=")[0]
        greeting = f"{plain}features={self.features}" if self.features else plain
        victim.wire.other = OtherAdbd(self.version, self.payload, greeting)
        victim.refusals.append(self._refuses)
        victim.door.drop()

    def stop(self, victim: Victim) -> None:
        if not self.server:
            victim.wire.other = None
            victim.refusals.remove(self._refuses)
            victim.door.drop()

    def _refuses(self, service: str) -> bool:
        return "," in service.partition(":")[0] and "shell_v2" not in self.features


async def _end_server(port: int) -> None:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"0009host:kill")
        await writer.drain()
        writer.close()


def _sockets(victim: Victim) -> list[socket.socket]:
    doors = [] if victim.door.listener is None else list(victim.door.listener.sockets)
    lines = [each.writer.get_extra_info("socket") for each in victim.door.connections]
    return [*doors, *(line for line in lines if line is not None)]


def _later(work: Coroutine[object, object, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
