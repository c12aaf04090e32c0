"""find, du, dd and small helpers around files."""

import stat
import uuid
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from agent.virtual.commands.options import split_options
from agent.virtual.files.nodes import Directory, Link, Live, Node
from agent.virtual.files.tree import strerror
from agent.virtual.shell.call import Call, Program
from agent.virtual.shell.streams import read_all

_KINDS = {"f": stat.S_ISREG, "d": stat.S_ISDIR, "l": stat.S_ISLNK}
_UNITS = {"": 1, "b": 512, "c": 1, "k": 1024, "K": 1024, "m": 1 << 20, "M": 1 << 20, "G": 1 << 30}
_COPY_MAX = 256 << 20


class _Search:
    """What find was asked for."""

    def __init__(self) -> None:
        self.least, self.most = 0, 64
        self.tests: list[Callable[[str, Node], bool]] = []
        self.command: list[str] = []
        self.action = "-print"
        self.follow = False

    def read(self, words: list[str]) -> None:
        """Take expressions off the words; raises for one that is not known."""
        while words:
            word = words.pop(0)
            if word == "-maxdepth":
                self.most = int(words.pop(0))
            elif word == "-mindepth":
                self.least = int(words.pop(0))
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


async def find(call: Call) -> int:
    """find PATH.. [-maxdepth N] [-name G] [-type T] [-exec CMD {} ;] [-print] [-delete]"""
    words = call.argv[1:]
    roots: list[str] = []
    while words and not words[0].startswith(("-", "(", "!")):
        roots.append(words.pop(0))
    search = _Search()
    search.read(words)
    status = 0
    for root in roots or ["."]:
        try:
            node, _ = call.phone.tree.resolve(root, call.uid, call.cwd)
        except OSError as error:
            status = call.complain(f"'{root}': {strerror(error)}")
            continue
        for level, path, found in list(_walk(call, root, node, 0, search.most, search.follow)):
            if level >= search.least and all(test(path, found) for test in search.tests):
                await _act(call, search.action, search.command, path)
    return status


async def _act(call: Call, action: str, command: list[str], path: str) -> None:
    if action == "-exec":
        argv = [word.replace("{}", path) for word in command]
        await call.shell.invoke(argv, call.streams, call.process)
    elif action == "-delete":
        call.phone.tree.remove(path, call.uid, call.cwd, folders=True)
    else:
        call.say(path + ("\0" if action == "-print0" else "\n"))


def _walk(
    call: Call, path: str, node: Node, level: int, deepest: int, follow: bool = False
) -> Iterator[tuple[int, str, Node]]:
    yield level, path, node
    if not isinstance(node, Directory) or level >= deepest:
        return
    if not node.allows(call.uid, 5):
        call.complain(f"'{path}': Permission denied")
        return
    for name in sorted(node.names()):
        child = node.child(name)
        inner = f"{path.rstrip('/')}/{name}"
        if follow and isinstance(child, Link) and call.phone.tree.exists(inner, call.cwd):
            child = call.phone.tree.resolve(inner, call.uid, call.cwd)[0]
        if child is not None:
            yield from _walk(call, inner, child, level + 1, deepest, follow)


def _named(shape: str) -> Callable[[str, Node], bool]:
    return lambda path, _: fnmatchcase(path.rstrip("/").rpartition("/")[2] or path, shape)


def _at_path(shape: str) -> Callable[[str, Node], bool]:
    return lambda path, _: fnmatchcase(path, shape)


def _of_kind(letter: str) -> Callable[[str, Node], bool]:
    check = _KINDS[letter]
    return lambda _, node: check(node.mode)


_TESTS = {"-name": _named, "-path": _at_path, "-type": _of_kind}


def du(call: Call) -> int:
    options, names = split_options(call.argv[1:], valued="d")
    for name in names or ["."]:
        node, _ = call.phone.tree.resolve(name, call.uid, call.cwd)
        total = sum(
            found.size
            for _, _, found in _walk(call, name, node, 0, 64)
            if not isinstance(found, Live | Directory)
        )
        unit = f"{total / 1048576:.1f}M" if "h" in options else str(-(-total // 1024))
        call.say(f"{unit}\t{name}\n")
    return 0


async def dd(call: Call) -> int:
    """dd if= of= bs= count= skip= seek= conv="""
    words = dict(word.partition("=")[::2] for word in call.argv[1:])
    block = _size(words.get("bs", "512"))
    count = _size(words["count"]) if "count" in words else None
    tree = call.phone.tree
    source = words.get("if", "")
    wanted = block * count if count is not None else _COPY_MAX
    if source in ("/dev/zero", "/dev/urandom", "/dev/random"):
        content = bytes(min(wanted, _COPY_MAX))
    elif source:
        content = tree.read(source, call.uid, call.cwd)
    else:
        content = await read_all(call.streams.stdin)
    start = block * _size(words.get("skip", "0"))
    content = content[start : start + wanted]
    if "of" in words:
        keep = "notrunc" in words.get("conv", "") or "seek" in words
        node = tree.open_for_writing(words["of"], call.uid, call.cwd, append=keep)
        tree.append(node, content, call.uid)
        tree.note(words["of"], "write", content, call.uid, call.cwd)
    else:
        call.streams.stdout.write(content)
    whole, rest = divmod(len(content), block)
    row = f"{whole}+{int(rest > 0)}"
    told = f"{row} records in\n{row} records out\n{len(content)} bytes copied\n"
    call.streams.stderr.write(told.encode())
    return 0


def _size(text: str) -> int:
    digits = text.rstrip("bckKmMG")
    return int(digits) * _UNITS[text[len(digits) :]]


def mktemp(call: Call) -> int:
    options, names = split_options(call.argv[1:], valued="p")
    shape = names[0] if names else "tmp.XXXXXXXXXX"
    bare = shape.rstrip("X")
    path = bare + uuid.uuid4().hex[: max(len(shape) - len(bare), 6)]
    if "/" not in path:
        path = f"{options.get('p') or '/data/local/tmp'}/{path}"
    if "d" in options:
        call.phone.tree.make_folder(path, call.uid, call.cwd)
    else:
        call.phone.tree.open_for_writing(path, call.uid, call.cwd)
    call.say(f"{path}\n")
    return 0


def realpath(call: Call) -> int:
    status = 0
    for name in split_options(call.argv[1:])[1]:
        try:
            call.say(call.phone.tree.resolve(name, call.uid, call.cwd)[1] + "\n")
        except OSError as error:
            status = call.complain(f"{name}: {strerror(error)}")
    return status


FINDING: dict[str, Program] = {
    "dd": dd,
    "du": du,
    "find": find,
    "mktemp": mktemp,
    "realpath": realpath,
}
