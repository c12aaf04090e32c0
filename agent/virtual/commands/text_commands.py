"""Commands that print, search and count text."""

import hashlib
import re

from agent.virtual.commands.inputs import STDIN, inputs, lines_of
from agent.virtual.commands.options import split_options
from agent.virtual.commands.patterns import basic, compiled
from agent.virtual.shell.call import Call, Program, encode

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


def echo(call: Call) -> int:
    """mksh's echo: backslash escapes are on unless -E says otherwise."""
    words = call.argv[1:]
    newline, escapes = True, True
    while words and re.fullmatch(r"-[neE]+", words[0]):
        flags = words.pop(0)
        newline = newline and "n" not in flags
        escapes = escapes and "E" not in flags
    text = " ".join(words)
    try:
        call.say((unescape(text) if escapes else text) + ("\n" if newline else ""))
    except OSError as error:
        # mksh says nothing when a write fails, it only returns 1.
        if error.errno is None:
            raise
        return 1
    return 0


def printf(call: Call) -> int:
    if len(call.argv) < 2:
        return call.complain("Needs 1 argument")
    shape, rest = unescape(call.argv[1]), call.argv[2:]
    written = ""
    while True:
        text, used = formatted(shape, rest)
        written += text
        rest = rest[used:]
        if not rest or not used:
            break
    call.say(written)
    return 0


def formatted(shape: str, arguments: list[str]) -> tuple[str, int]:
    """printf once over: the text, and how many arguments it took."""
    left = list(arguments)

    def one(match: re.Match[str]) -> str:
        kind = match[2]
        if kind == "%":
            return "%"
        word = left.pop(0) if left else ""
        if kind in "diuxXo":
            digits = re.match(r"\s*(-?)(0[xX][0-9a-fA-F]+|\d+)", word)
            value = (
                int(digits[1] + digits[2], 0 if "x" in digits[2].lower() else 10) if digits else 0
            )
            return f"%{match[1]}{'d' if kind in 'iu' else kind}" % value
        if kind in "feg":
            return f"%{match[1]}{kind}" % float(word or "0")
        return f"%{match[1]}s" % (unescape(word) if kind == "b" else word)

    text = re.sub(r"%([-+ 0#]*\d{0,4}(?:\.\d{1,4})?)([sbdiuxXocfeg%])", one, shape)
    return text, len(arguments) - len(left)


def unescape(text: str) -> str:
    """Turn backslash escapes into what they stand for."""
    if "\\" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code.startswith("0"):
            return chr(int(code, 8) & 255)
        if code.startswith("x") and len(code) > 1:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, match[0])

    return _ESCAPE.sub(one, text)


async def cat(call: Call) -> int:
    status = 0
    _, names = split_options(call.argv[1:])
    if not names:
        while chunk := await call.streams.stdin.read():
            call.streams.stdout.write(chunk)
            await call.streams.drain()
        return 0
    async for _, content in inputs(call, names):
        if content is None:
            status = 1
        else:
            call.streams.stdout.write(content)
    return status


async def grep(call: Call) -> int:
    options, rest = split_options(call.argv[1:], valued="em")
    shapes = options["e"].split("\n") if "e" in options else rest[:1]
    names = rest if "e" in options else rest[1:]
    if not shapes:
        return call.complain("no REGEX", 2)
    if call.name == "egrep":
        options["E"] = ""
    matcher = _matcher(shapes, options)
    if matcher is None:
        return call.complain(f"bad REGEX '{shapes[0]}'", 2)
    named = "H" in options or (len(names) > 1 and "h" not in options)
    found, failed_any = False, False
    async for name, content in inputs(call, names, silent="s" in options):
        if content is None:
            failed_any = True
            continue
        lines = [
            line for line in lines_of(content) if (matcher.search(line) is None) == ("v" in options)
        ]
        if "o" in options and "v" not in options:
            lines = [hit[0] for line in lines for hit in matcher.finditer(line) if hit[0]]
        lines = lines[: int(options["m"])] if options.get("m", "").isdigit() else lines
        found = found or bool(lines)
        _print_matches(call, options, f"{name}:" if named else "", name, lines)
    return 2 if failed_any and not found else int(not found)


