"""Makes the pictures of README and the tutorial: `python -m docs.pictures`.

A lab of virtual phones runs the demo's sweep, and its screens become one animated SVG. The demo's
report becomes a picture of its first screen (needs chromium). No picture is edited by hand.
"""

import io
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import click
from rich.console import Console
from rich.terminal_theme import MONOKAI, TerminalTheme
from rich.text import Text

from docs.demo_table import run_demo
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.screen.lab_watcher import PollerThread
from orchestrator.app.submit_sweep import submit_sweep
from orchestrator.commands.demo import EXAMPLE, PHONES
from orchestrator.supervisor.demo_lab import demo_lab
from orchestrator.tui.panels import screen
from orchestrator.tui.screenshot import write_svg
from orchestrator.tui.ui_state import Ui
from workloads.lab.settings import Lab

PICTURES = Path(__file__).resolve().parents[1] / "examples" / "pictures"
SIZE, WIDE = (120, 32), (200, 50)
SPEED, EVERY_S, FRAMES_MAX = 150.0, 2.5, 40
SHOWN_S = 0.8  # each frame of the film
WIDTH, HEIGHT, MARGIN = 8.43, 17.0, 12.0  # of a character, and around all of them
THEME: TerminalTheme = MONOKAI
PAGE = (1000, 760)


def film(frames: Sequence[Sequence[Text]]) -> str:
    """Return screens as one SVG that shows them in turn; a line that recurs is stored once."""
    lines: dict[str, int] = {}
    shown = []
    for number, frame in enumerate(frames):
        places = [lines.setdefault(_line(text), len(lines)) for text in frame]
        uses = "".join(
            f'<use href="#l{place}" y="{row * HEIGHT:.0f}"/>' for row, place in enumerate(places)
        )
        delay = SHOWN_S * (number - len(frames))
        shown.append(f'<g class="f" style="animation-delay:{delay:.1f}s">{uses}</g>')
    width = 2 * MARGIN + WIDTH * max(text.cell_len for frame in frames for text in frame)
    height = 2 * MARGIN + HEIGHT * max(map(len, frames))
    share = 100 / len(frames)
    style = (
        "text{font:14px monospace;white-space:pre}"
        f".f{{visibility:hidden;animation:k {SHOWN_S * len(frames):.1f}s step-end infinite}}"
        f"@keyframes k{{0%{{visibility:visible}}{share:.3f}%{{visibility:hidden}}}}"
    )
    stored = "".join(f'<g id="l{place}">{line}</g>' for line, place in lines.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">'
        f"<style>{style}</style><defs>{stored}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="{THEME.background_color.hex}"/>'
        f'<g transform="translate({MARGIN:.0f} {MARGIN + HEIGHT * 0.75:.0f})">{"".join(shown)}</g>'
        "</svg>\n"
    )


def _line(text: Text) -> str:
    """Return a line of a screen as SVG; each part of one style has its place."""
    console = Console(width=400, file=io.StringIO(), force_terminal=True, color_system="standard")
    parts, column = [], 0
    for segment in console.render(text, console.options.update(no_wrap=True, overflow="ignore")):
        content, style = segment.text.rstrip("\n"), segment.style
        if content.strip():
            front = style.color if style and style.color else None
            back = style.bgcolor if style else None
            if style and style.reverse:
                front, back = back, front
                fill = front.get_truecolor(THEME).hex if front else THEME.background_color.hex
            else:
                fill = front.get_truecolor(THEME).hex if front else THEME.foreground_color.hex
            ground = back.get_truecolor(THEME).hex if back else THEME.foreground_color.hex
            wide = f'textLength="{WIDTH * len(content):.1f}" lengthAdjust="spacingAndGlyphs"'
            if back or (style and style.reverse):
                box = f'width="{WIDTH * len(content):.1f}" height="{HEIGHT:.0f}" fill="{ground}"'
                parts.append(f'<rect x="{WIDTH * column:.1f}" y="{-0.75 * HEIGHT:.1f}" {box}/>')
            bold = ' font-weight="bold"' if style and style.bold else ""
            place = f'x="{WIDTH * column:.1f}" fill="{fill}"{bold} {wide}'
            parts.append(f"<text {place}>{escape(content)}</text>")
        column += len(content)
    return "".join(parts)


def main() -> None:
    """Run the sweep of the demo, and write all pictures."""
    with TemporaryDirectory() as folder:
        lab = Lab.read(Path(folder) / "lab", {})
        with demo_lab(lab, SPEED, lambda text: click.echo(text, err=True), PHONES) as up:
            sweep = submit_sweep(up.connection, EXAMPLE.read_text()).sweep.id
            poller = PollerThread(up.connection, sweep, "demo", lambda: None)
            poller.start()
            frames: list[list[Text]] = []
            wide: list[Text] = []
            while not find_sweep(up.connection, sweep).finished:
                up.keep_up()
                Event().wait(EVERY_S)
                frames.append(screen(poller.snapshot, Ui(*SIZE), datetime.now(UTC)))
                wide = wide or screen(poller.snapshot, Ui(*WIDE), datetime.now(UTC))
            poller.stop()
        step = -(-len(frames) // FRAMES_MAX)
        (PICTURES / "watch.svg").write_text(film(frames[::step]), encoding="utf-8")
        write_svg(wide, PICTURES / "watch-wide.svg", "farm watch")
        click.echo(run_demo(Path(folder) / "demo"))  # in event time: the same on every computer
        picture_of(Path(folder) / "demo" / "report.html", PICTURES / "report.png")


def picture_of(page: Path, picture: Path) -> None:
    """Write what a browser shows of a page without scrolling."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1"]
    size = f"--window-size={PAGE[0]},{PAGE[1]}"
    command = ["chromium", *options, size, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
