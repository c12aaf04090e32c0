"""Built-in commands of the shell: variables, working directory, conditions, jumps."""

import asyncio
import errno
import re
import stat
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import zip_longest

from agent.virtual.commands.command_options import split_options
from agent.virtual.files.file_nodes import Directory, FileNode
from agent.virtual.files.file_tree import os_error
from agent.virtual.process_table import Process
from agent.virtual.shell.command_call import CommandCall, CommandFunction, by_name, decode, encode
from agent.virtual.shell.shell_parser import parse
from agent.virtual.shell.shell_state import FunctionReturn, LoopJump, ShellExit


def true(call: CommandCall) -> int:
    return 0


def false(call: CommandCall) -> int:
    return 1


def exit_shell(call: CommandCall) -> int:
    raise ShellExit(_first_number(call, default=call.shell.status) & 255)


def break_loop(call: CommandCall) -> int:
    raise LoopJump(is_continue=False, levels=_first_number(call, default=1))


def continue_loop(call: CommandCall) -> int:
    raise LoopJump(is_continue=True, levels=_first_number(call, default=1))


def cd(call: CommandCall) -> int:
    target = call.argv[1] if len(call.argv) > 1 else call.shell.variables.get("HOME", "/")
    node, path = call.phone.tree.resolve(target, call.uid, call.cwd)
    if not isinstance(node, Directory):
        raise os_error(errno.ENOTDIR, target)
    call.shell.cwd = path
    return 0


def pwd(call: CommandCall) -> int:
    call.print(f"{call.cwd}\n")
    return 0


def export(call: CommandCall) -> int:
    for item in call.argv[1:]:
        name, equals, value = item.partition("=")
        if equals:
            call.shell.variables[name] = value
    return 0


def umask(call: CommandCall) -> int:
    """Set the mask of new files; here it is one per user, on a phone one per process."""
    masks = call.phone.tree.umasks
    if len(call.argv) == 1:
        call.print(f"{masks.get(call.uid, 0):04o}\n")
        return 0
    if re.fullmatch(r"[0-7]{1,4}", call.argv[1]) is None:
        return call.fail(f"{call.argv[1]}: bad number")
    masks[call.uid] = int(call.argv[1], 8) & 0o777
    return 0


def unset(call: CommandCall) -> int:
    for name in call.argv[1:]:
        call.shell.variables.pop(name, None)
    return 0


def shift(call: CommandCall) -> int:
    del call.shell.arguments[: _first_number(call, default=1)]
    return 0


def set_options(call: CommandCall) -> int:
    """Handle set -e, +e, -o pipefail and -- a b c; options without an effect are stored too."""
    words = call.argv[1:]
    if not words:
        variables = sorted(call.shell.variables.items())
        call.print("".join(f"{name}={value}\n" for name, value in variables))
    while words and words[0][:1] in ("-", "+") and len(words[0]) > 1:
        word = words.pop(0)
        if word == "--":
            call.shell.arguments = words
            return 0
        change = (
            call.shell.options.update if word[0] == "-" else call.shell.options.difference_update
        )
        if "o" in word and words:
            name = words.pop(0)
            change({{"errexit": "e", "nounset": "u", "xtrace": "x"}.get(name, name)})
        change(set(word[1:]) - {"o"})
    if words:
        call.shell.arguments = words
    return 0


def return_from(call: CommandCall) -> int:
    raise FunctionReturn(_first_number(call, default=call.shell.status) & 255)


def local(call: CommandCall) -> int:
    """Handle local x=1 y; outside a function it only assigns."""
    for item in call.argv[1:]:
        if item.startswith("-"):
            continue
        name, equals, value = item.partition("=")
        if call.shell.locals:
            call.shell.locals[-1].setdefault(name, call.shell.variables.get(name))
        if equals or call.shell.locals:
            call.shell.variables[name] = value
    return 0


async def read(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:], valued="ptndu")
    if "p" in options:
        call.streams.stderr.write(encode(options["p"]))
    line = await call.streams.stdin.read_line()
    text = decode(line).rstrip("\n")
    text = text if "r" in options else re.sub(r"\\(.)", r"\1", text)
    separators = call.shell.variables.get("IFS", " \t\n")
    for name, value in zip_longest(
        names or ["REPLY"], _split_fields(text, separators, len(names) or 1)
    ):
        call.shell.variables[name] = value or ""
    return 0 if line.endswith(b"\n") else 1


def _split_fields(text: str, separators: str, count: int) -> list[str]:
    """Split into at most `count` words; the last one is the rest."""
    if not separators:
        return [text]
    blanks = "".join(character for character in separators if character.isspace())
    text = text.strip(blanks) if blanks else text
    if not text:
        return []
    blank = f"[{re.escape(blanks)}]" if blanks else r"(?!)"
    other_separators = "".join(character for character in separators if not character.isspace())
    cut = (
        f"{blank}*[{re.escape(other_separators)}]{blank}*|{blank}+"
        if other_separators
        else f"{blank}+"
    )
    return re.split(cut, text, maxsplit=count - 1) if count > 1 else [text]


