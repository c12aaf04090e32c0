"""`farm status`: how the lab is, on one screen and at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from orchestrator.commands.common import json_option, lab_option, open_broker, print_json, read_lab
from workloads.text import safe_text


@click.command()
@lab_option
@json_option
def status(lab_folder: Path, as_json: bool) -> None:
    """Say how the lab is: what is wrong first, then hosts, phones, sweeps."""
    from workloads.protocol.faults import FarmTrouble

    lab = read_lab(lab_folder)
    board = open_broker(lab).status()
    if board is None:
        raise FarmTrouble("the scheduler is silent, so nothing is dispatched; start it: farm up")
    if as_json:
        print_json(board)
        return
    for line in (*_troubles(board), f"lab     {lab.root}", *_lines(board)):
        click.echo(safe_text(line, 400))


def _troubles(board: dict[str, Any]) -> Iterator[str]:
    """What is wrong, each with the command that helps."""
    for ill in board.get("unhealthy", []):
        serial = ill["phone"]
        how = f"farm phone {'check' if ill['health'] == 'suspect' else 'release'} {serial}"
        yield f"!       {serial} is {ill['health']}: {ill['why']}; then: {how}"
    away = board["phones"].get("away", 0)
    if away:
        yield f"!       {away} phone{'s' * (away > 1)} away; see: farm phone list"
    for host in board.get("drained", []):
        yield f"!       {host} is drained; undo: farm agent undrain {host}"
    for sweep in board["sweeps"]:
        name = sweep["id"]
        if sweep["left"] and sweep.get("state") == "paused":
            yield f"!       {name} is paused: {sweep['why']}; undo: farm sweep resume {name}"
        if sweep["failed"]:
            see = f"farm trial list {name} --state failed"
            yield f"!       {name} has {sweep['failed']} failed runs; see: {see}"


def _lines(board: dict[str, Any]) -> Iterator[str]:
    counts = ", ".join(f"{count} {state}" for state, count in board["phones"].items())
    yield f"hosts   {', '.join(sorted(board['hosts'])) or 'none; add one with: farm agent run'}"
    yield f"phones  {counts or 'none yet; plug one in, or: farm up --virtual'}"
    for sweep in board["sweeps"]:
        failed = f", {sweep['failed']} failed" if sweep["failed"] else ""
        state = "" if sweep.get("state", "active") == "active" else f" ({sweep['state']})"
        done = f"{sweep['done']}/{sweep['total']} done{failed}"
        yield f"sweep   {sweep['id']} {sweep['name']}{state}: {done}"
    if not board["sweeps"]:
        yield "sweep   none; submit one with: farm sweep submit FILE"
