"""nc: talk to whoever listens inside the phone, or listen there oneself, once."""

import asyncio

from agent.virtual.commands.options import split_options
from agent.virtual.network import Duplex, join, pipe_ends
from agent.virtual.processes import Process
from agent.virtual.shell.call import Call, Program, occupy


class _Console:
    """stdin and stdout of a command as one end of a connection."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def read(self) -> bytes:
        chunk = await self._call.streams.stdin.read()
        if not chunk:
            # A terminal at its end still waits for the answer.
            await asyncio.get_running_loop().create_future()
        return chunk

    async def write(self, content: bytes) -> None:
        self._call.streams.stdout.write(content)
        await self._call.streams.drain()


async def netcat(call: Call) -> int:
    """nc HOST PORT, nc -l -p PORT, nc -U NAME"""
    options, words = split_options(call.argv[1:], valued="pqwW")
    if "l" in options or "L" in options:
        return await _listen(call, f"tcp:{options.get('p') or words[-1]}")
    name = f"localabstract:{words[0].lstrip('@')}" if "U" in options else f"tcp:{words[-1]}"
    listener = call.phone.network.find(name)
    if listener is None:
        return call.complain("connect: Connection refused")

    async def body(process: Process) -> int:
        ours, theirs = pipe_ends()

        async def serve() -> None:
            await listener(theirs)
            await theirs.write(b"")

        serving = asyncio.ensure_future(serve())
        try:
            await _talk(call, ours, "q" in options)
        finally:
            serving.cancel()
        return 0

    return await occupy(call, call.argv, body)


async def _talk(call: Call, ours: Duplex, leave_early: bool) -> None:
    """Carry stdin out until it ends, then wait for the other side to have said everything."""

    async def out() -> None:
        while chunk := await call.streams.stdin.read():
            await ours.write(chunk)
        await ours.write(b"")

    sending = asyncio.ensure_future(out())
    try:
        while chunk := await ours.read():
            call.streams.stdout.write(chunk)
            await call.streams.drain()
            if leave_early and sending.done():
                return
    finally:
        sending.cancel()


async def _listen(call: Call, name: str) -> int:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def listener(peer: Duplex) -> None:
        network.leave(name)
        try:
            await join(_Console(call), peer)
        finally:
            if not done.done():
                done.set_result(None)

    network = call.phone.network
    if not network.listen(name, listener):
        return call.complain("bind: Address already in use")

    async def body(process: Process) -> int:
        try:
            await done
        finally:
            network.leave(name)
        return 0

    return await occupy(call, call.argv, body)


NETCAT: dict[str, Program] = {"nc": netcat, "netcat": netcat}
