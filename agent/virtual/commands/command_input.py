"""How commands read: files by name, or stdin; what cannot be read is said and skipped."""

from collections.abc import AsyncIterator

from agent.virtual.files.tree import strerror
from agent.virtual.shell.call import Call, decode
from agent.virtual.shell.streams import read_all

STDIN = "(standard input)"


async def inputs(
    call: Call, names: list[str], silent: bool = False
) -> AsyncIterator[tuple[str, bytes | None]]:
    """Each named file's bytes, or stdin's; nothing for one that cannot be read."""
    for name in names or ["-"]:
        if name == "-":
            yield STDIN, await read_all(call.streams.stdin)
            continue
        try:
            yield name, call.phone.tree.read(name, call.uid, call.cwd)
        except OSError as error:
            if not silent:
                call.complain(f"{name}: {strerror(error)}")
            yield name, None


def lines_of(content: bytes) -> list[str]:
    lines = decode(content).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


async def input_lines(call: Call, names: list[str]) -> tuple[list[str], int]:
    """All lines of all inputs, and 1 if one of them could not be read."""
    lines: list[str] = []
    status = 0
    async for _, content in inputs(call, names):
        if content is None:
            status = 1
        else:
            lines += lines_of(content)
    return lines, status
