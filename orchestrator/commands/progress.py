"""Shows the progress of long computations."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

Item = TypeVar("Item")


def show_progress(items: Sequence[Item], label: str) -> Iterator[Item]:
    """Yield the items under a progress bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    with Progress(console=console, transient=True) as progress:
        yield from progress.track(items, description=label)


def timed_report() -> Callable[[str], None]:
    """Return a function that prints lines with the seconds since now."""
    started = time.monotonic()
    return lambda text: click.echo(f"[{time.monotonic() - started:4.1f} s] {text}", err=True)
