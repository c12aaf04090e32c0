"""The shell at work: runs what the parser read, one command after another, for hours.

Each shell belongs to a process; what it starts inherits user, cores and session from there.
"""

import asyncio
import errno
import signal
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from agent.virtual.files.tree import strerror
from agent.virtual.processes import Process
from agent.virtual.shell import expansion
from agent.virtual.shell.call import Call, Holding, Program, Streams, encode
from agent.virtual.shell.compounds import run_compound
from agent.virtual.shell.functions import call_function, leave, only_read, put_back, special
from agent.virtual.shell.grammar import (
    Chain,
    Command,
    Function,
    Pipeline,
    Redirect,
    Sequence,
    Simple,
    Substitution,
    Word,
)
from agent.virtual.shell.jumps import LoopJump, Return, ShellExit
from agent.virtual.shell.parser import BadSyntax, Unfinished, parse
from agent.virtual.shell.redirection import redirected, refusal
from agent.virtual.shell.streams import Bytes, Pipe, Source

if TYPE_CHECKING:
    from agent.virtual.phone import Phone


class Programs(Protocol):
    """What a phone can run, asked by name."""

    def find(self, shell: "Shell", name: str) -> Program: ...

    def locate(self, shell: "Shell", name: str) -> str | None: ...


_BROKEN_PIPE = 141
_DEPTH_MAX = 40


