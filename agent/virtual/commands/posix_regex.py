"""Converts POSIX regular expressions, as grep and sed use them, to Python's."""

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


def basic_to_extended(expression: str) -> str:
    """Convert a basic expression to an extended one: escaped operators swap with plain ones."""
    return _BASIC_MARK.sub(
        lambda match: match[1] or (f"\\{match[2]}" if match[2] else match[3] or match[4]),
        expression,
    )


def compile_posix(expression: str, extended: bool, ignore_case: bool = False) -> re.Pattern[str]:
    """Compile an expression; raise re.error if it is invalid."""
    pattern = expression if extended else basic_to_extended(expression)
    pattern = re.sub(r"\[:(\w+):\]", lambda name: _CLASSES.get(name[1], name[0]), pattern)
    return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
