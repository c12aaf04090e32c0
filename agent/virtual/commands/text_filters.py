"""Text filters: cut and tr."""

import re

from agent.virtual.commands.command_input import read_input_lines
from agent.virtual.commands.command_options import split_options
from agent.virtual.shell.byte_streams import read_all
from agent.virtual.shell.command_call import CommandCall, by_name, decode, encode

_RANGE = re.compile(r"(\d*)(-?)(\d*)")


async def cut(call: CommandCall) -> int:
    """Handle cut -d D -f LIST and cut -c LIST."""
    options, names = split_options(call.argv[1:], valued="dfcb")
    ranges = options.get("f") or options.get("c") or options.get("b")
    if not ranges:
        return call.fail("no fields")
    separator = options.get("d", "\t")[:1] or "\t"
    lines, status = await read_input_lines(call, names)
    output_lines: list[str] = []
    for line in lines:
        if "f" not in options:
            output_lines.append("".join(_select_pieces(list(line), ranges)))
        elif separator in line:
            output_lines.append(separator.join(_select_pieces(line.split(separator), ranges)))
        elif "s" not in options:
            output_lines.append(line)
    call.print("".join(f"{line}\n" for line in output_lines))
    return status


def _select_pieces(pieces: list[str], ranges: str) -> list[str]:
    positions: set[int] = set()
    for span in ranges.split(","):
        match = _RANGE.fullmatch(span)
        if match is None or span in ("", "-"):
            raise ValueError(span)
        first = int(match[1] or "1")
        last = int(match[3]) if match[3] else len(pieces) if match[2] else first
        positions |= set(range(first, min(last, len(pieces)) + 1))
    return [piece for position, piece in enumerate(pieces, 1) if position in positions]


async def tr(call: CommandCall) -> int:
    """Handle tr A B, tr -d A and tr -s A [B]."""
    options, sets = split_options(call.argv[1:])
    text = decode(await read_all(call.streams.stdin))
    from_set = _expand_set(sets[0])
    if "c" in options or "C" in options:
        excluded = set(from_set)
        from_set = sorted({letter for letter in text if letter not in excluded})
    if "d" in options:
        text = text.translate({ord(letter): None for letter in from_set})
        from_set = _expand_set(sets[1]) if len(sets) > 1 else []
    elif len(sets) > 1:
        to_set = _expand_set(sets[1])
        padded = to_set + to_set[-1:] * max(len(from_set) - len(to_set), 0)
        text = text.translate({ord(a): b for a, b in zip(from_set, padded, strict=False)})
        from_set = to_set
    if "s" in options and from_set:
        members = "".join(map(re.escape, from_set))
        text = re.sub(f"([{members}])\\1+", r"\1", text)
    call.streams.stdout.write(encode(text))
    return 0


def _expand_set(text: str) -> list[str]:
    """Expand the ranges, classes and escapes of a tr set."""
    escapes = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    classes = {
        "[:space:]": " \t\n\r\f\v",
        "[:digit:]": "0123456789",
        "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
        "[:blank:]": " \t",
    }
    for name, members in classes.items():
        text = text.replace(name, members)
    text = re.sub(r"\\(.)", lambda match: escapes.get(match[1], match[1]), text)
    spans = re.findall(r"(.)-(.)|(.)", text, re.DOTALL)
    letters: list[str] = []
    for first, last, single in spans:
        span = range(ord(first), ord(last) + 1) if first else [ord(single)]
        letters += [chr(code) for code in span][:4096]
    return letters


TEXT_FILTERS = by_name(cut, tr)
