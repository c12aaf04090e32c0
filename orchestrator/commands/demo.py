"""`farm demo`: runs a lab of virtual phones once."""

import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import forget_other_labs, print_paragraph, print_table
from workloads.cli_options import EVENTS, PhoneSpeed, value_option
from workloads.units import count_text, format_ms

if TYPE_CHECKING:
    from orchestrator.app.control_sweeps import MeasuredRun, SweepSummary
    from orchestrator.app.lab_connection import LabConnection

WORKLOAD, BATCH = "mlp-4", 256
REAL_STEPS = 100
HEADINGS = (
    *("PHONE", "CPU, COLD: ms/step", "GPU, COLD: ms/step", "CPU AFTER 10 MIN: ms/step"),
    *("HEAT: peak °C", "ENERGY: mJ/sample", "FEDERATED ROUND"),
)
COLUMNS = (  # backend, protocol, metric
    ("cpu", "cold", "step_ms"),
    ("opencl", "cold", "step_ms"),
    ("cpu", "endurance", "last_minute_step_ms"),
    ("cpu", "endurance", "peak_temp_c"),
    ("cpu", "endurance", "energy_per_sample_mj"),
)
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
@value_option(
    "--speed",
    type=PhoneSpeed(1, 1000),
    metavar="N|events",
    default=EVENTS,
    help="Speed of the virtual phones' clocks relative to real time, or as fast as possible.",
)
def demo(folder: Path | None, speed: float) -> int:
    """Run a sweep on six virtual phones: CPU and GPU, cold and hot, and select clients.

    The phones are simulated, and the output states this; one line is measured on this computer. No
    process is left running. The key q ends the demo early: it prints what was measured so far, and
    exits with 5.

    Example: farm demo --dir demo-lab
    """
    from orchestrator.app.control_sweeps import find_sweep
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.commands.exit_codes import FAILURES
    from orchestrator.supervisor.process import stop_on_signals
    from workloads.lab.settings import Lab

    stop_on_signals()
    forget_other_labs()
    folder = folder or Path(f"demo-simulated-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    try:
        models = _run(folder, speed)
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted. All processes are stopped; results so far are in {folder}.", err=True
        )
        return 130
    with LabConnection(Lab.read(folder, {})) as lab:
        sweep = find_sweep(lab, "demo")
        if sweep.ended:
            _print_results(lab, folder, sweep, models)
        else:
            click.echo("No run has ended, so there are no results.", err=True)
    failed = sweep.missing - sweep.unended
    if failed:
        click.echo(
            f"{count_text(failed, 'run')} failed or blocked; see {folder / 'logs'}", err=True
        )
    return FAILURES if sweep.missing else 0


def _run(folder: Path, speed: float) -> dict[str, str]:
    """Start the lab, run the sweep and stop the lab; return the model of every phone."""
    from orchestrator.app.control_phones import list_phones
    from orchestrator.app.control_sweeps import find_sweep
    from orchestrator.app.submit_sweep import submit_sweep
    from orchestrator.commands.progress import timed_report
    from orchestrator.supervisor.demo_lab import demo_lab
    from orchestrator.tui.watch_loop import WatchOptions, is_live, run_watch
    from workloads.lab.settings import Lab

    report = timed_report()
    delayed: list[str] = []  # a line of text would overwrite the live screen
    on_restart = delayed.append if is_live() else report
    with demo_lab(Lab.read(folder, {}), speed, report, on_restart=on_restart) as up:
        lab = up.connection
        submission = up.retry(lambda: submit_sweep(lab, EXAMPLE.read_text()))
        sweep = submission.sweep.id
        report(f"submitted {EXAMPLE.name}: {submission.stored.new_runs} runs")
        up.retry(
            lambda: run_watch(
                lab,
                WatchOptions(sweep, "demo"),
                lambda view: up.keep_up() and view.sweeps[0].finished,
            )
        )
        for text in delayed:
            report(text)
        models = {each.serial: each.facts.model for each in up.retry(lambda: list_phones(lab))}
        report(f"{end_text(up.retry(lambda: find_sweep(lab, sweep)))}; stopping all processes")
        return models