async def evaluate(call: CommandCall) -> int:
    return await call.shell.run_list(parse(" ".join(call.argv[1:])), call.streams)


async def source_file(call: CommandCall) -> int:
    text = decode(call.phone.tree.read(call.argv[1], call.uid, call.cwd))
    try:
        return await call.shell.run_list(parse(text), call.streams)
    except FunctionReturn as return_request:
        return return_request.status


async def execute(call: CommandCall) -> int:
    """Handle exec: the shell becomes the command."""
    if len(call.argv) == 1:
        return 0
    call.process.awaiting_exec = True
    raise ShellExit(await call.shell.invoke(call.argv[1:], call.streams, call.process))


async def wait(call: CommandCall) -> int:
    """Wait for background processes, by pid or all of this shell's."""
    pids = {int(word) for word in call.argv[1:] if word.isdigit()}
    status = 0
    for process in list(call.shell.children):
        if process.pid in pids or (not pids and process.status is None):
            with call.phone.clock.blocked():
                status = await _wait_for(process)
    return status


async def _wait_for(process: Process) -> int:
    if process.task is not None:
        await asyncio.wait([process.task])
    return process.status or 0


def print_paths(call: CommandCall) -> int:
    """Handle which NAME... and command -v NAME..."""
    status = 0
    for name in call.argv[1:]:
        if name.startswith("-"):
            continue
        path = call.shell.find_command_path(name)
        if path is None:
            status = 1
        else:
            call.print(f"{path}\n")
    return status


def test(call: CommandCall) -> int:
    arguments = call.argv[1:]
    if call.name in ("[", "[["):
        closing = "]" * len(call.name)
        if not arguments or arguments[-1] != closing:
            return call.fail(f"missing {closing}", 2)
        arguments = arguments[:-1]
    try:
        return int(not _evaluate_test(call, arguments))
    except ValueError:
        return call.fail("bad number", 2)


def _evaluate_test(call: CommandCall, words: list[str]) -> bool:
    if "-o" in words[1:-1]:
        cut = words.index("-o", 1)
        return _evaluate_test(call, words[:cut]) or _evaluate_test(call, words[cut + 1 :])
    if "-a" in words[1:-1]:
        cut = words.index("-a", 1)
        return _evaluate_test(call, words[:cut]) and _evaluate_test(call, words[cut + 1 :])
    if words[:1] == ["!"] and len(words) > 1:
        return not _evaluate_test(call, words[1:])
    if len(words) == 3:
        if call.name == "[[" and words[1] in ("=", "==", "!="):
            return fnmatchcase(words[0], words[2]) == (words[1] != "!=")
        return _compare(*words)
    if len(words) == 2:
        return _check_file(call, words[0], words[1])
    return bool(words and words[0])


def _compare(left: str, sign: str, right: str) -> bool:
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


def _check_file(call: CommandCall, sign: str, word: str) -> bool:
    if sign in ("-n", "-z"):
        return bool(word) == (sign == "-n")
    try:
        follow = sign not in ("-L", "-h")
        node, path = call.phone.tree.resolve(word, call.uid, call.cwd, follow=follow)
    except OSError:
        return False
    checks: dict[str, Callable[[FileNode], bool]] = {
        "-e": lambda _: True,
        "-f": lambda node: stat.S_ISREG(node.mode),
        "-d": lambda node: stat.S_ISDIR(node.mode),
        "-L": lambda node: stat.S_ISLNK(node.mode),
        "-h": lambda node: stat.S_ISLNK(node.mode),
        "-s": lambda node: node.size > 0,
        "-r": lambda node: node.allows(call.uid, 4),
        "-w": lambda node: node.allows(call.uid, 2),
        # access(2) also fails on a file system that is mounted noexec.
        "-x": lambda node: node.allows(call.uid, 1) and not path.startswith("/storage"),
    }
    return sign in checks and checks[sign](node)


def _first_number(call: CommandCall, default: int) -> int:
    word = call.argv[1] if len(call.argv) > 1 else ""
    return int(word) if word.lstrip("-").isdigit() else default


BUILTINS: dict[str, CommandFunction] = {
    **by_name(cd, export, false, local, pwd, read, shift, test, true, umask, unset, wait),
    ":": true,
    ".": source_file,
    "[": test,
    "[[": test,
    "break": break_loop,
    "command": print_paths,
    "continue": continue_loop,
    "eval": evaluate,
    "exec": execute,
    "exit": exit_shell,
    "return": return_from,
    "set": set_options,
    "ulimit": true,
}
