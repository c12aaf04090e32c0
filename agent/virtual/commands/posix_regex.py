"""Regular expressions as grep, sed and awk write them, turned into Python's."""

import re

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}
_BASIC_MARK = re.compile(r"\\([(){}|+?])|([(){}|+?])|(\\.)|(\[\^?\]?(?:\[:\w+:\]|[^]])*\])")


def basic(shape: str) -> str:
    """A basic expression as an extended one: the escaped operators change places."""
    return _BASIC_MARK.sub(
        lambda mark: mark[1] or (f"\\{mark[2]}" if mark[2] else mark[3] or mark[4]), shape
    )


def compiled(shape: str, extended: bool, ignore_case: bool = False) -> re.Pattern[str]:
    """A pattern to search with; raises re.error for what is none."""
    source = shape if extended else basic(shape)
    source = re.sub(r"\[:(\w+):\]", lambda name: _CLASSES.get(name[1], name[0]), source)
    return re.compile(source, re.IGNORECASE if ignore_case else 0)