class Shell:
    """One shell: its variables, its folder, its last status."""

    def __init__(
        self, phone: "Phone", process: Process, programs: Programs, name: str = "/system/bin/sh"
    ) -> None:
        self.phone = phone
        self.process = process
        self.programs = programs
        self.name = name
        self.cwd = "/"
        self.status = 0
        self.background: int | None = None
        self.children: deque[Process] = deque(maxlen=64)  # in the background, the dead ones too
        self.arguments: list[str] = []
        self.depth = 0
        self.prompted = False  # a person reads along
        self.holding: Holding | None = None
        self.functions: dict[str, Command] = {}
        self.options: set[str] = set()  # letters of set -e and the like
        self.traps: dict[str, str] = {}
        self.locals: list[dict[str, str | None]] = []  # what each function call hides
        self.excused = 0  # inside a condition, where -e looks away
        user = "root" if process.uid == 0 else "shell"
        self.variables = {
            "PATH": "/product/bin:/system/bin:/system/xbin:/vendor/bin",
            "HOME": "/" if user == "shell" else "/root",
            "USER": user,
            "TMPDIR": "/data/local/tmp",
            "EXTERNAL_STORAGE": "/sdcard",
            "ANDROID_DATA": "/data",
            "SHELL": "/system/bin/sh",
        }

    def copy(self, process: Process) -> "Shell":
        """A shell for ( .. ), $( .. ) and &: same state, changes stay inside."""
        child = Shell(self.phone, process, self.programs, self.name)
        child.cwd, child.status, child.background = self.cwd, self.status, self.background
        child.variables = dict(self.variables)
        child.arguments = list(self.arguments)
        child.depth = self.depth + 1
        child.prompted = self.prompted
        child.functions = dict(self.functions)
        child.options = set(self.options)
        child.excused = self.excused
        child.locals = [{} for _ in self.locals]
        if child.depth > _DEPTH_MAX:
            raise BadSyntax("too deeply nested")
        return child

    # -- the ways in

    async def run_text(self, text: str, streams: Streams) -> int:
        """sh -c TEXT, or a script's text."""
        try:
            status = await self.run_sequence(parse(text), streams)
        except (ShellExit, Return) as leaving:
            status = leaving.status
        except LoopJump:
            status = 0  # a break without a loop
        except (BadSyntax, RecursionError) as error:
            self._complain(streams, str(error))
            status = 1
        return await leave(self, status, streams)

    async def run_source(self, source: Source, streams: Streams) -> int:
        """Read commands line by line and run each before the next line is read."""
        pending = ""
        name = self.name
        number = 0
        self._prompt(streams, pending)
        while line := await source.read_line():
            number += 1
            self.name = f"{name}: <stdin>[{number}]"
            pending += line.decode("utf-8", "surrogateescape")
            try:
                script = parse(pending)
            except Unfinished:
                self._prompt(streams, pending)
                continue
            except (BadSyntax, RecursionError) as error:
                self._complain(streams, str(error))
                if not self.prompted:
                    return 1
                script = Sequence()
            pending = ""
            try:
                self.status = await self.run_sequence(script, streams)
            except ShellExit as leaving:
                return await leave(self, leaving.status, streams)
            except (LoopJump, Return):
                self.status = 0
            except (BadSyntax, RecursionError) as error:
                self._complain(streams, str(error))
                self.status = 1
            self._prompt(streams, pending)
            await streams.drain()
        if pending.strip():
            self._complain(streams, "syntax error: unexpected end of file")
            return 1
        return await leave(self, self.status, streams)

    async def capture(self, body: Sequence, streams: Streams) -> bytes:
        """The output of $( .. )."""
        pipe = Pipe()
        child = self.copy(self.process)
        if (path := only_read(body)) is not None:
            name = await expansion.single(self, path, streams)
            return self.phone.tree.read(name, self.process.uid, self.cwd)
        try:
            self.status = await child.run_sequence(body, streams._replace(stdout=pipe))
        except (ShellExit, Return) as leaving:
            self.status = leaving.status
        return pipe.content()

    async def invoke(
        self, argv: list[str], streams: Streams, process: Process | None = None
    ) -> int:
        """Run one command with its fields expanded."""
        if argv[0] in self.functions:
            return await call_function(self, argv, streams)
        call = Call(argv, self, process or self.process, streams)
        if call.process.stopped is not None:
            await call.process.stopped.wait()
        self.phone.processes.current = call.process.pid
        try:
            outcome = self.programs.find(self, argv[0])(call)
            status = outcome if isinstance(outcome, int) else await outcome
        except OSError as error:
            if error.errno == errno.EPIPE:
                return _BROKEN_PIPE
            where = f"{error.filename}: " if error.filename else ""
            return call.complain(f"{where}{strerror(error)}")
        except (LookupError, ValueError, OverflowError):
            # Arguments that a command was not made for end the command, never the shell.
            return call.complain("bad arguments")
        await streams.drain()
        return status

    def where(self, name: str) -> str | None:
        """Where a command lives, if the phone has it."""
        if name in self.functions:
            return name
        return self.programs.locate(self, name)

    def parameter(self, name: str) -> str | None:
        """The value behind $NAME."""
        value = special(self, name)
        if value is not None:
            return value
        if name.isdigit():
            place = int(name) - 1
            return self.arguments[place] if place < len(self.arguments) else None
        return self.variables.get(name)

    # -- lists

    async def run_sequence(self, sequence: Sequence, streams: Streams) -> int:
        """Run chains one after another; the status of the last is theirs."""
        for chain in sequence.chains:
            if chain.background:
                self._start_in_background(chain, streams)
                self.status = 0
            else:
                self.status = await self._chain(chain, streams)
        return self.status

    async def run_condition(self, sequence: Sequence, streams: Streams) -> int:
        """Run what is only asked for its status: -e does not apply."""
        self.excused += 1
        try:
            return await self.run_sequence(sequence, streams)
        finally:
            self.excused -= 1

    async def _chain(self, chain: Chain, streams: Streams) -> int:
        parts = (("&&", chain.first), *chain.rest)
        for index, (joint, pipeline) in enumerate(parts):
            if index and (joint == "&&") != (self.status == 0):
                continue
            tested = pipeline.negated or index < len(parts) - 1
            self.excused += tested
            try:
                self.status = await self._pipeline(pipeline, streams)
            finally:
                self.excused -= tested
            if self.status and "e" in self.options and not (self.excused or tested):
                raise ShellExit(self.status)
        return self.status

    async def _pipeline(self, pipeline: Pipeline, streams: Streams) -> int:
        if len(pipeline.commands) == 1:
            status = await self.run_command(pipeline.commands[0], streams)
        else:
            status = await self._piped(pipeline.commands, streams)
        return int(status == 0) if pipeline.negated else status

    async def _piped(self, commands: tuple[Command, ...], streams: Streams) -> int:
        pipes = [Pipe() for _ in commands[1:]]

        async def member(index: int) -> int:
            stdin = pipes[index - 1] if index else streams.stdin
            stdout = pipes[index] if index < len(pipes) else streams.stdout
            try:
                inner = Streams(stdin, stdout, streams.stderr)
                return await self.copy(self.process)._contained(commands[index], inner)
            finally:
                if index:
                    pipes[index - 1].leave()
                if index < len(pipes):
                    pipes[index].release()

        async with asyncio.TaskGroup() as together:
            members = [together.create_task(member(index)) for index in range(len(commands))]
        statuses = [member.result() for member in members]
        if "pipefail" in self.options:
            return next((status for status in reversed(statuses) if status), 0)
        return statuses[-1]

    async def _contained(self, command: Command, streams: Streams) -> int:
        """Run in a copy of the shell: exit and jumps end here."""
        try:
            return await self.run_command(command, streams)
        except (ShellExit, Return) as leaving:
            return leaving.status
        except LoopJump:
            return 0
        except BrokenPipeError:
            return 128 + signal.SIGPIPE
        except BadSyntax as error:
            self._complain(streams, str(error))
            return 1

    def _start_in_background(self, chain: Chain, streams: Streams) -> None:
        alone = not chain.rest and len(chain.first.commands) == 1
        process = self.phone.processes.spawn(self.process, list(self.process.argv))
        # The fork of a single command becomes that command: $! is its number.
        process.vacant = alone and isinstance(chain.first.commands[0], Simple)
        child = self.copy(process)
        quiet = streams._replace(stdin=Bytes())
        holding = Holding(streams)
        child.holding = holding if alone else None

        async def work() -> int:
            status = 129
            try:
                status = await child._chain(chain, quiet)
            except (ShellExit, Return) as leaving:
                status = leaving.status
            except (BadSyntax, LoopJump, OSError):
                status = 1
            finally:
                holding.keep()
                self.phone.processes.end(process, status)
            return status

        process.work = asyncio.get_running_loop().create_task(work())
        self.background = process.pid
        self.children.append(process)

    # -- commands

    async def run_command(self, command: Command, streams: Streams) -> int:
        if isinstance(command, Simple):
            return await self._simple(command, streams)
        if isinstance(command, Function):
            self.functions[command.name] = command.body
            return 0
        try:
            inner = await self._redirect(command.redirects, streams)
        except OSError as error:
            self._complain(streams, refusal(error))
            return 1
        return await run_compound(self, command, inner)

    async def _simple(self, command: Simple, streams: Streams) -> int:
        argv: list[str] = []
        for word in command.words:
            argv += await expansion.fields(self, word, streams)
        before = {name: self.variables.get(name) for name, _ in command.assignments}
        for name, word in command.assignments:
            self.variables[name] = await expansion.single(self, word, streams)
        try:
            inner = await self._redirect(command.redirects, streams)
        except OSError as error:
            self._complain(streams, refusal(error))
            return 1
        if not argv:
            # VAR=$(false) is false, VAR=x is true, and VAR=$? has looked before.
            words = (word for _, word in command.assignments)
            return self.status if any(map(_substitutes, words)) else 0
        if not before:
            return await self.invoke(argv, inner)
        try:
            return await self.invoke(argv, inner)
        finally:
            put_back(self.variables, before)

    async def _redirect(self, redirects: tuple[Redirect, ...], streams: Streams) -> Streams:
        inner = await redirected(self, redirects, streams)
        if self.holding is not None:
            self.holding.keep(inner.stdout, inner.stderr)
            self.holding = None
        return inner

    def _prompt(self, streams: Streams, pending: str) -> None:
        if self.prompted:
            home = self.phone.properties["ro.product.device"]
            mark = "#" if self.process.uid == 0 else "$"
            streams.stdout.write(encode("> " if pending else f"{home}:{self.cwd} {mark} "))

    def _complain(self, streams: Streams, text: str) -> None:
        with suppress(OSError):  # nobody may be listening any more
            streams.stderr.write(encode(f"{self.name}: {text}\n"))


def _substitutes(word: Word) -> bool:
    return any(isinstance(part, Substitution) for part in word.parts)
