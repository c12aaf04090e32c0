"""The shell interpreter: runs parsed commands, one after another.

Each shell belongs to a process; what it starts inherits user, cores and session from that process.
"""

import asyncio
import errno
import signal
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from agent.virtual.files.file_tree import error_text
from agent.virtual.phone_loop import background_context
from agent.virtual.process_table import Process
from agent.virtual.shell import word_expansion
from agent.virtual.shell.byte_streams import BufferedSource, BytePipe, ByteSource
from agent.virtual.shell.command_call import (
    CommandCall,
    CommandFunction,
    RetainedOutput,
    StdStreams,
    encode,
)
from agent.virtual.shell.compound_commands import run_compound
from agent.virtual.shell.redirection import apply_redirects, redirect_error
from agent.virtual.shell.shell_parser import IncompleteScript, ShellSyntaxError, parse
from agent.virtual.shell.shell_state import (
    FunctionReturn,
    LoopJump,
    ShellExit,
    call_function,
    file_substitution,
    restore_variables,
    special_parameter,
)
from agent.virtual.shell.syntax_tree import (
    AndOrList,
    CommandList,
    FunctionDefinition,
    Pipeline,
    Redirect,
    ShellCommand,
    ShellWord,
    SimpleCommand,
    SubstitutionPart,
)

if TYPE_CHECKING:
    from agent.virtual.virtual_phone import VirtualPhone


class ProgramFinder(Protocol):
    """Finds what a phone can run, by name."""

    def find(self, shell: "Shell", name: str) -> CommandFunction: ...

    def locate(self, shell: "Shell", name: str) -> str | None: ...


_BROKEN_PIPE = 141
_DEPTH_MAX = 40


