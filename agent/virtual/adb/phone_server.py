"""The TCP server of one phone: listens on loopback, goes away and comes back on reboot."""

import asyncio

from agent.virtual.adb.adb_connection import AdbConnection, Service, WireHook
from agent.virtual.adb.adb_packets import PAYLOAD_MAX
from agent.virtual.adb.adb_services import find_service, identity_banner
from agent.virtual.adb.host_keys import HostKeys
from agent.virtual.event_journal import JournalEvent
from agent.virtual.virtual_phone import VirtualPhone

# adb scans these ports for emulators and would list a phone there twice.
EMULATOR_PORTS = range(5554, 5586)
_ADBD_RESTART_DELAY_S = 0.05
_CUT_ROUNDS_MAX = 1000  # a connection may wait for a wire that never delivers again


class PhoneServer:
    """Serves one phone on 127.0.0.1."""

    def __init__(self, phone: VirtualPhone, port: int = 0) -> None:
        if port in EMULATOR_PORTS:
            raise ValueError(
                f"port {port} is in the range that adb scans for emulators; use another one"
            )
        self.phone = phone
        self.port = port
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()  # a cable may be unplugged and plugged in meanwhile
        self._connections: set[AdbConnection] = set()
        self._boot_task: asyncio.Task[None] | None = None
        self._cutting: asyncio.Task[None] | None = None
        self._is_plugged = True
        self._is_off = False
        self._wire_hook: WireHook | None = None
        self.host_keys = HostKeys()
        phone.on_reboot = self._reboot
        phone.on_adbd_restart = self._restart_adbd

    async def start(self) -> None:
        """Listen; an ephemeral port is kept for all later starts."""
        async with self._starting:
            if self._is_off or not self._is_plugged or self._server is not None:
                return
            server = await asyncio.start_server(
                self._serve_host, "127.0.0.1", self.port, limit=2 * PAYLOAD_MAX
            )
            self.port = server.sockets[0].getsockname()[1]
            if self._is_plugged and not self._is_off:
                self._server = server
            else:
                server.close()  # unplugged in the meantime

    async def stop(self) -> None:
        """Close everything and switch the phone off."""
        self._is_off = True
        if self._boot_task is not None:
            self._boot_task.cancel()
        await self._close()
        self.phone.close()

    @property
    def wire_hook(self) -> WireHook | None:
        """The hook that the packets of all present and future connections pass through."""
        return self._wire_hook

    @wire_hook.setter
    def wire_hook(self, wire_hook: WireHook | None) -> None:
        self._wire_hook = wire_hook
        for connection in self._connections:
            connection.wire_hook = wire_hook

    @property
    def connections(self) -> tuple[AdbConnection, ...]:
        return tuple(self._connections)

    @property
    def listener(self) -> asyncio.Server | None:
        return self._server

    def unplug(self) -> None:
        """Pull the cable: stop listening and cut all connections."""
        self._is_plugged = False
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop_connections()

    async def plug(self) -> None:
        """Put the cable back; a phone that is still booting listens when it is up."""
        self._is_plugged = True
        if self._boot_task is None or self._boot_task.done():
            await self.start()

    def drop_connections(self) -> None:
        """Cut all connections; the phone's clock is paused until their services have ended."""
        for connection in list(self._connections):
            connection.abort()
        self.phone.clock.pause()
        self._cutting = asyncio.get_running_loop().create_task(self._resume_clock())

    async def _resume_clock(self) -> None:
        try:
            for _ in range(_CUT_ROUNDS_MAX):
                if not self._connections:
                    return
                await asyncio.sleep(0)
        finally:
            self.phone.clock.resume()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.close()
        for _ in range(50):
            if not self._connections:
                return
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.cancel()

    async def _serve_host(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        phone = self.phone
        connection = AdbConnection(reader, writer, identity_banner(phone), self._find_service)
        connection.wire_hook = self._wire_hook
        connection.host_keys = self.host_keys
        self._connections.add(connection)
        phone.journal.write(JournalEvent.ADB_CONNECT, peer=str(writer.get_extra_info("peername")))
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            phone.journal.write(JournalEvent.ADB_DISCONNECT)

    def _find_service(self, name: str) -> Service | None:
        self.phone.journal.write(JournalEvent.ADB_SERVICE, name=name[:400])
        mischief = self.phone.mischief
        if mischief is not None and not mischief.allows_service(name):
            return None
        return find_service(self.phone, name)

    def _restart_adbd(self) -> None:
        """Restart adbd as another user: connections are cut after the host has read the answer."""
        asyncio.get_running_loop().call_later(_ADBD_RESTART_DELAY_S, self.drop_connections)

    def _reboot(self, mode: str) -> None:
        if self._boot_task is None or self._boot_task.done():
            self._boot_task = asyncio.get_running_loop().create_task(self._finish_reboot())

    async def _finish_reboot(self) -> None:
        await self._close()
        await self.phone.clock.pass_time(self.phone.profile.boot_s)
        self.phone.finish_reboot()
        await self.start()