def end_text(sweep: "SweepSummary") -> str:
    """Say how the sweep ended, or how far it was when the user left."""
    if not sweep.unended:
        return "all runs have ended"
    how = "left" if sweep.left else "cancelled"
    return f"{how} at {sweep.ended} of {count_text(sweep.total, 'run')}"


def _print_results(
    lab: "LabConnection", folder: Path, sweep: "SweepSummary", models: dict[str, str]
) -> None:
    """Print the table, one line measured on this computer, the findings and the files."""
    from orchestrator.app.compare_results import fleet_findings
    from orchestrator.app.export_results import all_runs, result_files

    runs, files = all_runs(lab, "demo"), result_files(lab, "demo")
    findings = fleet_findings([run for run in runs if run.case.backend == "cpu"])
    click.echo()
    if sweep.unended:
        ended = f"by now {sweep.ended} of {count_text(sweep.total, 'run')} have ended"
        print_paragraph(f"INCOMPLETE: {ended}. All values and conclusions come from these.")
    click.echo(f"SIMULATED values: {WORKLOAD}, batches of {BATCH}, on virtual phones (*: best)")
    print_table(HEADINGS, summary_rows(runs, models, findings[-1].chosen))
    click.echo(_real_line())
    click.echo()
    for finding in findings:
        print_paragraph(finding.sentence, bullet="- ")
    click.echo()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        click.echo(f"{folder / name}")
    click.echo(f"All cells: ./farm sweep show demo --lab {folder}")
    click.echo(REAL_PHONE)


def summary_rows(
    runs: "Sequence[MeasuredRun]", models: Mapping[str, str], chosen: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return a row per phone: CPU and GPU, cold and hot, heat, energy, and whether it is chosen."""
    columns = range(len(COLUMNS))
    values = {
        (phone, column): _median(runs, phone, *COLUMNS[column])
        for phone in models
        for column in columns
    }
    best = [_best([values[phone, column] for phone in models]) for column in columns]
    by_speed = sorted(models, key=lambda phone: (values[phone, 0] or math.inf, models[phone]))
    return [
        (
            models[phone],
            *(_cell(values[phone, column], best[column]) for column in columns),
            "chosen" if phone in chosen else "",
        )
        for phone in by_speed
    ]


def _best(values: Sequence[float | None]) -> float | None:
    """Return the lowest value; None if one is alone, or if a missing one might be lower."""
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) > 1 else None


def _median(
    runs: "Sequence[MeasuredRun]", phone: str, backend: str, protocol: str, metric: str
) -> float | None:
    found = [
        run.metrics[metric].value
        for run in runs
        if (run.phone, run.case.backend, run.condition.protocol) == (phone, backend, protocol)
        and run.case.parameters["batch_size"] == BATCH
        and run.valid
        and metric in run.metrics
    ]
    return median(found) if found else None


def _cell(value: float | None, best: float | None) -> str:
    return "-" if value is None else f"{format_ms(value)}{' *' * (value == best)}"


def _real_line() -> str:
    """Measure the same training on this computer; return the line to print."""
    from kernels.harness.local_runner import open_runner
    from workloads.catalogue import bind, lower
    from workloads.protocol.faults import FarmError

    threads = os.cpu_count() or 1
    try:
        plan = lower(bind(WORKLOAD, {"batch_size": BATCH}), threads)
        with open_runner() as runner:
            milliseconds = 1000 * min(runner.run(plan, REAL_STEPS).step_s for _ in range(3))
    except (FarmError, OSError) as error:
        return f"Not measured on this computer: {error}"
    value = f"{format_ms(milliseconds)} ms per step with {count_text(threads, 'thread')}"
    return f"MEASURED: the same training on this computer, now: {value} (source: host)"
