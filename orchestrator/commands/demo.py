"""`farm demo`: runs a lab of virtual phones once."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import forget_other_labs, print_paragraph, print_table
from workloads.cli_options import EVENTS, PhoneSpeed, value_option
from workloads.command_output import say
from workloads.protocol.verdict import Validity
from workloads.units import count_text, format_ms

if TYPE_CHECKING:
    from orchestrator.app.control_sweeps import MeasuredRun, SweepSummary
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.supervisor.demo_lab import DemoLab

PHONES = (  # three that tie when cold, two that heat hardly slows, and one whose trace was recorded
    *("google-pixel-6", "xiaomi-mi-9", "huawei-mate-30", "meizu-16t", "redmi-note-9-pro"),
    "samsung-s8-plus",
)
TITLE = (
    "SIMULATED: all of this table comes from models of phones, whose error is not known here. "
    "Training of mlp-4, batches of 256 (*: best)"
)
HEADINGS = (
    *("PHONE", "CPU COLD, ms/step", "CPU AFTER 10 MIN, ms/step", "GPU COLD, ms/step"),
    *("PEAK, °C", "ENERGY, mJ/sample", "FEDERATED ROUND"),
)
COLUMNS = (  # backend, protocol, metric
    ("cpu", "cold", "step_ms"),
    ("cpu", "endurance", "last_minute_step_ms"),
    ("opencl", "cold", "step_ms"),
    ("cpu", "endurance", "peak_temp_c"),
    ("cpu", "endurance", "energy_per_sample_mj"),
)
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "demo.yaml"
HOST_SWEEP = """\
farm: 1
name: this-computer
workload: {{use: mlp-4, with: {{batch_size: 256}}}}
phones: [NATIVE*]
conditions: {{cores: all{cores}, freq: free, start_temp_max_c: any, time_min: 3s}}
repeat: 1
retry: {{phone: 1, condition: 1}}
"""
HOST_CORES_MAX = 8
HOST_TIMEOUT_S = 120.0  # so long that a busy computer does not reach it
HOST_POLL_S = 0.1
NEXT = (
    "Next:",
    "  farm up --virtual --speed 100    a lab of virtual phones to try, see docs/tutorial.md",
    "  farm phone try                   your phone: turn on USB debugging and connect it first",
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
    """Ask six virtual phones: which trains fastest, and does it stay fastest for ten minutes?

    The phones are simulated, and the output says so. At the end the same training runs on this
    computer and gets a verdict. No process is left running. The key q ends the demo early: it
    prints what was measured so far, and exits with 5.

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
        models, host_line = _run(folder, speed)
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted. All processes are stopped; results so far are in {folder}.", err=True
        )
        return 130
    with LabConnection(Lab.read(folder, {})) as lab:
        sweep = find_sweep(lab, "demo")
        if sweep.ended:
            _print_results(lab, folder, sweep, models, host_line)
        else:
            click.echo("No run has ended, so there are no results.", err=True)
    failed = sweep.missing - sweep.unended
    if failed:
        click.echo(
            f"{count_text(failed, 'run')} failed or blocked; see {folder / 'logs'}", err=True
        )
    return FAILURES if sweep.missing else 0


def _run(folder: Path, speed: float) -> tuple[dict[str, str], str]:
    """Run the sweep in a lab of its own, and once on this computer.

    Return the model of every phone, and the line about this computer.
    """
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
    with demo_lab(Lab.read(folder, {}), speed, report, PHONES, on_restart) as up:
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
        summary = up.retry(lambda: find_sweep(lab, sweep))
        host_line = ""
        if not summary.unended:
            report("training the same on this computer for 3 s")
            host_line = _measure_this_computer(up)
        report(f"{end_text(summary)}; stopping all processes")
        return models, host_line


def _measure_this_computer(up: "DemoLab") -> str:
    """Run the same training on this computer like on any phone; return what came of it."""
    from orchestrator.app.control_sweeps import find_sweep
    from orchestrator.app.export_results import all_runs
    from orchestrator.app.submit_sweep import submit_sweep
    from orchestrator.supervisor.demo_lab import this_computer, wait_for_phones
    from workloads.protocol.faults import FarmError

    if not hasattr(os, "sched_getaffinity"):
        return "Not measured on this computer: only Linux can be used as a phone."
    cores = min(len(os.sched_getaffinity(0)), HOST_CORES_MAX)
    lab, deadline = up.connection, time.monotonic() + HOST_TIMEOUT_S
    try:
        with this_computer(up):
            wait_for_phones(up, len(PHONES) + 1)
            sweep = submit_sweep(lab, HOST_SWEEP.format(cores=cores)).sweep.id
            while not find_sweep(lab, sweep).finished and time.monotonic() < deadline:
                up.keep_up()
                time.sleep(HOST_POLL_S)
            return host_text(all_runs(lab, sweep), cores)
    except (FarmError, OSError) as error:
        return f"Not measured on this computer: {error}"


def host_text(runs: "Sequence[MeasuredRun]", cores: int) -> str:
    """Say how fast this computer was, and whether the number can be trusted."""
    if not runs:
        return "Not measured on this computer: its run has no result."
    run = runs[-1]
    step = run.metrics.get("step_ms")
    shown = f"{format_ms(step.value)} ms per step" if step else "no step time"
    objections = [each for each in run.verdict.reasons if each.validity is not Validity.VALID]
    why = f": {objections[0].text}" if objections else ""
    return (
        f"MEASURED: the same training on this computer, now: {shown} on "
        f"{count_text(cores, 'core')} (source: host). Verdict: {run.verdict.validity}{why}."
    )


def end_text(sweep: "SweepSummary") -> str:
    """Say how the sweep ended, or how far it was when the user left."""
    if not sweep.unended:
        return "all runs have ended"
    how = "left" if sweep.left else "cancelled"
    return f"{how} at {sweep.ended} of {count_text(sweep.total, 'run')}"


def _print_results(
    lab: "LabConnection", folder: Path, sweep: "SweepSummary", models: dict[str, str], host: str
) -> None:
    """Print the table, what follows from it, the line about this computer and the files."""
    from orchestrator.app.compare_results import fleet_sentences, phone_figures, round_of
    from orchestrator.app.export_results import all_runs, result_files

    runs, files = all_runs(lab, "demo"), result_files(lab, "demo")
    fleet = phone_figures([run for run in runs if run.case.backend == "cpu"])
    click.echo()
    if sweep.unended:
        ended = f"by now {sweep.ended} of {count_text(sweep.total, 'run')} have ended"
        print_paragraph(f"INCOMPLETE: {ended}. All values and conclusions come from these.")
    print_paragraph(TITLE)
    print_table(HEADINGS, summary_rows(runs, models, [one.phone for one in round_of(fleet)]))
    click.echo()
    for sentence in fleet_sentences(fleet):
        print_paragraph(sentence, bullet="- ")
    click.echo()
    if host:
        print_paragraph(host)
        click.echo()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        click.echo(f"{folder / name}")
    say(f"All cells: farm sweep show demo --lab {folder}")
    say("\n".join(NEXT))


def summary_rows(
    runs: "Sequence[MeasuredRun]", models: Mapping[str, str], chosen: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return a row per phone: cold, hot, on the GPU, heat, energy, and whether it is chosen."""
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
        and run.counts(metric)
    ]
    return median(found) if found else None


def _cell(value: float | None, best: float | None) -> str:
    return "-" if value is None else f"{format_ms(value)}{' *' * (value == best)}"
