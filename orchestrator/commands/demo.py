"""`farm demo`: runs a lab of virtual phones once."""

import math
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import forget_other_labs, print_paragraph, print_table
from workloads.cli_options import FiniteRange, value_option
from workloads.units import count_text, format_ms

if TYPE_CHECKING:
    from orchestrator.app.control_sweeps import MeasuredRun
    from orchestrator.app.select_clients import ClientTable

WORKLOAD, BATCH, CHOSEN = "mlp-4", 256, 3
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
    type=FiniteRange(1, 1000),
    default=200.0,
    help="Speed of the virtual phones' clocks relative to real time.",
)
def demo(folder: Path | None, speed: float) -> int:
    """Run a sweep on six virtual phones: CPU and GPU, cold and hot, and select clients.

    The phones are simulated, and the output states this; one line is measured on this computer. No
    process is left running.

    Example: farm demo --dir demo-lab
    """
    from orchestrator.commands.exit_codes import FAILURES
    from orchestrator.supervisor.process import stop_on_signals

    stop_on_signals()
    forget_other_labs()
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
    from orchestrator.commands.progress import timed_report
    from orchestrator.commands.tui_actions import ActionHandler
    from orchestrator.supervisor.demo_lab import demo_lab
    from orchestrator.tui.watch_loop import WatchOptions, is_live, run_watch
    from workloads.lab_settings import Lab

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
    """Print the table, one line measured on this computer, the findings and the files."""
    from orchestrator.app.compare_results import fleet_findings
    from orchestrator.app.export_results import all_runs, result_files
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.app.select_clients import WorkloadChoice, read_clients
    from workloads.lab_settings import Lab

    with LabConnection(Lab.read(folder, {})) as lab:
        runs = all_runs(lab, "demo")
        files = result_files(lab, "demo")
        clients = read_clients(lab, WorkloadChoice("demo", batch=BATCH))
    click.echo()
    click.echo(f"SIMULATED values: {WORKLOAD}, batches of {BATCH}, on virtual phones (*: best)")
    print_table(HEADINGS, summary_rows(runs, clients))
    click.echo(_real_line())
    click.echo()
    on_cpu = [run for run in runs if run.case.backend == "cpu"]
    for finding in fleet_findings(on_cpu):
        print_paragraph(finding.sentence, bullet="- ")
    click.echo()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        click.echo(f"{folder / name}")
    click.echo(f"All cells: ./farm sweep show demo --lab {folder}")
    click.echo(REAL_PHONE)


def summary_rows(runs: "Sequence[MeasuredRun]", clients: "ClientTable") -> list[tuple[str, ...]]:
    """Return a row per phone: CPU and GPU, cold and hot, heat, energy, and whether it is chosen."""
    from orchestrator.app.select_clients import LocalWork, RoundRequest, choose_clients

    advice = choose_clients(clients, "frugal", RoundRequest(CHOSEN), LocalWork(), seed=0)
    chosen = {choice.client.phone for choice in advice.chosen}
    models = {run.phone: run.facts.model for run in runs}
    values = {
        (phone, column): _median(runs, phone, *settings)
        for phone in models
        for column, settings in enumerate(COLUMNS)
    }
    columns = range(len(COLUMNS))
    best = [
        min((v for p in models if (v := values[p, column]) is not None), default=None)
        for column in columns
    ]
    by_speed = sorted(models, key=lambda phone: values[phone, 0] or math.inf)
    return [
        (
            models[phone],
            *(_cell(values[phone, column], best[column]) for column in columns),
            "chosen" if phone in chosen else "",
        )
        for phone in by_speed
    ]


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
    from kernels.harness.engine_run import engine_step
    from workloads.protocol.faults import FarmError

    threads = os.cpu_count() or 1
    try:
        with engine_step(WORKLOAD, BATCH, threads) as step:
            milliseconds = 1000 * min(step.seconds(REAL_STEPS) for _ in range(3))
    except (FarmError, OSError) as error:
        return f"Not measured on this computer: {error}"
    value = f"{format_ms(milliseconds)} ms per step with {count_text(threads, 'thread')}"
    return f"MEASURED: the same training on this computer, now: {value} (source: host)"
