"""Commands that list, create, move and remove files."""

import errno
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime

from agent.virtual.commands.command_options import split_options
from agent.virtual.files.file_nodes import Directory, FileNode, SymbolicLink
from agent.virtual.files.file_tree import error_text, os_error
from agent.virtual.shell.command_call import CommandCall, CommandFunction, by_name

_OWNERS = {0: "root", 1000: "system", 1015: "sdcard_rw", 2000: "shell"}


def ls(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:])
    status = 0
    tree = call.phone.tree
    for name in names or ["."]:
        try:
            node, _ = tree.resolve(name, call.uid, call.cwd, follow="l" not in options)
            if not isinstance(node, Directory) or "d" in options:
                call.print(_format_entry(name, node, options))
                continue
            if len(names) > 1:
                call.print(f"{name}:\n")
            entries = tree.names(name, call.uid, call.cwd)
        except OSError as error:
            status = call.fail(f"{name}: {error_text(error)}")
            continue
        visible = [entry for entry in entries if "a" in options or not entry.startswith(".")]
        if "l" in options:
            call.print("total 0\n")
        for entry in visible:
            child = node.child(entry)
            if child is not None:
                call.print(_format_entry(entry, child, options))
    return status


def _format_entry(name: str, node: FileNode, options: dict[str, str]) -> str:
    if "l" not in options:
        return f"{name}\n"
    when = datetime.fromtimestamp(node.mtime, UTC).strftime("%Y-%m-%d %H:%M")
    arrow = f" -> {node.target}" if isinstance(node, SymbolicLink) else ""
    owner, group = _OWNERS.get(node.uid, str(node.uid)), _OWNERS.get(node.gid, str(node.gid))
    return f"{stat.filemode(node.mode)} 1 {owner} {group} {node.size:>8} {when} {name}{arrow}\n"


def stat_file(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:], valued="c")

    def show(name: str) -> None:
        node, _ = call.phone.tree.resolve(name, call.uid, call.cwd, follow="L" in options)
        call.print(_format_stat(name, node, options.get("c")))

    return apply_to_each(call, names, show)


def _format_stat(name: str, node: FileNode, template: str | None) -> str:
    facts = {
        "%s": str(node.size),
        "%Y": str(int(node.mtime)),
        "%y": datetime.fromtimestamp(node.mtime, UTC).isoformat(" "),
        "%a": f"{stat.S_IMODE(node.mode):o}",
        "%A": stat.filemode(node.mode),
        "%n": name,
        "%u": str(node.uid),
        "%g": str(node.gid),
        "%U": _OWNERS.get(node.uid, str(node.uid)),
        "%G": _OWNERS.get(node.gid, str(node.gid)),
        "%i": str(node.inode),
        "%f": f"{node.mode:x}",
    }
    if template is None:
        return (
            f"  File: {name}\n  Size: {facts['%s']}\n"
            f"Access: ({facts['%a']}/{facts['%A']})\tUid: {facts['%u']}\nModify: {facts['%y']}\n"
        )
    for field, value in facts.items():
        template = template.replace(field, value)
    return f"{template}\n"


def apply_to_each(
    call: CommandCall, names: list[str], action: Callable[[str], object], shown: str = "'{}'"
) -> int:
    """Apply an action to every name; report the names for which it fails."""
    status = 0
    for name in names:
        try:
            action(name)
        except OSError as error:
            status = call.fail(f"{shown.format(name)}: {error_text(error)}")
    return status


def mkdir(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:], valued="m")
    make, parents = call.phone.tree.make_directory, "p" in options
    return apply_to_each(call, names, lambda name: make(name, call.uid, call.cwd, parents=parents))


def rm(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:])
    status = 0
    for name in names:
        try:
            recursive = "r" in options or "R" in options
            call.phone.tree.remove(name, call.uid, call.cwd, recursive=recursive)
        except OSError as error:
            if error.errno != errno.ENOENT or "f" not in options:
                status = call.fail(f"{name}: {error_text(error)}")
    return status


def mv(call: CommandCall) -> int:
    _, names = split_options(call.argv[1:])
    if len(names) < 2:
        return call.fail("Needs 2 arguments")
    rename, target = call.phone.tree.rename, names.pop()
    return apply_to_each(
        call, names, lambda name: rename(name, target, call.uid, call.cwd), "bad '{}'"
    )


def chmod(call: CommandCall) -> int:
    names = [word for word in call.argv[1:] if word not in ("-R", "-f")]
    if len(names) < 2:
        return call.fail("Needs 2 arguments")
    status = 0
    for name in names[1:]:
        try:
            node, _ = call.phone.tree.resolve(name, call.uid, call.cwd)
            if call.uid not in (0, node.uid):
                raise os_error(errno.EPERM, name)
            node.mode = stat.S_IFMT(node.mode) | _parse_mode(names[0], stat.S_IMODE(node.mode))
        except OSError as error:
            status = call.fail(f"'{name}' to {names[0]}: {error_text(error)}")
        except ValueError:
            status = call.fail(f"bad mode '{names[0]}'")
    return status


def _parse_mode(text: str, old: int) -> int:
    if text.isdigit():
        return int(text, 8) & 0o7777
    classes, sign, permissions = text.partition("+" if "+" in text else "-")
    bits = sum(
        {"r": 0o444, "w": 0o222, "x": 0o111}[letter] for letter in permissions if letter in "rwx"
    )
    if not sign or not permissions:
        raise ValueError(text)
    class_bits = {"u": 0o700, "g": 0o070, "o": 0o007, "a": 0o777}
    bits &= (
        sum(class_bits[letter] for letter in set(classes))
        if classes and "a" not in classes
        else 0o777
    )
    return old | bits if sign == "+" else old & ~bits


def ln(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:])
    if len(names) != 2 or "s" not in options:
        return call.fail("Needs -s and 2 arguments")
    tree = call.phone.tree
    if tree.exists(names[1], call.cwd) and "f" not in options:
        return call.fail(
            f"cannot create symbolic link from '{names[0]}' to '{names[1]}': "
            f"{os.strerror(errno.EEXIST)}"
        )
    tree.make_link(names[1], names[0], call.uid, call.cwd)
    return 0


def df(call: CommandCall) -> int:
    """Print the one file system of the phone, as `df -k` does."""
    tree = call.phone.tree
    total_kb, used_kb = tree.capacity_bytes // 1024, tree.used_bytes // 1024
    row = f"/dev/block/dm-5 {total_kb:>9} {used_kb:>7} {total_kb - used_kb:>9}   1% /data\n"
    call.print(f"Filesystem      1K-blocks    Used Available Use% Mounted on\n{row}")
    return 0


FILE_COMMANDS: dict[str, CommandFunction] = {
    **by_name(chmod, df, ln, ls, mkdir, mv, rm),
    "stat": stat_file,
}