def _matcher(shapes: list[str], options: dict[str, str]) -> re.Pattern[str] | None:
    extended = "E" in options
    sources = []
    for shape in shapes:
        source = re.escape(shape) if "F" in options else shape if extended else basic(shape)
        source = rf"\b(?:{source})\b" if "w" in options else source
        sources.append(rf"^(?:{source})$" if "x" in options else source)
    try:
        return compiled("|".join(sources), extended=True, ignore_case="i" in options)
    except re.error:
        return None


def _print_matches(
    call: Call, options: dict[str, str], prefix: str, name: str, lines: list[str]
) -> None:
    if "q" in options:
        return
    if "c" in options:
        call.say(f"{prefix}{len(lines)}\n")
    elif "l" in options:
        call.say(f"{name}\n" if lines else "")
    else:
        call.say("".join(f"{prefix}{line}\n" for line in lines))


async def head(call: Call) -> int:
    return await _ends(call, first=True)


async def tail(call: Call) -> int:
    return await _ends(call, first=False)


async def _ends(call: Call, first: bool) -> int:
    arguments = [re.sub(r"^-(\d+)$", r"-n\1", word) for word in call.argv[1:]]
    options, names = split_options(arguments, valued="nc")
    status = 0
    async for name, content in inputs(call, names):
        if content is None:
            status = 1
            continue
        if len(names) > 1:
            call.say(f"==> {name} <==\n")
        by_bytes = "c" in options
        count = options.get("c" if by_bytes else "n", "10") or "10"
        call.streams.stdout.write(
            _cut(content, count, first) if by_bytes else _cut_lines(content, count, first)
        )
    return status


def _cut(content: bytes, count: str, first: bool) -> bytes:
    start, end = _span(len(content), count, first)
    return content[start:end]


def _cut_lines(content: bytes, count: str, first: bool) -> bytes:
    lines = content.splitlines(keepends=True)
    start, end = _span(len(lines), count, first)
    return b"".join(lines[start:end])


def _span(length: int, count: str, first: bool) -> tuple[int, int]:
    number = int(re.sub(r"\D", "", count) or "10")
    if first:
        return 0, max(length - number, 0) if count.startswith("-") else min(number, length)
    return (max(number - 1, 0) if count.startswith("+") else max(length - number, 0)), length


async def wc(call: Call) -> int:
    options, names = split_options(call.argv[1:])
    status = 0
    totals = [0, 0, 0]
    shown = [letter for letter in "lwc" if letter in options] or ["l", "w", "c"]
    async for name, content in inputs(call, names):
        if content is None:
            status = 1
            continue
        counts = {"l": content.count(b"\n"), "w": len(content.split()), "c": len(content)}
        totals = [total + counts[letter] for total, letter in zip(totals, "lwc", strict=True)]
        figures = " ".join(str(counts[letter]) for letter in shown)
        call.say(f"{figures} {name}\n" if names else f"{figures}\n")
    if len(names) > 1:
        wanted = dict(zip("lwc", totals, strict=True))
        call.say(" ".join(str(wanted[letter]) for letter in shown) + " total\n")
    return status


async def checksum(call: Call) -> int:
    kind = call.name.removesuffix("sum")
    options, names = split_options(call.argv[1:])
    status = 0
    async for name, content in inputs(call, names):
        if content is None:
            status = 1
            continue
        digest = hashlib.new(kind, content).hexdigest()
        shown = "-" if name == STDIN else name
        call.say(f"{digest}\n" if "b" in options else f"{digest}  {shown}\n")
    return status


async def sort(call: Call) -> int:
    options, names = split_options(call.argv[1:], valued="kt")
    lines = [
        line
        async for _, content in inputs(call, names)
        if content is not None
        for line in lines_of(content)
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


def seq(call: Call) -> int:
    numbers = [int(word) for word in call.argv[1:] if re.fullmatch(r"-?\d+", word)]
    if not 1 <= len(numbers) <= 3:
        return call.complain("Needs 1 argument")
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    span = range(first, numbers[-1] + (1 if step > 0 else -1), step or 1)
    call.say("".join(f"{number}\n" for number in span[:100_000]))
    return 0


TEXTS: dict[str, Program] = {
    "cat": cat,
    "echo": echo,
    "grep": grep,
    "egrep": grep,
    "head": head,
    "md5sum": checksum,
    "printf": printf,
    "seq": seq,
    "sha1sum": checksum,
    "sha256sum": checksum,
    "sort": sort,
    "tail": tail,
    "wc": wc,
}
