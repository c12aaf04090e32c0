"""Faults of the cable and of adb."""

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from agent.virtual.adb.adb_services import identity_banner
from agent.virtual.mischief.fault_type import Change, ChangeFault, FaultType, InjectionTarget
from agent.virtual.mischief.faulty_wire import ForeignAdbd, accept_incoming, drop_incoming
from agent.virtual.phone_clock import ScheduledAction

_OLD_ADBD = 0x01000000
_running_tasks: set["asyncio.Task[None]"] = set()


def unplug(target: InjectionTarget, reason: object) -> None:
    """Unplug the cable, for one more reason."""
    target.unplug_reasons.add(reason)
    target.server.unplug()


def plug_back(target: InjectionTarget, reason: object) -> None:
    """Plug the cable in when no fault keeps it unplugged."""
    target.unplug_reasons.discard(reason)
    if not target.unplug_reasons:
        _run_later(target.server.plug())


@dataclass(eq=False)
class Unplug(FaultType):
    """The cable is unplugged."""

    is_outage = True

    def start(self, target: InjectionTarget) -> None:
        unplug(target, self)

    def stop(self, target: InjectionTarget) -> None:
        plug_back(target, self)


@dataclass(eq=False)
class Flap(FaultType):
    """The cable is unplugged for `off_s` every `period_s`, `count` times (0: without limit).

    Both are phone seconds.
    """

    period_s: float = 5.0
    off_s: float = 1.0
    count: int = 0
    _next_change: ScheduledAction | None = field(default=None, init=False, repr=False)
    _is_off: bool = field(default=False, init=False, repr=False)
    _flap_count: int = field(default=0, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        unplug(target, self)
        clock = target.phone.clock
        clock.let_pass()
        self._is_off = True
        self._next_change = clock.schedule(
            clock.now + self.off_s, lambda: self._reconnect(target), wakes_host=True
        )

    def stop(self, target: InjectionTarget) -> None:
        if self._next_change is not None:
            self._next_change.cancel()
        self._plug_back(target)

    def _plug_back(self, target: InjectionTarget) -> None:
        if self._is_off:
            self._is_off = False
            target.phone.clock.stop_passing()
            plug_back(target, self)

    def _reconnect(self, target: InjectionTarget) -> None:
        self._plug_back(target)
        self._flap_count += 1
        if self._flap_count == self.count:
            self.report_end()
            return
        clock = target.phone.clock
        when = clock.now + max(self.period_s - self.off_s, 0.0)
        self._next_change = clock.schedule(when, lambda: self.start(target), wakes_host=True)


@dataclass(eq=False)
class AdbdRestarts(FaultType):
    """The cable is unplugged, and the phone stops adbd with every process in adbd's cgroup."""

    starts_inside_trigger = False
    is_outage = True

    def start(self, target: InjectionTarget) -> None:
        unplug(target, self)
        target.phone.processes.kill_group_of("adbd")

    def stop(self, target: InjectionTarget) -> None:
        plug_back(target, self)


@dataclass(eq=False)
class Hang(FaultType):
    """The phone stops answering; TCP stays open, and what runs on the phone continues."""

    is_outage = True

    def start(self, target: InjectionTarget) -> None:
        target.wire.block(self)

    def stop(self, target: InjectionTarget) -> None:
        target.wire.unblock(self)


@dataclass(eq=False)
class Partition(FaultType):
    """No packet gets through in either direction, and TCP gets no answer either."""

    is_outage = True

    def start(self, target: InjectionTarget) -> None:
        target.wire.block(self)
        drop_incoming(_open_sockets(target))

    def stop(self, target: InjectionTarget) -> None:
        accept_incoming(_open_sockets(target))
        target.wire.unblock(self)


@dataclass(eq=False)
class Slow(ChangeFault):
    """The link carries `bytes_per_s` (0: no limit), and delays each packet by `latency_s`."""

    bytes_per_s: float = 0.0
    latency_s: float = 0.05

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.wire, "bytes_per_s", self.bytes_per_s)
        yield Change(target.wire, "latency_s", self.latency_s)


@dataclass(eq=False)
class Unauthorized(FaultType):
    """The phone waits for the user to allow this host; clearing the fault is the tap on 'allow'."""

    def start(self, target: InjectionTarget) -> None:
        target.wire.unauthorized_reasons.add(self)
        target.server.drop_connections()

    def stop(self, target: InjectionTarget) -> None:
        target.wire.unauthorized_reasons.discard(self)
        target.wire.greet_waiting()


@dataclass(eq=False)
class Offline(FaultType):
    """The phone accepts connections and never answers."""

    def start(self, target: InjectionTarget) -> None:
        target.wire.silent_reasons.add(self)
        target.server.drop_connections()

    def stop(self, target: InjectionTarget) -> None:
        target.wire.silent_reasons.discard(self)
        target.wire.greet_waiting()


@dataclass(eq=False)
class VersionClash(FaultType):
    """Incompatible adb versions.

    The phone answers as an old adbd: another protocol version, small packets, no features, no shell
    v2. With `server`, the adb server on that port is killed instead, as a client of another version
    does.
    """

    version: int = _OLD_ADBD
    payload: int = 4096
    features: str = ""
    server: int = 0

    def start(self, target: InjectionTarget) -> None:
        if self.server:
            _run_later(_kill_adb_server(self.server))
            return
        plain = identity_banner(target.phone).partition("features=")[0]
        greeting = f"{plain}features={self.features}" if self.features else plain
        target.wire.foreign_adbd = ForeignAdbd(self.version, self.payload, greeting)
        target.service_filters.append(self._refuses_service)
        target.server.drop_connections()

    def stop(self, target: InjectionTarget) -> None:
        if not self.server:
            target.wire.foreign_adbd = None
            target.service_filters.remove(self._refuses_service)
            target.server.drop_connections()

    def _refuses_service(self, service: str) -> bool:
        return "," in service.partition(":")[0] and "shell_v2" not in self.features


async def _kill_adb_server(port: int) -> None:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"0009host:kill")
        await writer.drain()
        writer.close()


def _open_sockets(target: InjectionTarget) -> list[socket.socket]:
    listening = [] if target.server.listener is None else list(target.server.listener.sockets)
    connected = [
        connection.writer.get_extra_info("socket") for connection in target.server.connections
    ]
    return [
        *listening,
        *(connection_socket for connection_socket in connected if connection_socket is not None),
    ]


def _run_later(coroutine: Coroutine[object, object, None]) -> None:
    task = asyncio.get_running_loop().create_task(coroutine)
    _running_tasks.add(task)
    task.add_done_callback(_running_tasks.discard)
