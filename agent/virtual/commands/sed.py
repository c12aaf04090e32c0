"""sed: s///, p, d, q, a, i, c, =; addresses by line, pattern and range. The rest is refused."""

import re
import stat
from dataclasses import dataclass

from agent.virtual.commands.inputs import input_lines
from agent.virtual.commands.patterns import compiled
from agent.virtual.files.nodes import File
from agent.virtual.shell.call import Call, Program, encode

Address = int | str | re.Pattern[str]


@dataclass(slots=True)
class _Step:
    """One command of a script."""

    addresses: list[Address]
    verb: str
    negated: bool = False
    wanted: re.Pattern[str] | None = None
    text: str = ""
    flags: str = ""
    inside: bool = False  # within a range


class _Script:
    """A cursor over a script's text."""

    def __init__(self, text: str, extended: bool) -> None:
        self.text = text
        self.at = 0
        self.extended = extended

    def steps(self) -> list[_Step]:
        steps: list[_Step] = []
        while True:
            self._skip(" \t\n;")
            if self.at >= len(self.text):
                return steps
            steps.append(self._step())

    def _step(self) -> _Step:
        addresses: list[Address] = []
        while (address := self._address()) is not None:
            addresses.append(address)
            self._skip(" \t")
            if not self._take(","):
                break
        self._skip(" \t")
        negated = self._take("!")
        self._skip(" \t")
        step = _Step(addresses, self._next(), negated)
        if step.verb == "s":
            mark = self._next()
            step.wanted = self._pattern(self._until(mark))
            step.text = self._until(mark)
            step.flags = self._word()
            if "I" in step.flags or "i" in step.flags:
                step.wanted = re.compile(step.wanted.pattern, re.IGNORECASE)
        elif step.verb in "aic":
            self._skip(" \t\\\n")
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            step.text, self.at = self.text[self.at : end], end
        elif step.verb not in ("p", "d", "q", "="):
            raise ValueError(f"bad pattern '{self.text}'@{self.at} ({step.verb})")
        return step

    def _address(self) -> Address | None:
        self._skip(" \t")
        if self._take("$"):
            return "$"
        if self._take("/"):
            return self._pattern(self._until("/"))
        digits = re.compile(r"\d+").match(self.text, self.at)
        if digits is None:
            return None
        self.at = digits.end()
        return int(digits[0])

    def _pattern(self, shape: str) -> re.Pattern[str]:
        try:
            return compiled(shape, self.extended)
        except re.error:
            raise ValueError(f"bad regex '{shape}'") from None

    def _until(self, mark: str) -> str:
        text = ""
        while self.at < len(self.text):
            letter = self._next()
            if letter == mark:
                return text
            if letter == "\\" and self.at < len(self.text):
                following = self._next()
                text += following if following == mark else f"\\{following}"
            else:
                text += letter
        raise ValueError(f"no closing {mark}")

    def _word(self) -> str:
        flags = re.compile(r"[gpiI0-9]*").match(self.text, self.at)
        assert flags is not None
        self.at = flags.end()
        return flags[0]

    def _next(self) -> str:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        return letter

    def _take(self, mark: str) -> bool:
        if self.text.startswith(mark, self.at):
            self.at += 1
            return True
        return False

    def _skip(self, letters: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in letters:
            self.at += 1


async def sed(call: Call) -> int:
    letters, scripts, names = _arguments(call.argv[1:])
    text = "\n".join(scripts) if scripts else names.pop(0) if names else ""
    try:
        steps = _Script(text, bool({"E", "r"} & letters)).steps()
    except ValueError as error:
        return call.complain(str(error))
    if "i" in letters:
        for name in names:
            lines, _ = await input_lines(call, [name])
            node, _ = call.phone.tree.resolve(name, call.uid, call.cwd)
            mode = stat.S_IMODE(node.mode)
            told = _edited(steps, lines, "n" in letters)
            fresh = call.phone.tree.open_for_writing(name, call.uid, call.cwd)
            call.phone.tree.append(fresh, encode(told), call.uid)
            call.phone.tree.note(name, "write", encode(told), call.uid, call.cwd)
            if isinstance(fresh, File):
                fresh.mode = stat.S_IFREG | mode
        return 0
    lines, status = await input_lines(call, names)
    call.say(_edited(steps, lines, "n" in letters))
    return status


def _arguments(words: list[str]) -> tuple[set[str], list[str], list[str]]:
    """Letters, the texts of every -e, and what is left."""
    letters: set[str] = set()
    scripts: list[str] = []
    names: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        bundle, takes, value = word[1:].partition("e")
        letters |= set(bundle)
        if takes:
            scripts.append(value or (rest.pop(0) if rest else ""))
    return letters, scripts, names


def _edited(steps: list[_Step], lines: list[str], silent: bool) -> str:
    told: list[str] = []
    for number, line in enumerate(lines, 1):
        edited = _edit_line(steps, line, number, number == len(lines), told)
        if not silent and edited.kept is not None:
            told.append(edited.kept)
        told += edited.after
        if edited.last:
            break
    return "".join(f"{line}\n" for line in told)


@dataclass(slots=True)
class _Edited:
    """What became of a line."""

    kept: str | None
    after: list[str]
    last: bool = False


def _edit_line(steps: list[_Step], line: str, number: int, final: bool, told: list[str]) -> _Edited:
    after: list[str] = []
    for step in steps:
        if not _meant(step, number, line, final):
            continue
        if step.verb == "s":
            line, printed = _substituted(step, line)
            told += [line] if printed else []
        elif step.verb == "a":
            after.append(step.text)
        elif step.verb in "dcq":
            told += [step.text] if step.verb == "c" else []
            return _Edited(line if step.verb == "q" else None, after, step.verb == "q")
        else:
            told.append({"p": line, "=": str(number), "i": step.text}[step.verb])
    return _Edited(line, after)


def _meant(step: _Step, number: int, line: str, last: bool) -> bool:
    def hits(address: Address) -> bool:
        if isinstance(address, int):
            return number == address
        return last if isinstance(address, str) else address.search(line) is not None

    if len(step.addresses) == 2:
        first, second = step.addresses
        if step.inside:
            done = number >= second if isinstance(second, int) else hits(second)
            step.inside = not done
            found = True
        else:
            found = hits(first)
            step.inside = found and not (isinstance(second, int) and second <= number)
    else:
        found = hits(step.addresses[0]) if step.addresses else True
    return found != step.negated


def _substituted(step: _Step, line: str) -> tuple[str, bool]:
    assert step.wanted is not None

    def new(match: re.Match[str]) -> str:
        def one(mark: re.Match[str]) -> str:
            code = mark[0][-1]
            if mark[0] == "&":
                return match[0]
            if code.isdigit():
                return match[int(code)] or ""
            return {"n": "\n", "t": "\t"}.get(code, code)

        return re.sub(r"\\.|&", one, step.text)

    if nth := int(re.sub(r"\D", "", step.flags) or "0"):
        found = list(step.wanted.finditer(line))[nth - 1 : None if "g" in step.flags else nth]
        for match in reversed(found):
            line = line[: match.start()] + new(match) + line[match.end() :]
        return line, bool(found) and "p" in step.flags
    line, count = step.wanted.subn(new, line, count=0 if "g" in step.flags else 1)
    return line, bool(count) and "p" in step.flags


SED: dict[str, Program] = {"sed": sed}
