"""Commands that print, search and count text."""

import hashlib
import re

from agent.virtual.commands.command_options import (
    STDIN,
    read_input_lines,
    read_inputs,
    split_lines,
    split_options,
)
from agent.virtual.commands.posix_regex import basic_to_extended, compile_posix
from agent.virtual.shell.byte_streams import read_all
from agent.virtual.shell.command_call import CommandCall, CommandFunction, by_name, decode, encode

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


_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\033",
}
_ESCAPE = re.compile(r"\\(0[0-7]{0,3}|x[0-9a-fA-F]{1,2}|.)")


def echo(call: CommandCall) -> int:
    """Handle mksh's echo: backslash escapes are expanded unless -E is given."""
    words = call.argv[1:]
    newline, escapes = True, True
    while words and re.fullmatch(r"-[neE]+", words[0]):
        flags = words.pop(0)
        newline = newline and "n" not in flags
        escapes = escapes and "E" not in flags
    text = " ".join(words)
    try:
        call.print((unescape(text) if escapes else text) + ("\n" if newline else ""))
    except OSError as error:
        # mksh prints nothing if a write fails; it only returns 1.
        if error.errno is None:
            raise
        return 1
    return 0


def printf(call: CommandCall) -> int:
    if len(call.argv) < 2:
        return call.fail("Needs 1 argument")
    template, rest = unescape(call.argv[1]), call.argv[2:]
    written = ""
    while True:
        text, used = format_printf(template, rest)
        written += text
        rest = rest[used:]
        if not rest or not used:
            break
    call.print(written)
    return 0


def format_printf(template: str, arguments: list[str]) -> tuple[str, int]:
    """Apply a printf template once; return the text and the number of arguments used."""
    remaining = list(arguments)

    def format_one(match: re.Match[str]) -> str:
        kind = match[2]
        if kind == "%":
            return "%"
        word = remaining.pop(0) if remaining else ""
        if kind in "diuxXo":
            digits = re.match(r"\s*(-?)(0[xX][0-9a-fA-F]+|\d+)", word)
            value = (
                int(digits[1] + digits[2], 0 if "x" in digits[2].lower() else 10) if digits else 0
            )
            return f"%{match[1]}{'d' if kind in 'iu' else kind}" % value
        if kind in "feg":
            return f"%{match[1]}{kind}" % float(word or "0")
        return f"%{match[1]}s" % (unescape(word) if kind == "b" else word)

    text = re.sub(r"%([-+ 0#]*\d{0,4}(?:\.\d{1,4})?)([sbdiuxXocfeg%])", format_one, template)
    return text, len(arguments) - len(remaining)


def unescape(text: str) -> str:
    """Expand backslash escapes."""
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code.startswith("0"):
            return chr(int(code, 8) & 255)
        if code.startswith("x") and len(code) > 1:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, match[0])

    return _ESCAPE.sub(replace, text)


async def cat(call: CommandCall) -> int:
    status = 0
    _, names = split_options(call.argv[1:])
    if not names:
        while chunk := await call.streams.stdin.read():
            call.streams.stdout.write(chunk)
            await call.streams.drain()
        return 0
    async for _, content in read_inputs(call, names):
        if content is None:
            status = 1
        else:
            call.streams.stdout.write(content)
    return status


async def grep(call: CommandCall) -> int:
    options, rest = split_options(call.argv[1:], valued="em")
    expressions = options["e"].split("\n") if "e" in options else rest[:1]
    names = rest if "e" in options else rest[1:]
    if not expressions:
        return call.fail("no REGEX", 2)
    matcher = _compile_patterns(expressions, options)
    if matcher is None:
        return call.fail(f"bad REGEX '{expressions[0]}'", 2)
    shows_name = "H" in options or (len(names) > 1 and "h" not in options)
    any_match, any_unreadable = False, False
    async for name, content in read_inputs(call, names, is_silent="s" in options):
        if content is None:
            any_unreadable = True
            continue
        lines = [
            line
            for line in split_lines(content)
            if (matcher.search(line) is None) == ("v" in options)
        ]
        if "o" in options and "v" not in options:
            lines = [match[0] for line in lines for match in matcher.finditer(line) if match[0]]
        lines = lines[: int(options["m"])] if options.get("m", "").isdigit() else lines
        any_match = any_match or bool(lines)
        _print_matches(call, options, f"{name}:" if shows_name else "", name, lines)
    return 2 if any_unreadable and not any_match else int(not any_match)


