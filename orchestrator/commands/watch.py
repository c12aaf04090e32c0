"""`farm watch`: follow the lab live."""

from pathlib import Path

import click

from orchestrator.commands.common import lab_option, open_broker, open_store, read_lab


@click.command()
@click.argument("name", metavar="[SWEEP]", required=False)
@lab_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option("--exit-status", is_flag=True, help="Exit with 5 if any run failed.")
def watch(name: str | None, lab_folder: Path, as_json: bool, exit_status: bool) -> int:
    """Follow the lab, or one SWEEP until it is finished.

    Leaving with Ctrl-C leaves the sweep running.
    """
    from orchestrator.exits import FAILURES
    from orchestrator.store.queries import find_sweep
    from orchestrator.tui.follow import follow, follow_json

    lab = read_lab(lab_folder)
    db, broker = open_store(lab), open_broker(lab)
    sweep = find_sweep(db, name).id if name else None
    show = follow_json if as_json else follow
    try:
        view = show(db, broker, sweep, lambda view: bool(sweep) and view.sweeps[0].finished)
    except KeyboardInterrupt:
        click.echo("Left the screen; the lab goes on.", err=True)
        return 130
    return FAILURES if exit_status and any(item.failed for item in view.sweeps) else 0
