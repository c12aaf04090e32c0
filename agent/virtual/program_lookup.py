"""From a command's name to what runs: a command of the phone, a pushed file, or an error.

What the phone does not have fails loudly with 127 and is journalled, so that gaps show as gaps.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from agent.virtual.commands import COMMANDS
from agent.virtual.commands.builtins import BUILTINS
from agent.virtual.files.nodes import Directory, File
from agent.virtual.processes import Process
from agent.virtual.runner.program import RUNNER_MARK, runner
from agent.virtual.shell.call import Call, Program, decode, encode, occupy

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell

_SYSTEM_FOLDERS = ("/system/bin", "/system/xbin", "/vendor/bin", "/bin")
_ELF = b"\x7fELF"
# Tools bring a busybox of their own; its applets are the phone's commands here.
_BUSYBOX_MARK = b"BusyBox v"


class PhonePrograms:
    """The phone's commands and whatever was pushed to it."""

    def find(self, shell: "Shell", name: str) -> Program:
        """What a name runs; where there is mischief, as it lets it."""
        program = self._find(shell, name)
        mischief = shell.phone.mischief
        return program if mischief is None else mischief.around(program)

    def _find(self, shell: "Shell", name: str) -> Program:
        if "/" in name:
            return _by_path(shell, name)
        if name == "toybox":
            return toybox
        return COMMANDS[name] if _has(shell, name) else _missing

    def locate(self, shell: "Shell", name: str) -> str | None:
        """What `command -v` and `which` answer."""
        if "/" in name:
            return name if shell.phone.tree.exists(name, shell.cwd) else None
        if not _has(shell, name):
            return None
        return name if name in BUILTINS else f"/system/bin/{name}"


def _has(shell: "Shell", name: str) -> bool:
    return name in COMMANDS and (name != "su" or shell.phone.profile.rooted)


def _by_path(shell: "Shell", name: str) -> Program:
    folder, _, leaf = name.rpartition("/")
    if folder in _SYSTEM_FOLDERS and leaf in COMMANDS and leaf not in BUILTINS:
        return COMMANDS[leaf]
    try:
        node, path = shell.phone.tree.resolve(name, shell.process.uid, shell.cwd)
    except OSError:
        return _missing
    if isinstance(node, Directory):
        return _refuse("can't execute: Is a directory")
    # The sdcard is mounted noexec, whatever the mode says.
    if not node.allows(shell.process.uid, 1) or path.startswith("/storage"):
        return _refuse("can't execute: Permission denied")
    if not isinstance(node, File):
        return _refuse("can't execute: Permission denied")
    if RUNNER_MARK in node.content:
        return runner
    if _BUSYBOX_MARK in node.content:
        return toybox
    if node.content.startswith(_ELF):
        bits = 32 * node.content[4] if len(node.content) > 4 else 0
        return _refuse(f"not executable: {bits}-bit ELF file")
    return _script


def toybox(call: Call) -> "int | Awaitable[int]":
    """One binary with many names: toybox NAME.., or a busybox that somebody pushed."""
    words = call.argv[1:]
    if not words:
        call.say(" ".join(sorted(set(COMMANDS) - set(BUILTINS))) + "\n")
        return 0
    if words[0] not in COMMANDS or words[0] == "su":
        return call.complain(f"Unknown command {words[0]}", 127)
    return COMMANDS[words[0]](Call(words, call.shell, call.process, call.streams))


async def _script(call: Call) -> int:
    """A pushed file without a header of another kind is a shell script."""
    content = call.phone.tree.read(call.argv[0], call.uid, call.cwd)

    async def body(process: Process) -> int:
        shell = call.shell.copy(process)
        shell.name = call.argv[0]
        shell.arguments = call.argv[1:]
        return await shell.run_text(decode(content), call.streams)

    return await occupy(call, ["/system/bin/sh", *call.argv], body)


def _missing(call: Call) -> int:
    call.phone.journal.write("unknown_command", argv=call.argv[:20], uid=call.uid)
    recent = call.phone.profile.sdk >= 29
    why = "inaccessible or not found" if recent else "not found"
    call.streams.stderr.write(encode(f"{call.shell.name}: {call.argv[0]}: {why}\n"))
    return 127


def _refuse(why: str) -> Program:
    def refused(call: Call) -> int:
        call.streams.stderr.write(encode(f"{call.shell.name}: {call.argv[0]}: {why}\n"))
        return 126

    return refused
