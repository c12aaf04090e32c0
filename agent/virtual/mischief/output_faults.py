"""Troubles of what commands print: cut short, without end, or meant to do harm.

Endless output is made as it is taken, so a host that stops reading costs nothing.
"""

import inspect
import stat
from dataclasses import dataclass, field

from agent.virtual.files.nodes import SHELL, Directory, File
from agent.virtual.mischief.effect import BadMischief, Effect, Outputs, Victim
from agent.virtual.shell.call import Call, Program
from agent.virtual.shell.streams import Sink

_CHUNK = 64 * 1024

# What a terminal, a decoder, a parser or a path joiner may stumble over.
NASTY: dict[str, bytes] = {
    "escapes": b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[8mhidden\x1b]8;;http://x\x07\r\x08\x00\x9b31m\n",
    "utf8": b"\xff\xfe\xc3\x28\xe2\x82 \xf0\x9f \xed\xa0\x80 \xc0\xaf\n",
    "paths": b"../../../../etc/passwd\n/sys/../etc/shadow:1\n/data/local/tmp/..:$(reboot)\n-rf /\n",
    "numbers": b"NaN\nInfinity\n-1\n1e999\n99999999999999999999999999\n0x10\n",
    "json": b'{"line":"done","steps":1e999,"ns":-1}\n' + b"[" * 5000 + b"\n{\n",
    "marks": b"0123456789abcdef.0 0\n0123456789abcdef.1 0\n",
}
NAMES = (
    "../../evil",
    "\x1b[31mred",
    "two\nlines",
    "-rf",
    "$(reboot)",
    "\udcff\udcfe",
    "=cmd|calc",
    "..\\..\\evil",
)


class _Cut:
    """Passes so many bytes and swallows the rest."""

    def __init__(self, sink: Sink, left: int) -> None:
        self._sink = sink
        self._left = left

    def write(self, chunk: bytes) -> None:
        self._sink.write(chunk[: self._left])
        self._left -= min(len(chunk), self._left)

    async def drain(self) -> None:
        await self._sink.drain()

    def hold(self) -> None:
        self._sink.hold()

    def release(self) -> None:
        self._sink.release()


@dataclass(eq=False)
class Truncated(Outputs):
    """Commands print their first `bytes` bytes and end as if all were well."""

    bytes: int = 100

    async def run(self, call: Call, program: Program) -> int:
        cut = _Cut(call.streams.stdout, self.bytes)
        streams = call.streams._replace(stdout=cut)
        return await _run(program, Call(call.argv, call.shell, call.process, streams))


@dataclass(eq=False)
class Endless(Outputs):
    """Commands go on printing `text` for ever, or for `bytes` bytes where that is not 0."""

    text: str = "0123456789abcdef\n"
    bytes: int = 0

    async def run(self, call: Call, program: Program) -> int:
        status = await _run(program, call)
        line = self.text.encode()
        chunk = line * max(1, _CHUNK // len(line))
        left = self.bytes or float("inf")
        while left > 0:
            part = chunk if left >= len(chunk) else chunk[: int(left)]
            call.streams.stdout.write(part)
            left -= len(part)
            await call.streams.drain()
        return status


@dataclass(eq=False)
class Hostile(Outputs):
    """Commands print something nasty (`what`, or all of it) before, or `instead`, of theirs."""

    what: str = "all"
    instead: bool = False

    def start(self, victim: Victim) -> None:
        if self.what != "all" and self.what not in NASTY:
            raise BadMischief(f"what={self.what}: there are all, {', '.join(NASTY)}")
        super().start(victim)

    async def run(self, call: Call, program: Program) -> int:
        chosen = NASTY.values() if self.what == "all" else [NASTY[self.what]]
        call.streams.stdout.write(b"".join(chosen))
        return 0 if self.instead else await _run(program, call)


@dataclass(eq=False)
class HostileNames(Effect):
    """A folder holds files with names that are traps."""

    folder: str = "/sdcard/Download"
    _planted: list[str] = field(default_factory=list, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        home = self._home(victim)
        for name in NAMES:
            if name not in home.children:
                home.children[name] = File(stat.S_IFREG | 0o644, SHELL, SHELL)
                self._planted.append(name)

    def stop(self, victim: Victim) -> None:
        home = self._home(victim)
        for name in self._planted:
            home.children.pop(name, None)
        self._planted.clear()

    def _home(self, victim: Victim) -> Directory:
        node, _ = victim.phone.tree.resolve(self.folder)
        if not isinstance(node, Directory):
            raise BadMischief(f"{self.folder} is no folder")
        return node


async def _run(program: Program, call: Call) -> int:
    outcome = program(call)
    return await outcome if inspect.isawaitable(outcome) else outcome
