"""find, du, dd, mktemp and realpath."""

import stat
import uuid
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from agent.virtual.commands.command_options import split_options
from agent.virtual.commands.file_commands import apply_to_each
from agent.virtual.files.file_nodes import Directory, FileNode, LiveNode, SymbolicLink
from agent.virtual.files.file_tree import error_text
from agent.virtual.shell.byte_streams import read_all
from agent.virtual.shell.command_call import CommandCall, by_name

_TYPE_CHECKS = {"f": stat.S_ISREG, "d": stat.S_ISDIR, "l": stat.S_ISLNK}
_UNITS = {"": 1, "b": 512, "c": 1, "k": 1024, "K": 1024, "m": 1 << 20, "M": 1 << 20, "G": 1 << 30}
_COPY_MAX = 256 << 20


class _FindExpression:
    """The options, tests and action of a find command."""

    def __init__(self) -> None:
        self.min_depth, self.max_depth = 0, 64
        self.tests: list[Callable[[str, FileNode], bool]] = []
        self.command: list[str] = []
        self.action = "-print"
        self.follow = False

    def parse(self, words: list[str]) -> None:
        """Parse the expression; raise LookupError for an unknown one."""
        while words:
            word = words.pop(0)
            if word == "-maxdepth":
                self.max_depth = int(words.pop(0))
            elif word == "-mindepth":
                self.min_depth = int(words.pop(0))
            elif word == "-exec":
                end = next(i for i, item in enumerate(words) if item in (";", "+"))
                self.command, self.action = words[:end], "-exec"
                del words[: end + 1]
            elif word in ("-print", "-print0", "-delete"):
                self.action = word
            elif word in _TESTS:
                self.tests.append(_TESTS[word](words.pop(0)))
            elif word in ("-L", "-follow"):
                self.follow = True
            elif word not in ("-H", "-a"):
                raise LookupError(word)


async def find(call: CommandCall) -> int:
    """Handle find PATH.. [-maxdepth N] [-name G] [-type T] [-exec CMD {} ;] [-print] [-delete]."""
    words = call.argv[1:]
    roots: list[str] = []
    while words and not words[0].startswith(("-", "(", "!")):
        roots.append(words.pop(0))
    expression = _FindExpression()
    expression.parse(words)
    status = 0
    for root in roots or ["."]:
        try:
            node, _ = call.phone.tree.resolve(root, call.uid, call.cwd)
        except OSError as error:
            status = call.fail(f"'{root}': {error_text(error)}")
            continue
        for level, path, entry in list(
            _walk(call, root, node, 0, expression.max_depth, expression.follow)
        ):
            if level >= expression.min_depth and all(
                test(path, entry) for test in expression.tests
            ):
                await _apply_action(call, expression.action, expression.command, path)
    return status


async def _apply_action(call: CommandCall, action: str, command: list[str], path: str) -> None:
    if action == "-exec":
        argv = [word.replace("{}", path) for word in command]
        await call.shell.invoke(argv, call.streams, call.process)
    elif action == "-delete":
        call.phone.tree.remove(path, call.uid, call.cwd, recursive=True)
    else:
        call.print(path + ("\0" if action == "-print0" else "\n"))


def _walk(
    call: CommandCall, path: str, node: FileNode, level: int, max_depth: int, follow: bool = False
) -> Iterator[tuple[int, str, FileNode]]:
    yield level, path, node
    if not isinstance(node, Directory) or level >= max_depth:
        return
    if not node.allows(call.uid, 5):
        call.fail(f"'{path}': Permission denied")
        return
    for name in sorted(node.names()):
        child = node.child(name)
        child_path = f"{path.rstrip('/')}/{name}"
        if (
            follow
            and isinstance(child, SymbolicLink)
            and call.phone.tree.exists(child_path, call.cwd)
        ):
            child = call.phone.tree.resolve(child_path, call.uid, call.cwd)[0]
        if child is not None:
            yield from _walk(call, child_path, child, level + 1, max_depth, follow)


def _name_test(pattern: str) -> Callable[[str, FileNode], bool]:
    return lambda path, _: fnmatchcase(path.rstrip("/").rpartition("/")[2] or path, pattern)


def _path_test(pattern: str) -> Callable[[str, FileNode], bool]:
    return lambda path, _: fnmatchcase(path, pattern)


def _type_test(letter: str) -> Callable[[str, FileNode], bool]:
    check = _TYPE_CHECKS[letter]
    return lambda _, node: check(node.mode)


_TESTS = {"-name": _name_test, "-path": _path_test, "-type": _type_test}


def du(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:], valued="d")
    for name in names or ["."]:
        node, _ = call.phone.tree.resolve(name, call.uid, call.cwd)
        total = sum(
            entry.size
            for _, _, entry in _walk(call, name, node, 0, 64)
            if not isinstance(entry, LiveNode | Directory)
        )
        size_text = f"{total / 1048576:.1f}M" if "h" in options else str(-(-total // 1024))
        call.print(f"{size_text}\t{name}\n")
    return 0


async def dd(call: CommandCall) -> int:
    """Handle dd if= of= bs= count= skip= seek= conv=."""
    words = dict(word.partition("=")[::2] for word in call.argv[1:])
    block = _parse_size(words.get("bs", "512"))
    count = _parse_size(words["count"]) if "count" in words else None
    tree = call.phone.tree
    source = words.get("if", "")
    byte_count = block * count if count is not None else _COPY_MAX
    if source in ("/dev/zero", "/dev/urandom", "/dev/random"):
        content = bytes(min(byte_count, _COPY_MAX))
    elif source:
        content = tree.read(source, call.uid, call.cwd)
    else:
        content = await read_all(call.streams.stdin)
    start = block * _parse_size(words.get("skip", "0"))
    content = content[start : start + byte_count]
    if "of" in words:
        appends = "notrunc" in words.get("conv", "") or "seek" in words
        node = tree.open_for_writing(words["of"], call.uid, call.cwd, append=appends)
        tree.append(node, content, call.uid)
        tree.report_write(words["of"], "write", content, call.uid, call.cwd)
    else:
        call.streams.stdout.write(content)
    whole, rest = divmod(len(content), block)
    records = f"{whole}+{int(rest > 0)}"
    summary = f"{records} records in\n{records} records out\n{len(content)} bytes copied\n"
    call.streams.stderr.write(summary.encode())
    return 0


def _parse_size(text: str) -> int:
    digits = text.rstrip("bckKmMG")
    return int(digits) * _UNITS[text[len(digits) :]]


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


DISK_COMMANDS = by_name(dd, du, find, mktemp, realpath)
