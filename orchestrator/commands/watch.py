"""`farm watch`: follows the lab live."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, has_unicode, lab_option
from orchestrator.commands.completion import complete_sweep
from workloads.command_output import say
from workloads.units import parse_duration

if TYPE_CHECKING:
    from orchestrator.app.lab_status import LabView


@click.command()
@click.argument("name", metavar="[SWEEP]", required=False, shell_complete=complete_sweep)
@lab_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option(
    "--exit-status",
    is_flag=True,
    help="Exit with 5 if any run failed, or if any run of the SWEEP is left, blocked or cancelled.",
)
@click.option("--read-only", is_flag=True, help="Disable keys that change anything.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write one screen to this file as SVG, and exit.",
)
@click.option(
    "--size",
    metavar="COLUMNSxLINES",
    default=None,
    help="Size of that screen. Default: the terminal's, or 120x40.",
)
@click.option(
    "--after",
    metavar="DURATION",
    default="0s",
    help="Watch this long before the screen is taken, e.g. 20s.",
)
def watch(  # noqa: PLR0913, PLR0917 (click passes options one by one)
    name: str | None,
    lab_folder: Path,
    as_json: bool,
    exit_status: bool,
    read_only: bool,
    ascii_only: bool,
    once: bool,
    svg: Path | None,
    size: str | None,
    after: str,
) -> int:
    """Follow the lab, or one SWEEP until it has finished.

    On a terminal this is a screen; press ? for its keys. When piped, it prints one line per event.
    The sweep continues after q or Ctrl-C. It also ends, with 7, if only a person can continue the
    sweep: its phones are quarantined or reserved or, when piped, it is paused.

    \b
    Examples:
      farm watch
      farm watch smoke --exit-status
      farm watch smoke --once --size 100x30
    """
    from orchestrator.app.app_errors import InvalidState
    from orchestrator.app.control_sweeps import SweepState, find_sweep
    from orchestrator.app.screen.waiting_sweep import SweepWait, find_obstacles, obstacle_text
    from orchestrator.commands.exit_codes import FAILURES
    from orchestrator.tui.screenshot import print_screen, render_screenshot, write_svg
    from orchestrator.tui.watch_loop import WatchOptions, is_live, print_events, run_watch

    lab = connect(lab_folder)
    lab.check()
    sweep = find_sweep(lab, name).id if name else None
    name_of_lab = lab.place.rpartition("/")[2]
    options = WatchOptions(sweep, name_of_lab, read_only, ascii_only or not has_unicode())
    if once or svg is not None:
        lines = render_screenshot(lab, options, _parse_size(size), _parse_seconds(after))
        if once:
            print_screen(lines)
        if svg is not None:
            write_svg(lines, svg, "farm watch")
            click.echo(svg)
        return 0

    def is_finished(view: "LabView") -> bool:
        return sweep is not None and view.sweeps[0].finished

    wait = SweepWait()

    def is_finished_or_stuck(view: "LabView") -> bool:
        # On a screen, a key continues a paused sweep.
        ends = not is_live() or view.sweeps[0].state is not SweepState.PAUSED
        return is_finished(view) or (sweep is not None and wait.is_stuck(view) and ends)

    try:
        if as_json:
            view = print_events(lab, sweep, is_finished_or_stuck, as_json=True)
        else:
            view = run_watch(lab, options, is_finished_or_stuck)
    except KeyboardInterrupt:
        say("The lab is still running; watch it again with: farm watch", err=True)
        return 130
    if sweep is not None and not is_finished(view) and wait.is_stuck(view):
        text = obstacle_text(find_obstacles(view))
        raise InvalidState(f"{name} does not continue by itself: {text}")
    if not exit_status:
        return 0
    lacks = find_sweep(lab, sweep).missing if sweep else any(item.failed for item in view.sweeps)
    return FAILURES if lacks else 0


def _parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,3})x(\d{1,3})", text)
    if match is None or "0" in match.groups():
        raise click.BadParameter(f"'{text}' is not a size; write COLUMNSxLINES, e.g. 120x40")
    return int(match[1]), int(match[2])


def _parse_seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
