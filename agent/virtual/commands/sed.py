"""sed: s///, p, d and q; addresses by line, pattern and range. Other commands are errors."""

import re
from dataclasses import dataclass

from agent.virtual.commands.command_options import read_input_lines
from agent.virtual.commands.posix_regex import compile_posix
from agent.virtual.shell.command_call import CommandCall, CommandFunction

Address = int | str | re.Pattern[str]


@dataclass(slots=True)
class _SedCommand:
    """One command of a script."""

    addresses: list[Address]
    verb: str
    is_negated: bool = False
    pattern: re.Pattern[str] | None = None
    text: str = ""
    flags: str = ""
    in_range: bool = False  # between the two addresses of a range


class _SedParser:
    """A cursor over a script."""

    def __init__(self, text: str, extended: bool) -> None:
        self.text = text
        self.position = 0
        self.extended = extended

    def parse(self) -> list[_SedCommand]:
        commands: list[_SedCommand] = []
        while True:
            self._skip(" \t\n;")
            if self.position >= len(self.text):
                return commands
            commands.append(self._parse_command())

    def _parse_command(self) -> _SedCommand:
        addresses: list[Address] = []
        while (address := self._parse_address()) is not None:
            addresses.append(address)
            self._skip(" \t")
            if not self._take(","):
                break
        self._skip(" \t")
        is_negated = self._take("!")
        self._skip(" \t")
        command = _SedCommand(addresses, self._next(), is_negated)
        if command.verb == "s":
            delimiter = self._next()
            command.pattern = self._compile_pattern(self._read_until(delimiter))
            command.text = self._read_until(delimiter)
            command.flags = self._read_flags()
            if "I" in command.flags or "i" in command.flags:
                command.pattern = re.compile(command.pattern.pattern, re.IGNORECASE)
        elif command.verb not in ("p", "d", "q"):
            raise ValueError(f"bad pattern '{self.text}'@{self.position} ({command.verb})")
        return command

    def _parse_address(self) -> Address | None:
        self._skip(" \t")
        if self._take("$"):
            return "$"
        if self._take("/"):
            return self._compile_pattern(self._read_until("/"))
        digits = re.compile(r"\d+").match(self.text, self.position)
        if digits is None:
            return None
        self.position = digits.end()
        return int(digits[0])

    def _compile_pattern(self, expression: str) -> re.Pattern[str]:
        try:
            return compile_posix(expression, self.extended)
        except re.error:
            raise ValueError(f"bad regex '{expression}'") from None

    def _read_until(self, delimiter: str) -> str:
        text = ""
        while self.position < len(self.text):
            letter = self._next()
            if letter == delimiter:
                return text
            if letter == "\\" and self.position < len(self.text):
                following = self._next()
                text += following if following == delimiter else f"\\{following}"
            else:
                text += letter
        raise ValueError(f"no closing {delimiter}")

    def _read_flags(self) -> str:
        flags = re.compile(r"[gpiI]*").match(self.text, self.position)
        assert flags is not None
        self.position = flags.end()
        return flags[0]

    def _next(self) -> str:
        letter = self.text[self.position : self.position + 1]
        self.position += 1
        return letter

    def _take(self, delimiter: str) -> bool:
        if self.text.startswith(delimiter, self.position):
            self.position += 1
            return True
        return False

    def _skip(self, letters: str) -> None:
        while self.position < len(self.text) and self.text[self.position] in letters:
            self.position += 1


async def sed(call: CommandCall) -> int:
    letters, scripts, names = _split_arguments(call.argv[1:])
    if unknown := letters - {"n", "E", "r"}:
        return call.fail(f"Unknown option '{min(unknown)}'")
    text = "\n".join(scripts) if scripts else names.pop(0) if names else ""
    try:
        commands = _SedParser(text, bool({"E", "r"} & letters)).parse()
    except ValueError as error:
        return call.fail(str(error))
    lines, status = await read_input_lines(call, names)
    call.print(_edit_lines(commands, lines, "n" in letters))
    return status


def _split_arguments(words: list[str]) -> tuple[set[str], list[str], list[str]]:
    """Return the option letters, the scripts of every -e, and the remaining arguments."""
    letters: set[str] = set()
    scripts: list[str] = []
    names: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        bundle, has_script, value = word[1:].partition("e")
        letters |= set(bundle)
        if has_script:
            scripts.append(value or (rest.pop(0) if rest else ""))
    return letters, scripts, names


def _edit_lines(commands: list[_SedCommand], lines: list[str], is_silent: bool) -> str:
    output_lines: list[str] = []
    for number, line in enumerate(lines, 1):
        edited, quits = _edit_line(commands, line, number, number == len(lines), output_lines)
        if not is_silent and edited is not None:
            output_lines.append(edited)
        if quits:
            break
    return "".join(f"{line}\n" for line in output_lines)


def _edit_line(
    commands: list[_SedCommand], line: str, number: int, is_last: bool, output_lines: list[str]
) -> tuple[str | None, bool]:
    """Return the edited line, None if it is deleted, and whether it is the last one to read."""
    for command in commands:
        if not _is_selected(command, number, line, is_last):
            continue
        if command.verb == "s":
            line, is_printed = _substitute(command, line)
            output_lines += [line] if is_printed else []
        elif command.verb == "p":
            output_lines.append(line)
        else:
            return (line, True) if command.verb == "q" else (None, False)
    return line, False


def _is_selected(command: _SedCommand, number: int, line: str, is_last: bool) -> bool:
    def matches(address: Address) -> bool:
        if isinstance(address, int):
            return number == address
        return is_last if isinstance(address, str) else address.search(line) is not None

    if len(command.addresses) == 2:
        first, second = command.addresses
        if command.in_range:
            range_ends = number >= second if isinstance(second, int) else matches(second)
            command.in_range = not range_ends
            is_selected = True
        else:
            is_selected = matches(first)
            command.in_range = is_selected and not (isinstance(second, int) and second <= number)
    else:
        is_selected = matches(command.addresses[0]) if command.addresses else True
    return is_selected != command.is_negated


def _substitute(command: _SedCommand, line: str) -> tuple[str, bool]:
    assert command.pattern is not None

    def replacement(match: re.Match[str]) -> str:
        def expand_reference(reference: re.Match[str]) -> str:
            code = reference[0][-1]
            if reference[0] == "&":
                return match[0]
            if code.isdigit():
                return match[int(code)] or ""
            return {"n": "\n", "t": "\t"}.get(code, code)

        return re.sub(r"\\.|&", expand_reference, command.text)

    line, count = command.pattern.subn(replacement, line, count=0 if "g" in command.flags else 1)
    return line, bool(count) and "p" in command.flags


SED_COMMANDS: dict[str, CommandFunction] = {"sed": sed}
