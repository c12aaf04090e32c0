"""`farm watch`: follow the lab live."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.commands.common import lab_option, open_broker, open_store, read_lab
from orchestrator.commands.completion import complete_sweep
from workloads.units import parse_duration

if TYPE_CHECKING:
    from orchestrator.app.lab_status import LabView
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.store.database import Database
    from orchestrator.store.phone_queries import KnownPhone
    from orchestrator.tui.ui_state import Matches
    from orchestrator.tui.watch_loop import WatchOptions


@click.command()
@click.argument("name", metavar="[SWEEP]", required=False, shell_complete=complete_sweep)
@lab_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option("--exit-status", is_flag=True, help="Exit with 5 if any run failed.")
@click.option("--read-only", is_flag=True, help="Look, and let no key change anything.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--once", is_flag=True, help="Print one screen and leave.")
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write one screen to this file as a picture, and leave.",
)
@click.option(
    "--size",
    metavar="COLUMNSxLINES",
    default=None,
    help="Size of that screen (default: the terminal's, or 120x40).",
)
@click.option(
    "--after",
    metavar="DURATION",
    default="0s",
    help="Watch for so long before that screen is taken, as in 20s.",
)
def watch(
    name: str | None,
    lab_folder: Path,
    as_json: bool,
    exit_status: bool,
    read_only: bool,
    ascii_only: bool,
    **still_life: Any,
) -> int:
    """Follow the lab, or one SWEEP until it is finished.

    On a terminal it is a screen: ? shows its keys. In a pipe it is a line an event. Leaving with q
    or Ctrl-C leaves the sweep running.
    """
    from orchestrator.commands.exit_codes import FAILURES
    from orchestrator.commands.tui_actions import ActionHandler
    from orchestrator.store.sweep_queries import find_sweep
    from orchestrator.tui.watch_loop import WatchOptions, print_json_events, run_watch

    lab = read_lab(lab_folder)
    db, broker = open_store(lab), open_broker(lab)
    sweep = find_sweep(db, name).id if name else None
    wish = WatchOptions(sweep, lab.root.name, read_only, ascii_only)
    if still_life["once"] or still_life["svg"]:
        return _take_still(db, broker, wish, **still_life)

    def done(view: "LabView") -> bool:
        return sweep is not None and view.sweeps[0].finished

    try:
        if as_json:
            view = print_json_events(db, broker, sweep, done)
        else:
            view = run_watch(db, broker, wish, done, read_filter, ActionHandler(db, broker))
    except KeyboardInterrupt:
        click.echo("Left the screen; the lab goes on. Come back with: farm watch", err=True)
        return 130
    return FAILURES if exit_status and any(item.failed for item in view.sweeps) else 0


def _take_still(
    db: "Database",
    broker: "CentralBroker",
    wish: "WatchOptions",
    once: bool,
    svg: Path | None,
    size: str | None,
    after: str,
) -> int:
    from orchestrator.tui.screenshot import draw, render_screenshot, show

    lines = render_screenshot(db, broker, wish, _size(size), _seconds(after))
    if once:
        show(lines)
    if svg is not None:
        draw(lines, svg, "farm watch")
        click.echo(svg)
    return 0


def read_filter(words: str) -> "Matches":
    """Read what was typed after `/`: a selector, or words that a phone's names contain.

    A phone is judged once, until its facts or tags change.
    """
    from orchestrator.sweepfile.selector import KEYWORDS, parse_selector
    from orchestrator.sweepfile.selector_terms import NAMES

    plain = re.fullmatch(r"[\w.+ -]+", words) and not {*NAMES, *KEYWORDS} & set(words.split())
    selector = parse_selector(f"'*{words}*'" if plain else words)
    judged: dict[str, tuple[object, object, bool]] = {}

    def matches(phone: "KnownPhone") -> bool:
        known = judged.get(phone.serial)
        if known is None or known[0] is not phone.facts or known[1] != phone.tags:
            found = selector.matches(phone.facts, phone.tags)
            known = judged[phone.serial] = (phone.facts, phone.tags, found)
        return known[2]

    return matches


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,3})x(\d{1,3})", text)
    if found is None or "0" in found.groups():
        raise click.BadParameter(f"'{text}' is no size; write it like 120x40")
    return int(found[1]), int(found[2])


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
