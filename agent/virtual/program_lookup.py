"""Finds what a command name runs: a built-in command, a pushed file, or an error.

A command that the phone does not have fails with status 127 and is journalled, so that gaps in the
simulation are visible.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from agent.virtual.commands import COMMANDS
from agent.virtual.commands.shell_builtins import BUILTINS
from agent.virtual.event_journal import JournalEvent
from agent.virtual.files.file_nodes import Directory, RegularFile
from agent.virtual.process_table import Process
from agent.virtual.runner.runner_program import RUNNER_MARK, run_runner
from agent.virtual.shell.command_call import (
    CommandCall,
    CommandFunction,
    decode,
    encode,
    run_as_process,
)

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell

_SYSTEM_FOLDERS = ("/system/bin", "/system/xbin", "/vendor/bin", "/bin")
# Android 8 and 11 brought these.
_FIRST_SDK = {"sha256sum": 26, "fsync": 30}
_ELF = b"\x7fELF"


class ProgramLookup:
    """Looks up the phone's commands and the files pushed to it."""

    def find(self, shell: "Shell", name: str) -> CommandFunction:
        """Return the function behind a name, wrapped by the fault injector if there is one."""
        program = self._find(shell, name)
        mischief = shell.phone.mischief
        return program if mischief is None else mischief.wrap_program(program)

    def _find(self, shell: "Shell", name: str) -> CommandFunction:
        if "/" in name:
            return _program_at_path(shell, name)
        if name == "toybox":
            return run_toybox
        return COMMANDS[name] if _has_command(shell, name) else _report_missing

    def locate(self, shell: "Shell", name: str) -> str | None:
        """Return what `command -v` and `which` print."""
        if "/" in name:
            return name if shell.phone.tree.exists(name, shell.cwd) else None
        if not _has_command(shell, name):
            return None
        return name if name in BUILTINS else f"/system/bin/{name}"


def _has_command(shell: "Shell", name: str) -> bool:
    phone = shell.phone.profile
    return (
        name in COMMANDS and (name != "su" or phone.rooted) and phone.sdk >= _FIRST_SDK.get(name, 0)
    )


def _program_at_path(shell: "Shell", name: str) -> CommandFunction:
    folder, _, leaf = name.rpartition("/")
    if folder in _SYSTEM_FOLDERS and _has_command(shell, leaf) and leaf not in BUILTINS:
        return COMMANDS[leaf]
    try:
        node, path = shell.phone.tree.resolve(name, shell.process.uid, shell.cwd)
    except OSError:
        return _report_missing
    if isinstance(node, Directory):
        return _refusal("can't execute: Is a directory")
    # The sdcard is mounted noexec, whatever the file mode says.
    if not node.allows(shell.process.uid, 1) or path.startswith("/storage"):
        return _refusal("can't execute: Permission denied")
    if not isinstance(node, RegularFile):
        return _refusal("can't execute: Permission denied")
    if RUNNER_MARK in node.content:
        return run_runner
    if node.content.startswith(_ELF):
        bits = 32 * node.content[4] if len(node.content) > 4 else 0
        return _refusal(f"not executable: {bits}-bit ELF file")
    return _run_script


def run_toybox(call: CommandCall) -> "int | Awaitable[int]":
    """Run an applet of toybox."""
    words = call.argv[1:]
    if not words:
        call.print(" ".join(sorted(set(COMMANDS) - set(BUILTINS))) + "\n")
        return 0
    if not _has_command(call.shell, words[0]) or words[0] == "su":
        return call.fail(f"Unknown command {words[0]}", 127)
    return COMMANDS[words[0]](CommandCall(words, call.shell, call.process, call.streams))


async def _run_script(call: CommandCall) -> int:
    """Run a pushed file that is neither a runner nor an ELF file as a shell script."""
    content = call.phone.tree.read(call.argv[0], call.uid, call.cwd)

    async def body(process: Process) -> int:
        shell = call.shell.copy(process)
        shell.name = call.argv[0]
        shell.arguments = call.argv[1:]
        return await shell.run_text(decode(content), call.streams)

    return await run_as_process(call, ["/system/bin/sh", *call.argv], body)


def _report_missing(call: CommandCall) -> int:
    call.phone.journal.write(JournalEvent.UNKNOWN_COMMAND, argv=call.argv[:20], uid=call.uid)
    recent = call.phone.profile.sdk >= 29
    reason = "inaccessible or not found" if recent else "not found"
    call.streams.stderr.write(encode(f"{call.shell.name}: {call.argv[0]}: {reason}\n"))
    return 127


def _refusal(reason: str) -> CommandFunction:
    def refuse(call: CommandCall) -> int:
        call.streams.stderr.write(encode(f"{call.shell.name}: {call.argv[0]}: {reason}\n"))
        return 126

    return refuse