class Shell:
    """One shell: its variables, working directory and last status."""

    def __init__(
        self,
        phone: "VirtualPhone",
        process: Process,
        programs: ProgramFinder,
        name: str = "/system/bin/sh",
    ) -> None:
        self.phone = phone
        self.process = process
        self.programs = programs
        self.name = name
        self.cwd = "/"
        self.status = 0
        self.last_background_pid: int | None = None
        # background processes, including ended ones
        self.children: deque[Process] = deque(maxlen=64)
        self.arguments: list[str] = []
        self.depth = 0
        self.is_interactive = False  # prints prompts
        self.retained_output: RetainedOutput | None = None
        self.functions: dict[str, ShellCommand] = {}
        self.options: set[str] = set()  # letters of `set -e` and others
        # outer values of the variables of each function call
        self.locals: list[dict[str, str | None]] = []
        self.errexit_suspended = 0  # above 0 inside a condition, where -e does not apply
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
        """Return a shell for ( .. ), $( .. ) or &: it has the same state, and its changes stay
        inside.
        """
        child = Shell(self.phone, process, self.programs, self.name)
        child.cwd, child.status, child.last_background_pid = (
            self.cwd,
            self.status,
            self.last_background_pid,
        )
        child.variables = dict(self.variables)
        child.arguments = list(self.arguments)
        child.depth = self.depth + 1
        child.is_interactive = self.is_interactive
        child.functions = dict(self.functions)
        child.options = set(self.options)
        child.errexit_suspended = self.errexit_suspended
        child.locals = [{} for _ in self.locals]
        if child.depth > _DEPTH_MAX:
            raise ShellSyntaxError("too deeply nested")
        return child

    # -- entry points

    async def run_text(self, text: str, streams: StdStreams) -> int:
        """Run the text of `sh -c TEXT` or of a script."""
        try:
            status = await self.run_list(parse(text), streams)
        except (ShellExit, FunctionReturn) as exit_request:
            status = exit_request.status
        except LoopJump:
            status = 0  # break outside a loop
        except (ShellSyntaxError, RecursionError) as error:
            self._write_error(streams, str(error))
            status = 1
        return status

    async def run_lines(self, source: ByteSource, streams: StdStreams) -> int:
        """Read commands line by line, and run each before the next line is read."""
        pending = ""
        name = self.name
        number = 0
        self._write_prompt(streams, pending)
        while line := await source.read_line():
            number += 1
            self.name = f"{name}: <stdin>[{number}]"
            pending += line.decode("utf-8", "surrogateescape")
            try:
                script = parse(pending)
            except IncompleteScript:
                self._write_prompt(streams, pending)
                continue
            except (ShellSyntaxError, RecursionError) as error:
                self._write_error(streams, str(error))
                if not self.is_interactive:
                    return 1
                script = CommandList()
            pending = ""
            try:
                self.status = await self.run_list(script, streams)
            except ShellExit as exit_request:
                return exit_request.status
            except (LoopJump, FunctionReturn):
                self.status = 0
            except (ShellSyntaxError, RecursionError) as error:
                self._write_error(streams, str(error))
                self.status = 1
            self._write_prompt(streams, pending)
            await streams.drain()
        if pending.strip():
            self._write_error(streams, "syntax error: unexpected end of file")
            return 1
        return self.status

    async def capture_output(self, body: CommandList, streams: StdStreams) -> bytes:
        pipe = BytePipe()
        child = self.copy(self.process)
        if (path := file_substitution(body)) is not None:
            name = await word_expansion.expand_single(self, path, streams)
            return self.phone.tree.read(name, self.process.uid, self.cwd)
        try:
            self.status = await child.run_list(body, streams._replace(stdout=pipe))
        except (ShellExit, FunctionReturn) as exit_request:
            self.status = exit_request.status
        return pipe.content()

    async def invoke(
        self, argv: list[str], streams: StdStreams, process: Process | None = None
    ) -> int:
        """Run one command with its fields expanded."""
        if argv[0] in self.functions:
            return await call_function(self, argv, streams)
        call = CommandCall(argv, self, process or self.process, streams)
        if call.process.resume_event is not None:
            await call.process.resume_event.wait()
        self.phone.processes.current_pid = call.process.pid
        try:
            outcome = self.programs.find(self, argv[0])(call)
            status = outcome if isinstance(outcome, int) else await outcome
        except OSError as error:
            if error.errno == errno.EPIPE:
                return _BROKEN_PIPE
            where = f"{error.filename}: " if error.filename else ""
            return call.fail(f"{where}{error_text(error)}")
        except (LookupError, ValueError, OverflowError):
            # Unexpected arguments end the command, not the shell.
            return call.fail("bad arguments")
        await streams.drain()
        return status

    def find_command_path(self, name: str) -> str | None:
        """Return where a command is, if the phone has it."""
        if name in self.functions:
            return name
        return self.programs.locate(self, name)

    def get_parameter(self, name: str) -> str | None:
        """Return the value of $NAME."""
        value = special_parameter(self, name)
        if value is not None:
            return value
        if name.isdigit():
            index = int(name) - 1
            return self.arguments[index] if index < len(self.arguments) else None
        return self.variables.get(name)

    # -- lists

    async def run_list(self, commands: CommandList, streams: StdStreams) -> int:
        """Run the commands of a list; the status is that of the last."""
        for and_or_list in commands.and_or_lists:
            if and_or_list.is_background:
                self._start_in_background(and_or_list, streams)
                self.status = 0
            else:
                self.status = await self._run_and_or(and_or_list, streams)
        return self.status

    async def run_condition(self, commands: CommandList, streams: StdStreams) -> int:
        """Run a list for its status only: -e does not apply."""
        self.errexit_suspended += 1
        try:
            return await self.run_list(commands, streams)
        finally:
            self.errexit_suspended -= 1

    async def _run_and_or(self, and_or_list: AndOrList, streams: StdStreams) -> int:
        parts = (("&&", and_or_list.first), *and_or_list.rest)
        for index, (operator, pipeline) in enumerate(parts):
            if index and (operator == "&&") != (self.status == 0):
                continue
            tested = pipeline.is_negated or index < len(parts) - 1
            self.errexit_suspended += tested
            try:
                self.status = await self._run_pipeline(pipeline, streams)
            finally:
                self.errexit_suspended -= tested
            if self.status and "e" in self.options and not (self.errexit_suspended or tested):
                raise ShellExit(self.status)
        return self.status

    async def _run_pipeline(self, pipeline: Pipeline, streams: StdStreams) -> int:
        if len(pipeline.commands) == 1:
            status = await self.run_command(pipeline.commands[0], streams)
        else:
            status = await self._run_piped(pipeline.commands, streams)
        return int(status == 0) if pipeline.is_negated else status

    async def _run_piped(self, commands: tuple[ShellCommand, ...], streams: StdStreams) -> int:
        pipes = [BytePipe() for _ in commands[1:]]

        async def member(index: int) -> int:
            stdin = pipes[index - 1] if index else streams.stdin
            stdout = pipes[index] if index < len(pipes) else streams.stdout
            try:
                inner = StdStreams(stdin, stdout, streams.stderr)
                return await self.copy(self.process)._run_in_subshell(commands[index], inner)
            finally:
                if index:
                    pipes[index - 1].close_reader()
                if index < len(pipes):
                    pipes[index].release()

        async with asyncio.TaskGroup() as together:
            members = [together.create_task(member(index)) for index in range(len(commands))]
        statuses = [member.result() for member in members]
        if "pipefail" in self.options:
            return next((status for status in reversed(statuses) if status), 0)
        return statuses[-1]

    async def _run_in_subshell(self, command: ShellCommand, streams: StdStreams) -> int:
        """Run in a copy of the shell: exit and jumps end here."""
        try:
            return await self.run_command(command, streams)
        except (ShellExit, FunctionReturn) as exit_request:
            return exit_request.status
        except LoopJump:
            return 0
        except BrokenPipeError:
            return 128 + signal.SIGPIPE
        except ShellSyntaxError as error:
            self._write_error(streams, str(error))
            return 1

    def _start_in_background(self, and_or_list: AndOrList, streams: StdStreams) -> None:
        is_single = not and_or_list.rest and len(and_or_list.first.commands) == 1
        process = self.phone.processes.spawn(self.process, list(self.process.argv))
        # The fork of a single command becomes that command, so that $! is its pid.
        process.awaiting_exec = is_single and isinstance(
            and_or_list.first.commands[0], SimpleCommand
        )
        child = self.copy(process)
        background_streams = streams._replace(stdin=BufferedSource())
        retained_output = RetainedOutput(streams)
        child.retained_output = retained_output if is_single else None

        async def work() -> int:
            status = 129
            try:
                status = await child._run_and_or(and_or_list, background_streams)
            except (ShellExit, FunctionReturn) as exit_request:
                status = exit_request.status
            except (ShellSyntaxError, LoopJump, OSError):
                status = 1
            finally:
                retained_output.keep_only()
                self.phone.processes.end_process(process, status)
            return status

        loop = asyncio.get_running_loop()
        process.task = loop.create_task(work(), context=background_context())
        self.last_background_pid = process.pid
        self.children.append(process)

    # -- commands

    async def run_command(self, command: ShellCommand, streams: StdStreams) -> int:
        if isinstance(command, SimpleCommand):
            return await self._run_simple(command, streams)
        if isinstance(command, FunctionDefinition):
            self.functions[command.name] = command.body
            return 0
        try:
            inner = await self._redirect_streams(command.redirects, streams)
        except OSError as error:
            self._write_error(streams, redirect_error(error))
            return 1
        return await run_compound(self, command, inner)

    async def _run_simple(self, command: SimpleCommand, streams: StdStreams) -> int:
        argv: list[str] = []
        for word in command.words:
            if argv[:1] == ["[["]:  # no splitting and no file names between [[ and ]]
                argv.append(await word_expansion.expand_single(self, word, streams))
            else:
                argv += await word_expansion.expand_fields(self, word, streams)
        before = {name: self.variables.get(name) for name, _ in command.assignments}
        for name, word in command.assignments:
            self.variables[name] = await word_expansion.expand_single(self, word, streams)
        try:
            inner = await self._redirect_streams(command.redirects, streams)
        except OSError as error:
            self._write_error(streams, redirect_error(error))
            return 1
        if not argv:
            # VAR=$(false) is false and VAR=x is true; the status of the substitution is already
            # set.
            words = (word for _, word in command.assignments)
            return self.status if any(map(_has_substitution, words)) else 0
        if not before:
            return await self.invoke(argv, inner)
        try:
            return await self.invoke(argv, inner)
        finally:
            restore_variables(self.variables, before)

    async def _redirect_streams(
        self, redirects: tuple[Redirect, ...], streams: StdStreams
    ) -> StdStreams:
        inner = await apply_redirects(self, redirects, streams)
        if self.retained_output is not None:
            self.retained_output.keep_only(inner.stdout, inner.stderr)
            self.retained_output = None
        return inner

    def _write_prompt(self, streams: StdStreams, pending: str) -> None:
        if self.is_interactive:
            device = self.phone.properties["ro.product.device"]
            prompt_sign = "#" if self.process.uid == 0 else "$"
            streams.stdout.write(encode("> " if pending else f"{device}:{self.cwd} {prompt_sign} "))

    def _write_error(self, streams: StdStreams, text: str) -> None:
        with suppress(OSError):  # the host may be gone
            streams.stderr.write(encode(f"{self.name}: {text}\n"))


def _has_substitution(word: ShellWord) -> bool:
    return any(isinstance(part, SubstitutionPart) for part in word.parts)
