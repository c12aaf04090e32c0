"""State of a running shell: special parameters, calls with local variables, and what ends early."""

import random
from typing import TYPE_CHECKING

from agent.virtual.shell.command_call import StdStreams
from agent.virtual.shell.shell_parser import ShellSyntaxError
from agent.virtual.shell.syntax_tree import (
    AndOrList,
    CommandList,
    Pipeline,
    Redirect,
    ShellWord,
    SimpleCommand,
)


class ShellExit(Exception):
    """`exit` was executed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class FunctionReturn(Exception):
    """`return` was executed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class LoopJump(Exception):
    """`break` or `continue` was executed."""

    def __init__(self, is_continue: bool, levels: int) -> None:
        super().__init__(is_continue, levels)
        self.is_continue = is_continue
        self.levels = levels

    def continues_loop(self) -> bool:
        """Return whether this loop continues; a jump out of several loops is raised again."""
        if self.levels > 1:
            raise LoopJump(self.is_continue, self.levels - 1)
        return self.is_continue


if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell

_CALLS_MAX = 50


def special_parameter(shell: "Shell", name: str) -> str | None:
    """Return the value of a special parameter such as $?, or None if it is a variable."""
    match name:
        case "?":
            return str(shell.status)
        case "$":
            return str(shell.process.pid)
        case "!":
            return "" if shell.last_background_pid is None else str(shell.last_background_pid)
        case "#":
            return str(len(shell.arguments))
        case "@" | "*":
            return " ".join(shell.arguments)
        case "0":
            return shell.name.partition(":")[0]
        case "PWD":
            return shell.cwd
        case _:
            return _rare_parameter(shell, name)


def _rare_parameter(shell: "Shell", name: str) -> str | None:
    match name:
        case "-":
            return "".join(sorted(letter for letter in shell.options if len(letter) == 1))
        case "PPID":
            return str(shell.process.parent)
        case "RANDOM":
            return str(random.randrange(32768))
        case "SECONDS":
            return str(int(shell.phone.clock.catch_up() - shell.process.started_at))
        case "USER_ID":
            return str(shell.process.uid)
        case _:
            return None


async def call_function(shell: "Shell", argv: list[str], streams: StdStreams) -> int:
    """Run a function's body with its own arguments and local variables."""
    if len(shell.locals) >= _CALLS_MAX:
        raise ShellSyntaxError(f"{argv[0]}: too deeply nested")
    outer, shell.arguments = shell.arguments, argv[1:]
    shell.locals.append({})
    try:
        return await shell.run_command(shell.functions[argv[0]], streams)
    except FunctionReturn as return_request:
        return return_request.status
    finally:
        shell.arguments = outer
        restore_variables(shell.variables, shell.locals.pop())


def restore_variables(variables: dict[str, str], before: dict[str, str | None]) -> None:
    """Undo assignments; None means that the variable did not exist."""
    for name, value in before.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value


def file_substitution(body: CommandList) -> ShellWord | None:
    """Return the file of $(< FILE) if the substitution is only that."""
    match body.and_or_lists:
        case (
            AndOrList(
                Pipeline((SimpleCommand((), (), (Redirect(0, "<", path),)),), False), (), False
            ),
        ):
            return path
    return None
