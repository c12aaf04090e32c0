"""`farm trends`: whether a phone has become slower, or faster, and since when."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from orchestrator.commands.exit_codes import THRESHOLD_EXCEEDED

if TYPE_CHECKING:
    from orchestrator.analysis.trend import MetricHistory


@click.command()
@click.argument("wanted", metavar="[KEY=VALUE,...]", default="")
@lab_option
@click.option("--metric", default="", help="A figure of 'farm metrics'; else what each run is for.")
@click.option("--fail-on", type=click.Choice(["slower", "faster"]), help="Leave with code 9 on it.")
@json_option
def trends(wanted: str, lab_folder: Path, metric: str, fail_on: str | None, as_json: bool) -> int:
    """Show every phone and workload over time, through all sweeps, and where it took a step.

    KEY=VALUE narrows it down: phone=..., workload=..., cores=..., batch_size=... as in 'compare'.
    """
    from orchestrator.analysis.measurements import NothingMatches
    from orchestrator.analysis.side_filter import parse_side, why_no_match
    from orchestrator.analysis.trend import metric_histories
    from orchestrator.analysis.trial_series import group_by_trial
    from orchestrator.store.metric_rows import metric_values
    from workloads.protocol.faults import InvalidRequest

    if wanted and "=" not in wanted:
        raise InvalidRequest(f"'{wanted}' is not KEY=VALUE; trends go through all sweeps")
    trials = group_by_trial(metric_values(open_store(read_lab(lab_folder)), metric))
    if wanted:
        side, every = parse_side(wanted), trials
        trials = [trial for trial in every if side.matches(trial)]
        if not trials:
            raise NothingMatches(why_no_match(side, every))
    found = metric_histories(trial for trial in trials if trial.values)
    if not found:
        raise NothingMatches("there is no valid run in this lab yet")
    if as_json:
        print_json([asdict(history) for history in found])
    else:
        _print(found)
    last = [history.changes[-1].verdict for history in found if history.changes]
    return THRESHOLD_EXCEEDED if fail_on in last else 0


def _print(found: "list[MetricHistory]") -> None:
    from orchestrator.analysis.stats import median
    from orchestrator.analysis.trend import RUNS_PER_SIDE
    from workloads.units import format_ms

    headings = ("PHONE", "WHAT", "FIGURE", "SWEEPS", "RUNS", "MEDIAN", "SINCE", "CHANGE", "SOURCE")
    rows = []
    for each in found:
        about = [
            f"{each.model} ({each.phone})",
            f"{each.case}, {each.condition}",
            each.metric,
            each.sweeps,
            len(each.values),
        ]
        if not each.changes:
            enough = len(each.values) >= 2 * RUNS_PER_SIDE
            still = "steady" if enough else f"fewer than {2 * RUNS_PER_SIDE} runs"
            since = f"{each.times[0]:%Y-%m-%d %H:%M}"
            rows.append([*about, format_ms(median(each.values)), since, still, each.kind.source])
        for step in each.changes:
            change = f"{step.verdict}: {step.ratio - 1:+.1%} (p {max(step.p, 0.001):.3f})"
            since = f"{step.started_at:%Y-%m-%d %H:%M}"
            rows.append([*about, format_ms(step.after), since, change, each.kind.source])
    print_table(headings, rows)
