"""One screen of `farm watch`: printed once, or written as SVG."""

import io
import re
import shutil
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.screen.lab_watcher import PollerThread
from orchestrator.tui.panels import screen
from orchestrator.tui.text_cells import in_ascii
from orchestrator.tui.ui_state import Ui
from orchestrator.tui.watch_loop import WatchOptions

SIZE = (120, 40)
_FONTS = re.compile(r"\s*@font-face \{.*?\}|\s*<!-- Generated.*?-->", re.DOTALL)


def render_screenshot(
    lab: LabConnection, options: WatchOptions, size: tuple[int, int] | None, after_s: float
) -> list[Text]:
    """Watch the lab for some seconds, and return the screen at their end."""
    width, height = size or shutil.get_terminal_size(SIZE)
    poller = PollerThread(lab, options.sweep, options.lab_name, lambda: None)
    if after_s > 0:
        poller.start()
        threading.Event().wait(after_s)
        poller.stop()
    ui = Ui(width=width, height=height, read_only=options.read_only)
    lines = screen(poller.snapshot, ui, datetime.now(UTC))
    return [in_ascii(text) for text in lines] if options.ascii_only else lines


def print_screen(lines: Sequence[Text]) -> None:
    """Print a screen."""
    console = Console(highlight=False)
    for text in lines:
        console.print(text, soft_wrap=True)


def write_svg(lines: Sequence[Text], file: Path, title: str) -> None:
    """Write a screen to an SVG file that needs no network: any monospaced font is used."""
    console = Console(
        width=max(len(text) for text in lines),
        file=io.StringIO(),
        record=True,
        force_terminal=True,
        color_system="standard",
        highlight=False,
    )
    for text in lines:
        console.print(text, soft_wrap=True)
    content = console.export_svg(title=title, theme=MONOKAI, unique_id="farm")
    file.write_text(_FONTS.sub("", content), encoding="utf-8")
