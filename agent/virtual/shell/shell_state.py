"""What a shell remembers while it works: functions, their local variables, traps, $-parameters."""

import random
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.virtual.shell.call import Streams
from agent.virtual.shell.grammar import Chain, Pipeline, Redirect, Sequence, Simple, Word
from agent.virtual.shell.jumps import LoopJump, Return, ShellExit
from agent.virtual.shell.parser import BadSyntax, parse

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell

_CALLS_MAX = 50


def special(shell: "Shell", name: str) -> str | None:
    """The value of a parameter that is no variable, if it is one."""
    match name:
        case "?":
            return str(shell.status)
        case "$":
            return str(shell.process.pid)
        case "!":
            return "" if shell.background is None else str(shell.background)
        case "#":
            return str(len(shell.arguments))
        case "@" | "*":
            return " ".join(shell.arguments)
        case "0":
            return shell.name.partition(":")[0]
        case "PWD":
            return shell.cwd
        case _:
            return _rarely_asked(shell, name)


def _rarely_asked(shell: "Shell", name: str) -> str | None:
    match name:
        case "-":
            return "".join(sorted(letter for letter in shell.options if len(letter) == 1))
        case "PPID":
            return str(shell.process.parent)
        case "RANDOM":
            return str(random.randrange(32768))
        case "SECONDS":
            return str(int(shell.phone.timeline.catch_up() - shell.process.started))
        case "USER_ID":
            return str(shell.process.uid)
        case _:
            return None


async def call_function(shell: "Shell", argv: list[str], streams: Streams) -> int:
    """Run a function's body with arguments and locals of its own."""
    if len(shell.locals) >= _CALLS_MAX:
        raise BadSyntax(f"{argv[0]}: too deeply nested")
    outer, shell.arguments = shell.arguments, argv[1:]
    shell.locals.append({})
    try:
        return await shell.run_command(shell.functions[argv[0]], streams)
    except Return as back:
        return back.status
    finally:
        shell.arguments = outer
        put_back(shell.variables, shell.locals.pop())


def put_back(variables: dict[str, str], before: dict[str, str | None]) -> None:
    """Undo assignments; None is what was not there."""
    for name, value in before.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value


async def leave(shell: "Shell", status: int, streams: Streams) -> int:
    """The shell ends: what `trap .. EXIT` asked for comes last."""
    text = shell.traps.pop("EXIT", "")
    if text:
        shell.status = status
        try:
            with suppress(LoopJump, Return, BadSyntax):
                await shell.run_sequence(parse(text), streams)
        except ShellExit as leaving:
            return leaving.status
    return status


def only_read(body: Sequence) -> Word | None:
    """The file of $(< FILE), where that is all there is."""
    match body.chains:
        case (Chain(Pipeline((Simple((), (), (Redirect(0, "<", path),)),), False), (), False),):
            return path
    return None
