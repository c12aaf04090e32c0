"""find, du, mktemp and realpath."""

import stat
import uuid
from collections.abc import Iterator
from fnmatch import fnmatchcase

from agent.virtual.commands.command_options import split_options
from agent.virtual.commands.file_commands import apply_to_each
from agent.virtual.files.file_nodes import Directory, FileNode, LiveNode, SymbolicLink
from agent.virtual.files.file_tree import error_text
from agent.virtual.shell.command_call import CommandCall, by_name

_TYPE_CHECKS = {"f": stat.S_ISREG, "d": stat.S_ISDIR, "l": stat.S_ISLNK}


class _FindExpression:
    """The options and tests of a find command."""

    def __init__(self, words: list[str]) -> None:
        """Parse the expression; raise LookupError for an unknown one."""
        self.max_depth = 64
        self.name, self.type = "*", ""
        self.follow = False
        while words:
            match words.pop(0):
                case "-maxdepth":
                    self.max_depth = int(words.pop(0))
                case "-name":
                    self.name = words.pop(0)
                case "-type":
                    self.type = words.pop(0)
                case "-L" | "-follow":
                    self.follow = True
                case word if word not in ("-H", "-a", "-print"):
                    raise LookupError(word)

    def matches(self, path: str, node: FileNode) -> bool:
        """Return whether a file passes all tests."""
        leaf = path.rstrip("/").rpartition("/")[2] or path
        is_type = not self.type or _TYPE_CHECKS[self.type](node.mode)
        return is_type and fnmatchcase(leaf, self.name)


def find(call: CommandCall) -> int:
    """Handle find PATH.. [-follow] [-maxdepth N] [-name G] [-type T] [-print]."""
    words = call.argv[1:]
    roots: list[str] = []
    while words and not words[0].startswith(("-", "(", "!")):
        roots.append(words.pop(0))
    expression = _FindExpression(words)
    status = 0
    for root in roots or ["."]:
        try:
            node, _ = call.phone.tree.resolve(root, call.uid, call.cwd)
        except OSError as error:
            status = call.fail(f"'{root}': {error_text(error)}")
            continue
        found = list(_walk(call, root, node, expression.max_depth, expression.follow))
        paths = [path for path, entry in found if expression.matches(path, entry)]
        call.print("".join(f"{path}\n" for path in paths))
    return status


def _walk(
    call: CommandCall, path: str, node: FileNode, depth: int, follow: bool = False
) -> Iterator[tuple[str, FileNode]]:
    """Yield a file and everything below it, down to a depth."""
    yield path, node
    if not isinstance(node, Directory) or depth == 0:
        return
    if not node.allows(call.uid, 5):
        call.fail(f"'{path}': Permission denied")
        return
    for name in sorted(node.names()):
        child = node.child(name)
        child_path = f"{path.rstrip('/')}/{name}"
        is_link = follow and isinstance(child, SymbolicLink)
        if is_link and call.phone.tree.exists(child_path, call.cwd):
            child = call.phone.tree.resolve(child_path, call.uid, call.cwd)[0]
        if child is not None:
            yield from _walk(call, child_path, child, depth - 1, follow)


def du(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:], valued="d")
    for name in names or ["."]:
        node, _ = call.phone.tree.resolve(name, call.uid, call.cwd)
        total = sum(
            entry.size
            for _, entry in _walk(call, name, node, 64)
            if not isinstance(entry, LiveNode | Directory)
        )
        size_text = f"{total / 1048576:.1f}M" if "h" in options else str(-(-total // 1024))
        call.print(f"{size_text}\t{name}\n")
    return 0


def mktemp(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:], valued="p")
    template = names[0] if names else "tmp.XXXXXXXXXX"
    stem = template.rstrip("X")
    path = stem + uuid.uuid4().hex[: max(len(template) - len(stem), 6)]
    if "/" not in path:
        path = f"{options.get('p') or '/data/local/tmp'}/{path}"
    if "d" in options:
        call.phone.tree.make_directory(path, call.uid, call.cwd)
    else:
        call.phone.tree.open_for_writing(path, call.uid, call.cwd)
    call.print(f"{path}\n")
    return 0


def realpath(call: CommandCall) -> int:
    def show(name: str) -> None:
        call.print(call.phone.tree.resolve(name, call.uid, call.cwd)[1] + "\n")

    return apply_to_each(call, split_options(call.argv[1:])[1], show, "{}")


DISK_COMMANDS = by_name(du, find, mktemp, realpath)
