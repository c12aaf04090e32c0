"""Shows the progress of long computations."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

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
