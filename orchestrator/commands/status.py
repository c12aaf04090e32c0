"""`farm status`: the state of the lab on one screen."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.read_status import LabStatus


@click.command()
@lab_option
@json_option
def status(lab_folder: Path, as_json: bool) -> None:
    """Show the state of the lab: problems first, then hosts, phones and sweeps.

    Example: farm status
    """
    from orchestrator.app.read_status import read_status_board
    from workloads.protocol.faults import FarmTrouble

    lab = connect(lab_folder)
    board = read_status_board(lab)
    if board is None:
        raise FarmTrouble(
            "the scheduler is not running, so no runs are dispatched; start it with 'farm up'"
        )
    if as_json:
        print_json(board.model_dump(mode="json"))
        return
    for line in (*_problems(board), f"lab     {lab.place}", *_lines(board)):
        click.echo(safe_text(line, 400))


def _problems(board: "LabStatus") -> Iterator[str]:
    """Yield every problem with the command that helps."""
    for notice in board.problems:
        yield f"!       {notice.host}: {notice.text}"
    for phone in board.unhealthy:
        command = f"farm phone {'check' if phone.health == 'suspect' else 'release'} {phone.phone}"
        yield f"!       {phone.phone} is {phone.health}: {phone.reason}; next: {command}"
    away = board.phones.get("away", 0)
    if away:
        yield f"!       {away} phone{'s' * (away > 1)} away; see: farm phone list"
    for host in board.drained:
        yield f"!       {host} is drained; undo: farm agent undrain {host}"
    for sweep in board.sweeps:
        if sweep.left and sweep.state == "paused":
            undo = f"farm sweep resume {sweep.id}"
            yield f"!       {sweep.id} is paused: {sweep.reason}; undo: {undo}"
        if sweep.failed:
            see = f"farm trial list {sweep.id} --state failed"
            yield f"!       {sweep.id} has {sweep.failed} failed runs; see: {see}"


def _lines(board: "LabStatus") -> Iterator[str]:
    counts = ", ".join(f"{count} {state}" for state, count in board.phones.items())
    yield f"hosts   {', '.join(sorted(board.hosts)) or 'none; add one with: farm agent run'}"
    yield f"phones  {counts or 'none yet; connect one, or: farm up --virtual'}"
    for sweep in board.sweeps:
        failed = f", {sweep.failed} failed" if sweep.failed else ""
        state = "" if sweep.state == "active" else f" ({sweep.state})"
        done = f"{sweep.done}/{sweep.total} done{failed}"
        yield f"sweep   {sweep.id} {sweep.name}{state}: {done}"
    if not board.sweeps:
        yield "sweep   none; submit one with: farm sweep submit FILE"
