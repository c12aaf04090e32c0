"""What a command says to the person who typed it: other commands, and what it waits for.

Texts name commands as `farm sweep list`, because they are stored, sent and read elsewhere. Whoever
shows one to the person who typed a command passes it through as_typed(): in a checkout, that
person types `./farm`.
"""

import os
import re
import shlex
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size

import click

VARIABLE = "FARM_COMMAND"  # set by the launcher to how it was called
SILENT_S = 2.0  # a wait that takes longer says what it waits for
POLL_INTERVAL_S = 0.5
_COMMAND = re.compile(r"(^\s*|['`]|: |; |, |\()farm (?=[a-z])", re.MULTILINE)
_LABEL = re.compile(r" *(\S+  +)?")  # a word before several spaces: the text hangs behind it


def command_name() -> str:
    """Return how this program was called."""
    return shlex.quote(os.environ.get(VARIABLE) or "farm")


def as_typed(text: str) -> str:
    """Return a text with the commands that it names as the reader has to type them."""
    name = command_name()
    return text if name == "farm" else _COMMAND.sub(lambda found: f"{found[1]}{name} ", text)


def say(text: str, err: bool = False) -> None:
    """Print a text to the person who typed the command; a terminal cuts none of its words."""
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    click.echo(wrapped(as_typed(text)) if is_terminal else as_typed(text), err=err)


def wrapped(text: str, bullet: str = "") -> str:
    """Break the lines of a text between words, where a terminal would break them anywhere."""
    width = get_terminal_size().columns
    return "\n".join(_wrapped_line(f"{bullet}{line}", bullet, width) for line in text.split("\n"))


def _wrapped_line(line: str, bullet: str, width: int) -> str:
    if len(line) <= width:
        return line
    label = _LABEL.match(line)
    indent = " " * (len(bullet) or (label.end() if label else 0))
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


@contextmanager
def show_wait(what: Callable[[], str] | str, silent_s: float = SILENT_S) -> Iterator[None]:
    """Tell a person at a terminal what a block waits for: after two seconds, and on a change."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    read = what if callable(what) else lambda: what

    def show() -> None:
        said, pause_s = "", silent_s
        while not done.wait(pause_s):
            if (text := read()) and text != said:
                say(f"waiting for {text}", err=True)
            said, pause_s = text or said, POLL_INTERVAL_S

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
