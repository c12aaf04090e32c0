"""`farm demo`: runs a lab of virtual phones once."""

import os
import sys
import time
from datetime import datetime
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill

import click

from workloads.units import count_text

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "demo.yaml"
REAL_PHONE = (
    "To use a real phone, enable USB debugging on it, connect it, and run './farm up' and "
    "'./farm phone list'."
)


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder of the lab. Default: ./demo-simulated-DATE-TIME.",
)
@click.option(
    "--speed",
    type=click.FloatRange(1, 1000),
    default=200.0,
    show_default=True,
    help="How many times faster than real time virtual phones run.",
)
def demo(folder: Path | None, speed: float) -> int:
    """Run a sweep on six virtual phones and compare them, cold and hot.

    The phones are simulated, and every number says so. No process is left running.

    Example: farm demo --dir demo-lab
    """
    from orchestrator.commands.exit_codes import FAILURES
    from orchestrator.supervisor.process import stop_on_signals

    stop_on_signals()
    for name in ("FARM_BROKER", "FARM_STORE", "FARM_LAB", "FARM_API"):
        os.environ.pop(name, None)  # the demo has its own broker and store
    folder = folder or Path(f"demo-simulated-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    try:
        missing = _run(folder, speed)
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted. All processes are stopped; results so far are in {folder}.", err=True
        )
        return 130
    _print_results(folder)
    if missing:
        click.echo(
            f"{count_text(missing, 'run')} failed or blocked; see {folder / 'logs'}", err=True
        )
    return FAILURES if missing else 0


def _run(folder: Path, speed: float) -> int:
    """Start the lab, run the sweep and stop the lab; return how many runs are missing."""
    from orchestrator.app.control_sweeps import RunState, find_sweep
    from orchestrator.app.phone_filter import parse_phone_filter
    from orchestrator.app.submit_sweep import submit_sweep
    from orchestrator.commands.tui_actions import ActionHandler
    from orchestrator.supervisor.demo_lab import demo_lab
    from orchestrator.tui.watch_loop import WatchOptions, is_live, run_watch
    from workloads.lab_settings import Lab

    started = time.monotonic()

    def report(text: str) -> None:
        click.echo(f"[{time.monotonic() - started:4.1f} s] {text}", err=True)

    delayed: list[str] = []  # a line of text would overwrite the live screen

    on_restart = delayed.append if is_live() else report
    with demo_lab(Lab.read(folder, {}), speed, report, on_restart=on_restart) as up:
        lab = up.connection
        submission = up.retry(lambda: submit_sweep(lab, EXAMPLE.read_text()))
        sweep = submission.sweep.id
        report(f"submitted {EXAMPLE.name}: {submission.stored.new_runs} runs")
        up.retry(
            lambda: run_watch(
                *(lab, WatchOptions(sweep, "demo")),
                lambda view: up.keep_up() and view.sweeps[0].finished,
                parse_phone_filter,
                ActionHandler(lab),
            )
        )
        for text in delayed:
            report(text)
        report("all runs have ended; stopping all processes")
        runs = up.retry(lambda: find_sweep(lab, sweep).runs)
        return runs.get(RunState.FAILED, 0) + runs.get(RunState.BLOCKED, 0)


def _print_results(folder: Path) -> None:
    """Print the comparison, the findings, the files, and how to connect a real phone."""
    from orchestrator.app.compare_results import fleet_findings
    from orchestrator.app.export_results import all_runs, result_files
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.commands.fleet_view import print_comparison
    from workloads.lab_settings import Lab

    with LabConnection(Lab.read(folder, {})) as lab:
        runs = all_runs(lab, "demo")
        files = result_files(lab, "demo")
    click.echo()
    print_comparison(runs)
    click.echo()
    width = get_terminal_size().columns if sys.stdout.isatty() else 10_000
    for finding in fleet_findings(runs):
        click.echo(fill(finding.sentence, width, initial_indent="- ", subsequent_indent="  "))
    click.echo()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        click.echo(f"{folder / name}")
    click.echo(REAL_PHONE)
