"""Commands that take text in and give text out: cut, tr, uniq, tee, xargs, od and relatives."""

import base64
import gzip
import re
import zlib

from agent.virtual.commands.inputs import input_lines, inputs
from agent.virtual.commands.options import split_options
from agent.virtual.shell.call import Call, Program, decode, encode
from agent.virtual.shell.streams import read_all

_RANGE = re.compile(r"(\d*)(-?)(\d*)")
_ARGUMENTS_MAX = 10_000


async def cut(call: Call) -> int:
    """cut -d D -f LIST, or -c LIST"""
    options, names = split_options(call.argv[1:], valued="dfcb")
    wanted = options.get("f") or options.get("c") or options.get("b")
    if not wanted:
        return call.complain("no fields")
    mark = options.get("d", "\t")[:1] or "\t"
    lines, status = await input_lines(call, names)
    told: list[str] = []
    for line in lines:
        if "f" not in options:
            told.append("".join(_chosen(list(line), wanted)))
        elif mark in line:
            told.append(mark.join(_chosen(line.split(mark), wanted)))
        elif "s" not in options:
            told.append(line)
    call.say("".join(f"{line}\n" for line in told))
    return status


def _chosen(pieces: list[str], wanted: str) -> list[str]:
    places: set[int] = set()
    for span in wanted.split(","):
        match = _RANGE.fullmatch(span)
        if match is None or span in ("", "-"):
            raise ValueError(span)
        first = int(match[1] or "1")
        last = int(match[3]) if match[3] else len(pieces) if match[2] else first
        places |= set(range(first, min(last, len(pieces)) + 1))
    return [piece for place, piece in enumerate(pieces, 1) if place in places]


async def tr(call: Call) -> int:
    """tr A B, tr -d A, tr -s A [B]"""
    options, sets = split_options(call.argv[1:])
    text = decode(await read_all(call.streams.stdin))
    old = _letters(sets[0])
    if "c" in options or "C" in options:
        kept = set(old)
        old = sorted({letter for letter in text if letter not in kept})
    if "d" in options:
        text = text.translate({ord(letter): None for letter in old})
        old = _letters(sets[1]) if len(sets) > 1 else []
    elif len(sets) > 1:
        new = _letters(sets[1])
        padded = new + new[-1:] * max(len(old) - len(new), 0)
        text = text.translate({ord(a): b for a, b in zip(old, padded, strict=False)})
        old = new
    if "s" in options and old:
        alike = "".join(map(re.escape, old))
        text = re.sub(f"([{alike}])\\1+", r"\1", text)
    call.streams.stdout.write(encode(text))
    return 0


def _letters(text: str) -> list[str]:
    """What a set of tr names: ranges, classes and escapes spelled out."""
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
    text = re.sub(r"\\(.)", lambda mark: escapes.get(mark[1], mark[1]), text)
    spans = re.findall(r"(.)-(.)|(.)", text, re.DOTALL)
    letters: list[str] = []
    for first, last, alone in spans:
        span = range(ord(first), ord(last) + 1) if first else [ord(alone)]
        letters += [chr(code) for code in span][:4096]
    return letters


async def uniq(call: Call) -> int:
    options, names = split_options(call.argv[1:])
    lines, status = await input_lines(call, names[:1])
    runs: list[tuple[str, int]] = []
    for line in lines:
        if runs and runs[-1][0] == line:
            runs[-1] = (line, runs[-1][1] + 1)
        else:
            runs.append((line, 1))
    for line, count in runs:
        if ("d" in options and count == 1) or ("u" in options and count > 1):
            continue
        call.say(f"{count:>7} {line}\n" if "c" in options else f"{line}\n")
    return status


async def tee(call: Call) -> int:
    options, names = split_options(call.argv[1:])
    content = await read_all(call.streams.stdin)
    call.streams.stdout.write(content)
    tree = call.phone.tree
    for name in names:
        node = tree.open_for_writing(name, call.uid, call.cwd, append="a" in options)
        tree.append(node, content, call.uid)
        tree.note(name, "append" if "a" in options else "write", content, call.uid, call.cwd)
    return 0


async def tac(call: Call) -> int:
    lines, status = await input_lines(call, call.argv[1:])
    call.say("".join(f"{line}\n" for line in reversed(lines)))
    return status


