"""`farm sweep feasible`: which phones can train a language model in time, with how much energy."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json, print_list
from orchestrator.commands.completion import complete_sweep
from workloads.cli_options import FiniteRange
from workloads.text import safe_text
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.assess_training import TrainingForecast

HEADINGS = (
    *("PHONE", "MODEL", "CASE", "FEASIBLE", "MEMORY", "TOKENS/S", "HOURS", "ENERGY"),
    *("INTERRUPTED", "LOSS", "SOURCE"),
)
_ANSWERS = {
    "yes": "yes",
    "too_slow": "no: too slow",
    "too_large": "no: too large",
    "not_survived": "no: it is killed",
    "not_text": "not a language model",
    "not_measured": "not measured",
}


@click.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@click.option(
    "--hours",
    type=FiniteRange(0, 100_000, min_open=True),
    default=8.0,
    show_default=True,
    help="How long the training may take.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1, 10**15),
    help="Tokens to train. Default: the sweep's token_budget.",
)
@lab_option
@json_option
def feasible(name: str, hours: float, tokens: int | None, lab_folder: Path, as_json: bool) -> int:
    """Show which phones of a SWEEP can train a model in time.

    One row per phone and case: peak memory as a share of the phone's available memory, tokens per
    second in the last minute, and the hours and energy that the token budget takes at that speed.

    \b
    Examples:
      farm sweep feasible overnight
      farm sweep feasible overnight --hours 10 --tokens 20000000
    """
    from orchestrator.app.assess_training import assess_training

    answer = assess_training(connect(lab_folder), name, hours, tokens)
    if as_json:
        print_json(asdict(answer))
        return 0
    names = {(item.phone, _workload(item)) for item in answer.forecasts}
    is_short = len(names) == len(answer.forecasts)  # the workload alone tells the cases apart
    rows = [_cells(item, answer.tokens, is_short) for item in answer.forecasts]
    code = print_list(HEADINGS, rows, "this sweep has no runs")
    able = {item.phone for item in answer.forecasts if item.feasibility == "yes"}
    phones = count_text(len({item.phone for item in answer.forecasts}), "phone")
    click.echo(
        f"{len(able)} of {phones} can train {answer.tokens:,} tokens within {hours:g} h in at "
        "least one case. Memory is a share of the available memory of the phone; hours and energy "
        "are extrapolated.",
        err=True,
    )
    return code


def _workload(item: "TrainingForecast") -> str:
    return item.case.partition(" ")[0]


def _cells(item: "TrainingForecast", budget: int, is_short: bool) -> tuple[str, ...]:
    case = _workload(item) if is_short else item.case
    note = f": {safe_text(item.note, 200)}" if item.note else ""
    lost = f", {item.lost_s:.0f} s lost" if item.lost_s is not None else ""
    return (
        *(item.phone, item.model, case, _ANSWERS[item.feasibility] + note),
        "" if item.memory_share is None else f"{100 * item.memory_share:.1f} %",
        "" if item.tokens_per_s is None else f"{item.tokens_per_s:,.0f}",
        "" if item.hours is None else f"{item.hours:.1f}",
        _energy_text(item),
        f"{count_text(item.interruptions, 'time')}{lost}" if item.interruptions else "never",
        _loss_text(item, budget),
        item.source,
    )


def _energy_text(item: "TrainingForecast") -> str:
    if item.hours is None:
        return ""
    return "no meter" if item.energy_j is None else f"{item.energy_j / 1000:,.1f} kJ"


def _loss_text(item: "TrainingForecast", budget: int) -> str:
    """Return the loss at the budget, or why there is none."""
    if item.hours is None:
        return ""
    if item.loss is not None:
        return f"{item.loss:.3g}"
    if not item.has_loss:
        return "none: a virtual phone does not train" if item.simulated else "none reported"
    return f"after {item.tokens_trained or 0:,.0f} of {budget:,} tokens: not reached"
