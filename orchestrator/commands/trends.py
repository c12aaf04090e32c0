"""`farm trends`: shows which phones became slower or faster, and since when."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json, print_table
from orchestrator.commands.compare import metric_option
from orchestrator.commands.exit_codes import THRESHOLD_EXCEEDED

if TYPE_CHECKING:
    from orchestrator.app.compare_results import MetricHistory


@click.command()
@click.argument("filter_text", metavar="[KEY=VALUE,...]", default="")
@lab_option
@metric_option
@click.option(
    "--fail-on",
    type=click.Choice(["slower", "faster"]),
    help="Exit with 9 if the latest change of any row is slower (or faster).",
)
@json_option
def trends(
    filter_text: str, lab_folder: Path, metric: str, fail_on: str | None, as_json: bool
) -> int:
    """Show every phone and workload over all sweeps, with the times of changes.

    KEY=VALUE selects rows: phone=..., workload=..., cores=..., batch_size=... as in 'farm compare'.

    Example: farm trends workload=lenet --fail-on slower
    """
    from orchestrator.app.compare_results import list_trends

    histories = list_trends(connect(lab_folder), filter_text, metric)
    if as_json:
        print_json([asdict(history) for history in histories])
    else:
        _print(histories)
    last = [history.changes[-1].verdict for history in histories if history.changes]
    return THRESHOLD_EXCEEDED if fail_on in last else 0


def _print(histories: "list[MetricHistory]") -> None:
    from orchestrator.app.compare_results import RUNS_PER_SIDE, median
    from workloads.units import format_ms

    headings = ("PHONE", "WHAT", "METRIC", "SWEEPS", "RUNS", "MEDIAN", "SINCE", "CHANGE", "SOURCE")
    rows = []
    for history in histories:
        row = [
            f"{history.model} ({history.phone})",
            f"{history.case}, {history.condition}",
            history.metric,
            history.sweeps,
            len(history.values),
        ]
        source = history.kind.source
        if not history.changes:
            enough = len(history.values) >= 2 * RUNS_PER_SIDE
            change = "steady" if enough else f"fewer than {2 * RUNS_PER_SIDE} runs"
            since = f"{history.times[0]:%Y-%m-%d %H:%M}"
            rows.append([*row, format_ms(median(history.values)), since, change, source])
        for step in history.changes:
            change = f"{step.verdict}: {step.ratio - 1:+.1%} (p {max(step.p, 0.001):.3f})"
            since = f"{step.started_at:%Y-%m-%d %H:%M}"
            rows.append([*row, format_ms(step.after), since, change, source])
    print_table(headings, rows)
