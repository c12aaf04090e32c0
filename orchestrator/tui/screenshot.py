"""A still of the screen: printed once, or written to a file as a picture."""

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

from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.database import Database
from orchestrator.tui.panels import screen
from orchestrator.tui.poller import PollerThread
from orchestrator.tui.text_cells import in_ascii
from orchestrator.tui.ui_state import Ui
from orchestrator.tui.watch_loop import WatchOptions

SIZE = (120, 40)
_FONTS = re.compile(r"\s*@font-face \{.*?\}|\s*<!-- Generated.*?-->", re.DOTALL)


def render_screenshot(
    db: Database,
    broker: CentralBroker,
    wish: WatchOptions,
    size: tuple[int, int] | None,
    after_s: float,
) -> list[Text]:
    """Watch for so long, and answer the screen as it would stand there then."""
    width, height = size or shutil.get_terminal_size(SIZE)
    watcher = PollerThread(db, broker, wish.sweep, wish.lab, lambda: None)
    if after_s > 0:
        watcher.start()
        threading.Event().wait(after_s)
        watcher.stop()
    ui = Ui(width=width, height=height, read_only=wish.read_only)
    lines = screen(watcher.seen, ui, datetime.now(UTC))
    return [in_ascii(text) for text in lines] if wish.ascii_only else lines


def show(lines: Sequence[Text]) -> None:
    """Print a still."""
    console = Console(highlight=False)
    for text in lines:
        console.print(text, soft_wrap=True)


def draw(lines: Sequence[Text], picture: Path, title: str) -> None:
    """Write a still to a file as SVG."""
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
    # The picture is looked at where there is no network, too: any monospaced font will do.
    picture.write_text(_FONTS.sub("", content), encoding="utf-8")