def _compile_patterns(expressions: list[str], options: dict[str, str]) -> re.Pattern[str] | None:
    is_extended = "E" in options
    patterns = []
    for expression in expressions:
        pattern = (
            re.escape(expression)
            if "F" in options
            else expression
            if is_extended
            else basic_to_extended(expression)
        )
        pattern = rf"\b(?:{pattern})\b" if "w" in options else pattern
        patterns.append(rf"^(?:{pattern})$" if "x" in options else pattern)
    try:
        return compile_posix("|".join(patterns), extended=True, ignore_case="i" in options)
    except re.error:
        return None


def _print_matches(
    call: CommandCall, options: dict[str, str], prefix: str, name: str, lines: list[str]
) -> None:
    if "q" in options:
        return
    if "c" in options:
        call.print(f"{prefix}{len(lines)}\n")
    elif "l" in options:
        call.print(f"{name}\n" if lines else "")
    else:
        call.print("".join(f"{prefix}{line}\n" for line in lines))


async def head(call: CommandCall) -> int:
    return await _print_ends(call, from_start=True)


async def tail(call: CommandCall) -> int:
    return await _print_ends(call, from_start=False)


async def _print_ends(call: CommandCall, from_start: bool) -> int:
    arguments = [re.sub(r"^-(\d+)$", r"-n\1", word) for word in call.argv[1:]]
    options, names = split_options(arguments, valued="nc")
    status = 0
    async for name, content in read_inputs(call, names):
        if content is None:
            status = 1
            continue
        if len(names) > 1:
            call.print(f"==> {name} <==\n")
        by_bytes = "c" in options
        count = options.get("c" if by_bytes else "n", "10") or "10"
        call.streams.stdout.write(
            _cut_bytes(content, count, from_start)
            if by_bytes
            else _cut_lines(content, count, from_start)
        )
    return status


def _cut_bytes(content: bytes, count: str, from_start: bool) -> bytes:
    start, end = _slice_bounds(len(content), count, from_start)
    return content[start:end]


def _cut_lines(content: bytes, count: str, from_start: bool) -> bytes:
    lines = content.splitlines(keepends=True)
    start, end = _slice_bounds(len(lines), count, from_start)
    return b"".join(lines[start:end])


def _slice_bounds(length: int, count: str, from_start: bool) -> tuple[int, int]:
    number = int(re.sub(r"\D", "", count) or "10")
    if from_start:
        return 0, max(length - number, 0) if count.startswith("-") else min(number, length)
    return (max(number - 1, 0) if count.startswith("+") else max(length - number, 0)), length


async def wc(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:])
    status = 0
    totals = [0, 0, 0]
    letters = [letter for letter in "lwc" if letter in options] or ["l", "w", "c"]
    async for name, content in read_inputs(call, names):
        if content is None:
            status = 1
            continue
        counts = {"l": content.count(b"\n"), "w": len(content.split()), "c": len(content)}
        totals = [total + counts[letter] for total, letter in zip(totals, "lwc", strict=True)]
        figures = " ".join(str(counts[letter]) for letter in letters)
        call.print(f"{figures} {name}\n" if names else f"{figures}\n")
    if len(names) > 1:
        total_by_letter = dict(zip("lwc", totals, strict=True))
        call.print(" ".join(str(total_by_letter[letter]) for letter in letters) + " total\n")
    return status


async def checksum(call: CommandCall) -> int:
    algorithm = call.name.removesuffix("sum")
    options, names = split_options(call.argv[1:])
    status = 0
    async for name, content in read_inputs(call, names):
        if content is None:
            status = 1
            continue
        digest = hashlib.new(algorithm, content).hexdigest()
        shown_name = "-" if name == STDIN else name
        call.print(f"{digest}\n" if "b" in options else f"{digest}  {shown_name}\n")
    return status


async def sort(call: CommandCall) -> int:
    options, names = split_options(call.argv[1:], valued="kt")
    lines = [
        line
        async for _, content in read_inputs(call, names)
        if content is not None
        for line in split_lines(content)
    ]
    if "n" in options:
        lines.sort(key=lambda line: float((re.match(r"\s*(-?\d+)", line) or ["", "0"])[1]))
    else:
        lines.sort()
    lines = list(dict.fromkeys(lines)) if "u" in options else lines
    call.streams.stdout.write(
        encode("".join(f"{line}\n" for line in (reversed(lines) if "r" in options else lines)))
    )
    return 0


TEXT_COMMANDS: dict[str, CommandFunction] = {
    **by_name(cat, echo, grep, head, printf, sort, tail, wc),
    "sha1sum": checksum,
    "sha256sum": checksum,
}
