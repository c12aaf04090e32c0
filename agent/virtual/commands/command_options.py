"""The arguments of commands: options, bundled as toybox takes them, and files or stdin as input."""

from collections.abc import AsyncIterator

from agent.virtual.files.file_tree import error_text
from agent.virtual.shell.byte_streams import read_all
from agent.virtual.shell.command_call import CommandCall, decode

STDIN = "(standard input)"


def split_options(arguments: list[str], valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and the remaining arguments."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        bundle = rest.pop(0)
        if bundle == "--":
            break
        if bundle.startswith("--"):
            name, _, value = bundle[2:].partition("=")
            options[name] = value
            continue
        letters = bundle[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in valued:
                options[letter] = letters or (rest.pop(0) if rest else "")
                letters = ""
            else:
                options[letter] = ""
    return options, rest


async def read_inputs(
    call: CommandCall, names: list[str], is_silent: bool = False
) -> AsyncIterator[tuple[str, bytes | None]]:
    """Yield the bytes of each named file or of stdin; None for a file that cannot be read."""
    for name in names or ["-"]:
        if name == "-":
            yield STDIN, await read_all(call.streams.stdin)
            continue
        try:
            yield name, call.phone.tree.read(name, call.uid, call.cwd)
        except OSError as error:
            if not is_silent:
                call.fail(f"{name}: {error_text(error)}")
            yield name, None


def split_lines(content: bytes) -> list[str]:
    lines = decode(content).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


async def read_input_lines(call: CommandCall, names: list[str]) -> tuple[list[str], int]:
    """Return all lines of all inputs, and status 1 if one of them could not be read."""
    lines: list[str] = []
    status = 0
    async for _, content in read_inputs(call, names):
        if content is None:
            status = 1
        else:
            lines += split_lines(content)
    return lines, status
