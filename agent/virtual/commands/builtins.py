"""Commands that belong to the shell itself: variables, folders, conditions, jumps."""

import asyncio
import errno
import stat
from collections.abc import Callable

from agent.virtual.files.nodes import Directory, Node
from agent.virtual.files.tree import failed
from agent.virtual.processes import Process
from agent.virtual.shell.call import Call, Program, decode
from agent.virtual.shell.jumps import LoopJump, ShellExit


def true(call: Call) -> int:
    return 0


def false(call: Call) -> int:
    return 1


def exit_shell(call: Call) -> int:
    raise ShellExit(_number(call, default=call.shell.status) & 255)


def break_loop(call: Call) -> int:
    raise LoopJump(again=False, levels=_number(call, default=1))


def continue_loop(call: Call) -> int:
    raise LoopJump(again=True, levels=_number(call, default=1))


def cd(call: Call) -> int:
    target = call.argv[1] if len(call.argv) > 1 else call.shell.variables.get("HOME", "/")
    node, path = call.phone.tree.resolve(target, call.uid, call.cwd)
    if not isinstance(node, Directory):
        raise failed(errno.ENOTDIR, target)
    call.shell.cwd = path
    return 0


def pwd(call: Call) -> int:
    call.say(f"{call.cwd}\n")
    return 0


def export(call: Call) -> int:
    for item in call.argv[1:]:
        name, equals, value = item.partition("=")
        if equals:
            call.shell.variables[name] = value
    return 0


def unset(call: Call) -> int:
    for name in call.argv[1:]:
        call.shell.variables.pop(name, None)
    return 0


def shift(call: Call) -> int:
    del call.shell.arguments[: _number(call, default=1)]
    return 0


def set_arguments(call: Call) -> int:
    """set -- a b c; options such as -e are accepted and have no effect."""
    if "--" in call.argv:
        call.shell.arguments = call.argv[call.argv.index("--") + 1 :]
    return 0


def env(call: Call) -> int:
    call.say("".join(f"{name}={value}\n" for name, value in call.shell.variables.items()))
    return 0


async def read(call: Call) -> int:
    line = await call.streams.stdin.read_line()
    names = [name for name in call.argv[1:] if not name.startswith("-")] or ["REPLY"]
    words = decode(line).rstrip("\n").split(None, len(names) - 1)
    for name, value in zip(names, words + [""] * len(names), strict=False):
        call.shell.variables[name] = value.strip()
    return 0 if line.endswith(b"\n") else 1


async def evaluate(call: Call) -> int:
    return await call.shell.run_text(" ".join(call.argv[1:]), call.streams)


async def source_file(call: Call) -> int:
    text = decode(call.phone.tree.read(call.argv[1], call.uid, call.cwd))
    return await call.shell.run_text(text, call.streams)


async def execute(call: Call) -> int:
    """exec: the shell becomes the command."""
    if len(call.argv) == 1:
        return 0
    call.process.vacant = True
    raise ShellExit(await call.shell.invoke(call.argv[1:], call.streams, call.process))


async def wait(call: Call) -> int:
    """Wait for background processes, by number or all of this shell's."""
    wanted = {int(word) for word in call.argv[1:] if word.isdigit()}
    status = 0
    for process in call.phone.processes.all():
        ours = process.parent == call.process.pid and process.work is not None
        if process.pid in wanted or (not wanted and ours):
            status = await _finish(process)
    return status


async def _finish(process: Process) -> int:
    if process.work is not None:
        await asyncio.wait([process.work])
    return process.status or 0


def command(call: Call) -> int:
    """command -v NAME"""
    found = 0
    for name in call.argv[1:]:
        if name.startswith("-"):
            continue
        path = call.shell.where(name)
        if path is None:
            found = 1
        else:
            call.say(f"{path}\n")
    return found


def test(call: Call) -> int:
    arguments = call.argv[1:]
    if call.name == "[":
        if not arguments or arguments[-1] != "]":
            return call.complain("missing ]", 2)
        arguments = arguments[:-1]
    try:
        return int(not _holds(call, arguments))
    except ValueError:
        return call.complain("bad number", 2)


def _holds(call: Call, words: list[str]) -> bool:
    if "-o" in words[1:-1]:
        cut = words.index("-o", 1)
        return _holds(call, words[:cut]) or _holds(call, words[cut + 1 :])
    if "-a" in words[1:-1]:
        cut = words.index("-a", 1)
        return _holds(call, words[:cut]) and _holds(call, words[cut + 1 :])
    if words[:1] == ["!"] and len(words) > 1:
        return not _holds(call, words[1:])
    if len(words) == 3:
        return _compares(*words)
    if len(words) == 2:
        return _is(call, words[0], words[1])
    return bool(words and words[0])


def _compares(left: str, sign: str, right: str) -> bool:
    texts: dict[str, Callable[[str, str], bool]] = {
        "=": lambda a, b: a == b,
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
    }
    if sign in texts:
        return texts[sign](left, right)
    numbers: dict[str, Callable[[int, int], bool]] = {
        "-eq": lambda a, b: a == b,
        "-ne": lambda a, b: a != b,
        "-lt": lambda a, b: a < b,
        "-le": lambda a, b: a <= b,
        "-gt": lambda a, b: a > b,
        "-ge": lambda a, b: a >= b,
    }
    return numbers[sign](int(left), int(right)) if sign in numbers else False


def _is(call: Call, sign: str, word: str) -> bool:
    if sign in ("-n", "-z"):
        return bool(word) == (sign == "-n")
    try:
        node, _ = call.phone.tree.resolve(word, call.uid, call.cwd, follow=sign not in ("-L", "-h"))
    except OSError:
        return False
    checks: dict[str, Callable[[Node], bool]] = {
        "-e": lambda _: True,
        "-f": lambda node: stat.S_ISREG(node.mode),
        "-d": lambda node: stat.S_ISDIR(node.mode),
        "-L": lambda node: stat.S_ISLNK(node.mode),
        "-h": lambda node: stat.S_ISLNK(node.mode),
        "-s": lambda node: node.size > 0,
        "-r": lambda node: node.allows(call.uid, 4),
        "-w": lambda node: node.allows(call.uid, 2),
        "-x": lambda node: node.allows(call.uid, 1),
    }
    return sign in checks and checks[sign](node)


def _number(call: Call, default: int) -> int:
    word = call.argv[1] if len(call.argv) > 1 else ""
    return int(word) if word.lstrip("-").isdigit() else default


BUILTINS: dict[str, Program] = {
    ":": true,
    ".": source_file,
    "[": test,
    "break": break_loop,
    "cd": cd,
    "command": command,
    "continue": continue_loop,
    "env": env,
    "eval": evaluate,
    "exec": execute,
    "exit": exit_shell,
    "export": export,
    "false": false,
    "pwd": pwd,
    "read": read,
    "set": set_arguments,
    "shift": shift,
    "test": test,
    "true": true,
    "type": command,
    "umask": true,
    "unset": unset,
    "wait": wait,
}
