"""Progress of long work, on the screen of whoever waits, and nowhere else."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def counted(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Go through items under a bar on standard error; silent where that is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    with Progress(console=console, transient=True) as progress:
        yield from progress.track(items, description=what)