async def xargs(call: Call) -> int:
    """xargs [-0] [-n N] [-I MARK] COMMAND.."""
    options, words = split_options(call.argv[1:], valued="nIPsE")
    text = decode(await read_all(call.streams.stdin))
    mark = options.get("I")
    if "0" in options:
        items = [item for item in text.split("\0") if item]
    elif mark:
        items = [line.strip() for line in text.splitlines() if line.strip()]
    else:
        items = text.split()
    words = words or ["echo"]
    if not items and "r" in options:
        return 0
    group = 1 if mark else int(options.get("n") or _ARGUMENTS_MAX)
    status = 0
    for start in range(0, max(len(items), 1), group):
        some = items[start : start + group]
        argv = [word.replace(mark, some[0]) for word in words] if mark and some else words + some
        if await call.shell.invoke(argv, call.streams, call.process):
            status = 123
    return status


async def od(call: Call) -> int:
    """od in octal words, or bytes with -t x1, -An without addresses."""
    options, names = split_options(call.argv[1:], valued="tANjw")
    content = await _bytes(call, names)
    content = content[int(options.get("j") or 0) :]
    content = content[: int(options["N"])] if "N" in options else content
    by_byte = options.get("t", "") in ("x1", "x1z") or "x1" in options.get("t", "")
    for start in range(0, len(content), 16):
        row = content[start : start + 16]
        if by_byte:
            cells = "".join(f" {byte:02x}" for byte in row)
        else:
            pairs = [row[i : i + 2] for i in range(0, len(row), 2)]
            cells = "".join(f" {int.from_bytes(pair, 'little'):06o}" for pair in pairs)
        call.say((cells if options.get("A") == "n" else f"{start:07o}{cells}") + "\n")
    if options.get("A") != "n":
        call.say(f"{len(content):07o}\n")
    return 0


async def xxd(call: Call) -> int:
    options, names = split_options(call.argv[1:], valued="lsc")
    content = await _bytes(call, names)
    content = content[: int(options["l"])] if "l" in options else content
    if "p" in options:
        rows = [content[at : at + 30].hex() for at in range(0, len(content), 30)]
        call.say("".join(f"{row}\n" for row in rows))
        return 0
    for start in range(0, len(content), 16):
        row = content[start : start + 16]
        cells = " ".join(row[i : i + 2].hex() for i in range(0, len(row), 2))
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        call.say(f"{start:08x}: {cells:<39}  {shown}\n")
    return 0


async def encode64(call: Call) -> int:
    options, names = split_options(call.argv[1:], valued="w")
    content = await _bytes(call, names)
    if "d" in options:
        call.streams.stdout.write(base64.b64decode(content))
        return 0
    text = base64.b64encode(content).decode()
    width = int(options.get("w") or 76) or len(text) or 1
    call.say("".join(f"{text[at : at + width]}\n" for at in range(0, len(text), width)))
    return 0


async def compare(call: Call) -> int:
    """cmp and diff: whether two files are alike."""
    options, names = split_options(call.argv[1:])
    contents = [content async for _, content in inputs(call, names[:2])]
    if None in contents or len(contents) < 2:
        return 2
    alike = contents[0] == contents[1]
    if not alike and not {"s", "q"} & set(options):
        verb = "differ: char 1, line 1" if call.name == "cmp" else "differ"
        call.say(f"{names[0]} {names[1]} {verb}\n")
    return int(not alike)


async def unzip(call: Call) -> int:
    """zcat FILE.."""
    for name in split_options(call.argv[1:])[1]:
        packed = call.phone.tree.read(name, call.uid, call.cwd)
        try:
            call.streams.stdout.write(gzip.decompress(packed))
        except (OSError, EOFError, zlib.error):
            return call.complain(f"{name}: not gzip")
    return 0


async def number_lines(call: Call) -> int:
    lines, status = await input_lines(call, split_options(call.argv[1:])[1])
    call.say("".join(f"{number:>6}\t{line}\n" for number, line in enumerate(lines, 1)))
    return status


async def _bytes(call: Call, names: list[str]) -> bytes:
    parts = [content async for name, content in inputs(call, names) if content is not None]
    return b"".join(parts)


FILTERS: dict[str, Program] = {
    "base64": encode64,
    "cmp": compare,
    "cut": cut,
    "diff": compare,
    "nl": number_lines,
    "od": od,
    "tac": tac,
    "tee": tee,
    "tr": tr,
    "uniq": uniq,
    "xargs": xargs,
    "xxd": xxd,
    "zcat": unzip,
}
