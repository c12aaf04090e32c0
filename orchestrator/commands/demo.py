"""`farm demo`: a whole lab of virtual phones, once, with nothing left running."""

import os
import sys
import time
from datetime import datetime
from io import BytesIO
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill

import click

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "demo.yaml"
REAL_PHONE = (
    "Plug in a real phone: switch on USB debugging, then run './farm up' and "
    "'./farm phone list'; the same agent picks it up."
)


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where everything goes (default: ./demo-simulated-DATE-TIME).",
)
@click.option(
    "--speed",
    type=click.FloatRange(1, 1000),
    default=200.0,
    show_default=True,
    help="Clock of the virtual phones.",
)
def demo(folder: Path | None, speed: float) -> int:
    """Run a sweep on six virtual phones and show who is fastest, cold and hot.

    The phones are simulated, and every number says so. Nothing is left running.
    """
    from orchestrator.commands.exit_codes import FAILURES
    from orchestrator.supervisor.process import stop_on_signals

    stop_on_signals()
    for name in ("FARM_BROKER", "FARM_STORE", "FARM_LAB"):
        os.environ.pop(name, None)  # the demo is a lab of its own, whatever its user works with
    folder = folder or Path(f"demo-simulated-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    try:
        missing = _run(folder, speed)
    except KeyboardInterrupt:
        click.echo(f"Interrupted. All is stopped; what there is so far is in {folder}.", err=True)
        return 130
    _show(folder)
    if missing:
        click.echo(f"{missing} runs failed or are held; see {folder / 'logs'}", err=True)
    return FAILURES if missing else 0


def _run(folder: Path, speed: float) -> int:
    """Bring the lab up, run the sweep and take the lab down; answer how many runs are missing."""
    from orchestrator.app.submit_sweep import submit_sweep
    from orchestrator.commands.tui_actions import ActionHandler
    from orchestrator.commands.watch import read_filter
    from orchestrator.decisions.states import RunState
    from orchestrator.store.sweep_queries import sweep_summaries
    from orchestrator.supervisor.demo_lab import demo_lab
    from orchestrator.tui.watch_loop import WatchOptions, is_live, run_watch
    from workloads.lab_settings import Lab

    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:4.1f} s] {text}", err=True)

    unsaid: list[str] = []  # a line of text would spoil a screen that is being drawn

    tell = unsaid.append if is_live() else say
    with demo_lab(Lab.read(folder, {}), speed, say, tell=tell) as up:
        sent = up.patiently(lambda: submit_sweep(EXAMPLE.read_text(), up.db, up.broker))
        sweep = sent.sweep.id
        say(f"submitted {EXAMPLE.name}: {sent.stored.new_runs} runs")
        wish, hands = WatchOptions(sweep, "demo"), ActionHandler(up.db, up.broker)
        up.patiently(
            lambda: run_watch(
                *(up.db, up.broker, wish),
                lambda view: up.intact() and view.sweeps[0].finished,
                read_filter,
                hands,
            )
        )
        for text in unsaid:
            say(text)
        say("all runs are in; stopping everything")
        runs = up.patiently(lambda: sweep_summaries(up.db, sweep)[0].runs)
        return runs.get(RunState.FAILED, 0) + runs.get(RunState.BLOCKED, 0)


def _show(folder: Path) -> None:
    """The comparison, three sentences, the files, and the way to a real phone."""
    from orchestrator.analysis.findings import fleet_findings
    from orchestrator.commands.export import ranking
    from orchestrator.commands.fleet_view import print_comparison
    from orchestrator.commands.report import page_of_sweep
    from orchestrator.export.table_schemas import paper_table, ranking_table
    from orchestrator.export.table_writers import csv_pieces, write_latex
    from orchestrator.store.database import Database
    from orchestrator.store.results import measured_runs
    from orchestrator.store.sweep_queries import find_sweep, sweep_seed
    from workloads.lab_settings import Lab

    db = Database(Lab.read(folder, {}).store_url)
    sweep = find_sweep(db, "demo")
    runs = measured_runs(db, sweep.id, include_void=True)
    click.echo()
    print_comparison(runs)
    click.echo()
    width = get_terminal_size().columns if sys.stdout.isatty() else 10_000
    for finding in fleet_findings(runs):
        click.echo(fill(finding.sentence, width, initial_indent="- ", subsequent_indent="  "))
    click.echo()
    ranked, paper = ranking(runs), BytesIO()
    write_latex(paper_table(sweep.name, ranked), paper)
    files = {
        "report.html": page_of_sweep(db, sweep).encode(),
        "comparison.csv": b"".join(csv_pieces(ranking_table(sweep_seed(db, sweep.id), ranked))),
        "comparison.tex": paper.getvalue(),
    }
    db.close()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        click.echo(f"{folder / name}")
    click.echo(REAL_PHONE)
