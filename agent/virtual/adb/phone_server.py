"""A phone's door to the world: listens on loopback, goes away and comes back on reboot."""

import asyncio

from agent.virtual.adb.authority import Authority
from agent.virtual.adb.connection import Connection, Service, Wire
from agent.virtual.adb.packets import PAYLOAD_MAX
from agent.virtual.adb.reverse import Reverses
from agent.virtual.adb.services import banner, find_service
from agent.virtual.phone import Phone

# adb scans these odd ports for emulators and would list a phone there twice.
EMULATOR_PORTS = range(5554, 5586)
_LAST_WORDS_S = 0.05


class PhoneServer:
    """Serves one phone on 127.0.0.1."""

    def __init__(self, phone: Phone, port: int = 0) -> None:
        if port in EMULATOR_PORTS:
            raise ValueError(f"port {port} is one that adb scans for emulators; take another")
        self.phone = phone
        self.port = port
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._booting: asyncio.Task[None] | None = None
        self._plugged = True
        self._off = False
        self._wire: Wire | None = None
        self.authority = Authority()
        phone.on_reboot = self._reboot
        phone.on_adbd_restart = self._restart_adbd

    async def start(self) -> None:
        """Listen; an ephemeral port is kept for good once it is known."""
        if self._off or not self._plugged or self._server is not None:
            return
        server = await asyncio.start_server(
            self._welcome, "127.0.0.1", self.port, limit=2 * PAYLOAD_MAX
        )
        self.port = server.sockets[0].getsockname()[1]
        if self._plugged and not self._off:
            self._server = server
        else:
            server.close()  # the cable was pulled meanwhile

    async def stop(self) -> None:
        """Close everything and switch the phone off."""
        self._off = True
        if self._booting is not None:
            self._booting.cancel()
        await self._close()
        self.phone.close()

    @property
    def wire(self) -> Wire | None:
        """What packets go through, of every connection there is and will be."""
        return self._wire

    @wire.setter
    def wire(self, wire: Wire | None) -> None:
        self._wire = wire
        for connection in self._connections:
            connection.wire = wire

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(self._connections)

    @property
    def listener(self) -> asyncio.Server | None:
        return self._server

    def unplug(self) -> None:
        """Pull the cable: nobody listens, and whoever was connected is cut off."""
        self._plugged = False
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()

    async def plug(self) -> None:
        """Put the cable back; a phone that is still booting listens when it is up."""
        self._plugged = True
        if self._booting is None or self._booting.done():
            await self.start()

    def drop(self) -> None:
        """Cut off whoever is connected."""
        for connection in list(self._connections):
            connection.abort()

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
            connection.give_up()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        phone = self.phone
        connection = Connection(
            reader, writer, banner(phone), lambda name: self._find_service(name, reverses)
        )
        reverses = Reverses(phone.network, connection.open)
        connection.wire = self._wire
        connection.authority = self.authority
        self._connections.add(connection)
        phone.journal.write("connect", peer=str(writer.get_extra_info("peername")))
        try:
            await connection.serve()
        finally:
            reverses.close()
            self._connections.discard(connection)
            phone.journal.write("disconnect")

    def _find_service(self, name: str, reverses: Reverses) -> Service | None:
        self.phone.journal.write("open", name=name[:400])
        mischief = self.phone.mischief
        if mischief is not None and not mischief.allows_service(name):
            return None
        return find_service(self.phone, name, reverses)

    def _restart_adbd(self) -> None:
        """adbd starts anew, as another user: everybody is cut off once they have read why."""
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self.drop)

    def _reboot(self, mode: str) -> None:
        if self._booting is None or self._booting.done():
            self._booting = asyncio.get_running_loop().create_task(self._boot_again())

    async def _boot_again(self) -> None:
        await self._close()
        await self.phone.timeline.sleep(self.phone.profile.boot_s)
        self.phone.boot_again()
        await self.start()
