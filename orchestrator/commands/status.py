"""`farm status`: the state of the lab on one screen."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json
from workloads.command_output import say
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.lab_status import LabView


@click.command()
@lab_option
@json_option
def status(lab_folder: Path, as_json: bool) -> None:
    """Show the state of the lab: problems first, then hosts, phones and sweeps.

    Example: farm status
    """
    from orchestrator.app.lab_status import read_lab_status
    from workloads.protocol.faults import FarmTrouble

    lab = connect(lab_folder)
    view = read_lab_status(lab, with_progress=False)
    if not view.has_scheduler:
        raise FarmTrouble(
            "the scheduler is not running, so no runs are dispatched; start it with 'farm up'"
        )
    if as_json:
        print_json(_values(view))
        return
    for line in (*_problems(view), f"lab     {lab.place}", *_lines(view)):
        say(safe_text(line, 400))


def _states(view: "LabView") -> Counter[str]:
    """Count phones by their state."""
    return Counter(f"{phone.availability}" for phone in view.phones)


def _values(view: "LabView") -> dict[str, object]:
    """Return the state of the lab as JSON-like values."""
    from orchestrator.app.screen.lab_problems import lab_problems

    return {
        "at": view.at.isoformat(),
        "hosts": {host: seen_at.isoformat() for host, seen_at in view.hosts.items()},
        "problems": [asdict(item) for item in lab_problems(view)],
        "phones": dict(sorted(_states(view).items())),
        "drained": view.drained,
        "sweeps": [
            {
                "id": sweep.id,
                "name": sweep.name,
                "state": sweep.state,
                "reason": sweep.state_reason,
                "total": sweep.total,
                "done": sweep.done,
                "failed": sweep.failed,
                "left": sweep.left,
            }
            for sweep in (*view.sweeps, *view.others)
        ],
        "notices": [{"id": item.id, "kind": item.kind, "text": item.text} for item in view.notices],
    }


def _problems(view: "LabView") -> Iterator[str]:
    """Yield every problem with what helps."""
    from orchestrator.app.screen.lab_problems import lab_problems

    for item in lab_problems(view):
        yield f"!       {item.subject}: {item.text}{f'; next: {item.fix}' if item.fix else ''}"


def _lines(view: "LabView") -> Iterator[str]:
    counts = ", ".join(f"{count} {state}" for state, count in sorted(_states(view).items()))
    yield f"hosts   {', '.join(sorted(view.hosts)) or 'none; add one with: farm service agent'}"
    yield f"phones  {counts or 'none yet; connect one, or: farm up --virtual'}"
    sweeps = (*view.sweeps, *view.others)
    for sweep in sweeps:
        failed = f", {sweep.failed} failed" if sweep.failed else ""
        state = "" if sweep.state == "active" else f" ({sweep.state})"
        done = f"{sweep.done}/{sweep.total} done{failed}"
        yield f"sweep   {sweep.id} {sweep.name}{state}: {done}"
    if not sweeps:
        yield "sweep   none; submit one with: farm sweep submit FILE"
