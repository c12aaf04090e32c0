"""Faults of the output of commands: truncated, endless or hostile.

Endless output is generated as it is read, so a host that stops reading costs nothing.
"""

import inspect
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.virtual.files.file_nodes import SHELL, Directory, RegularFile
from agent.virtual.mischief.fault_type import (
    Change,
    ChangeFault,
    FaultType,
    InjectionTarget,
    InvalidMischief,
    OutputFault,
)
from agent.virtual.shell.byte_streams import ByteSink, FilteredSink
from agent.virtual.shell.command_call import CommandCall, CommandFunction
from agent.virtual.virtual_phone import RunnerClaims

_CHUNK = 64 * 1024

# Bytes that may break a terminal, a decoder, a parser or code that joins paths.
HOSTILE_OUTPUTS: dict[str, bytes] = {
    "escapes": b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[8mhidden\x1b]8;;http://x\x07\r\x08\x00\x9b31m\n",
    "utf8": b"\xff\xfe\xc3\x28\xe2\x82 \xf0\x9f \xed\xa0\x80 \xc0\xaf\n",
    "paths": b"../../../../etc/passwd\n/sys/../etc/shadow:1\n/data/local/tmp/..:$(reboot)\n-rf /\n",
    "numbers": b"NaN\nInfinity\n-1\n1e999\n99999999999999999999999999\n0x10\n",
    "json": b'{"line":"done","steps":1e999,"ns":-1}\n' + b"[" * 5000 + b"\n{\n",
    "marks": b"0123456789abcdef.0 0\n0123456789abcdef.1 0\n",
}
HOSTILE_NAMES = (
    "../../evil",
    "\x1b[31mred",
    "two\nlines",
    "-rf",
    "$(reboot)",
    "\udcff\udcfe",
    "=cmd|calc",
    "..\\..\\evil",
)


@dataclass(eq=False)
class FalseTimes(ChangeFault):
    """The runner claims a `share` of the time of its steps, or `step_factor` times as many steps.

    With `drop_every` it leaves out one of that many windows; `tick_ms` is the resolution of its
    clock in milliseconds.
    """

    share: float = 0.5
    step_factor: float = 1.0
    drop_every: int = 0
    tick_ms: float = 0.0

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        tick_ns = round(1e6 * self.tick_ms)
        claims = RunnerClaims(self.share, self.step_factor, self.drop_every, tick_ns)
        yield Change(target.phone, "claims", claims)


@dataclass(eq=False)
class FalseLoss(ChangeFault):
    """The runner claims that the loss was `first` at the start and `last` at the end."""

    first: float = 1.0
    last: float = 2.0

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone, "claims", RunnerClaims(loss=(self.first, self.last)))


class _TruncatingSink(FilteredSink):
    """Passes the first bytes and drops the rest."""

    def __init__(self, sink: ByteSink, remaining: int) -> None:
        super().__init__(sink)
        self._remaining = remaining

    def write(self, chunk: bytes) -> None:
        self._sink.write(chunk[: self._remaining])
        self._remaining -= min(len(chunk), self._remaining)


@dataclass(eq=False)
class Truncated(OutputFault):
    """Commands print their first `bytes` bytes and still succeed."""

    bytes: int = 100

    async def run(self, call: CommandCall, program: CommandFunction) -> int:
        truncating = _TruncatingSink(call.streams.stdout, self.bytes)
        streams = call.streams._replace(stdout=truncating)
        return await _run_program(
            program, CommandCall(call.argv, call.shell, call.process, streams)
        )


@dataclass(eq=False)
class Endless(OutputFault):
    """Commands print `text` without end, or `bytes` bytes of it if that is not 0."""

    text: str = "0123456789abcdef\n"
    bytes: int = 0

    async def run(self, call: CommandCall, program: CommandFunction) -> int:
        status = await _run_program(program, call)
        text_bytes = self.text.encode()
        chunk = text_bytes * max(1, _CHUNK // len(text_bytes))
        remaining = self.bytes or float("inf")
        while remaining > 0:
            part = chunk if remaining >= len(chunk) else chunk[: int(remaining)]
            call.streams.stdout.write(part)
            remaining -= len(part)
            await call.streams.drain()
        return status


@dataclass(eq=False)
class Hostile(OutputFault):
    """Commands print hostile bytes (`what`, or all) before, or `instead` of, their output."""

    what: str = "all"
    instead: bool = False

    def start(self, target: InjectionTarget) -> None:
        if self.what != "all" and self.what not in HOSTILE_OUTPUTS:
            raise InvalidMischief(
                f"what={self.what} is unknown; use all, {', '.join(HOSTILE_OUTPUTS)}"
            )
        super().start(target)

    async def run(self, call: CommandCall, program: CommandFunction) -> int:
        outputs = HOSTILE_OUTPUTS.values() if self.what == "all" else [HOSTILE_OUTPUTS[self.what]]
        call.streams.stdout.write(b"".join(outputs))
        return 0 if self.instead else await _run_program(program, call)


@dataclass(eq=False)
class HostileNames(FaultType):
    """A directory contains files with hostile names."""

    folder: str = "/sdcard/Download"
    _added_names: list[str] = field(default_factory=list, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        directory = self._directory(target)
        for name in HOSTILE_NAMES:
            if name not in directory.children:
                directory.children[name] = RegularFile(stat.S_IFREG | 0o644, SHELL, SHELL)
                self._added_names.append(name)

    def stop(self, target: InjectionTarget) -> None:
        directory = self._directory(target)
        for name in self._added_names:
            directory.children.pop(name, None)
        self._added_names.clear()

    def _directory(self, target: InjectionTarget) -> Directory:
        node, _ = target.phone.tree.resolve(self.folder)
        if not isinstance(node, Directory):
            raise InvalidMischief(f"{self.folder} is not a directory")
        return node


async def _run_program(program: CommandFunction, call: CommandCall) -> int:
    outcome = program(call)
    return await outcome if inspect.isawaitable(outcome) else outcome
