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
from orchestrator.exits import TRIPPED

if TYPE_CHECKING:
    from orchestrator.analysis.trend import History


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
    from orchestrator.analysis.figures import gathered
    from orchestrator.analysis.refusals import NothingMatches
    from orchestrator.analysis.selector import read_selector, why_none
    from orchestrator.analysis.trend import histories
    from orchestrator.store.measured import figures
    from workloads.fault import Refused

    if wanted and "=" not in wanted:
        raise Refused(f"'{wanted}' is not KEY=VALUE; trends go through all sweeps")
    trials = gathered(figures(open_store(read_lab(lab_folder)), metric))
    if wanted:
        side, every = read_selector(wanted), trials
        trials = [trial for trial in every if side.matches(trial)]
        if not trials:
            raise NothingMatches(why_none(side, every))
    found = histories(trial for trial in trials if trial.values)
    if not found:
        raise NothingMatches("there is no valid run in this lab yet")
    if as_json:
        print_json([asdict(history) for history in found])
    else:
        _print(found)
    last = [history.steps[-1].verdict for history in found if history.steps]
    return TRIPPED if fail_on in last else 0


def _print(found: "list[History]") -> None:
    from orchestrator.analysis.stats import median
    from orchestrator.analysis.trend import RUNS_A_SIDE
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
        if not each.steps:
            enough = len(each.values) >= 2 * RUNS_A_SIDE
            still = "steady" if enough else f"fewer than {2 * RUNS_A_SIDE} runs"
            since = f"{each.times[0]:%Y-%m-%d %H:%M}"
            rows.append([*about, format_ms(median(each.values)), since, still, each.making.source])
        for step in each.steps:
            change = f"{step.verdict}: {step.ratio - 1:+.1%} (p {max(step.p, 0.001):.3f})"
            since = f"{step.at:%Y-%m-%d %H:%M}"
            rows.append([*about, format_ms(step.after), since, change, each.making.source])
    print_table(headings, rows)
