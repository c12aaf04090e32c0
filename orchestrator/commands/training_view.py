"""`farm sweep feasible`: which phones can train a language model in time, with how much energy."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    connect,
    json_option,
    lab_option,
    print_json,
    print_list,
    wide_option,
)
from orchestrator.commands.completion import complete_sweep
from workloads.cli_options import DurationUpTo, value_option
from workloads.text import safe_text
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.assess_training import TrainingForecast

HEADINGS = (
    *("PHONE", "MODEL", "CASE", "FEASIBLE", "MEMORY", "TOKENS/S", "HOURS", "ENERGY"),
    *("INTERRUPTED", "LOSS", "SOURCE"),
)
HIDE = ("SOURCE", "LOSS", "INTERRUPTED", "TOKENS/S", "ENERGY", "PHONE", "MEMORY")
TRAINING_MAX_S = 100_000 * 3600.0
_ANSWERS = {
    "yes": "yes",
    "too_slow": "no: too slow",
    "too_large": "no: too large",
    "not_survived": "no: it is killed",
    "not_text": "not a language model",
    "not_training": "not a training",
    "not_measured": "not measured",
}


@click.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@value_option(
    "--within",
    "limit_s",
    type=DurationUpTo(TRAINING_MAX_S),
    default="8h",
    help="How long the training may take.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1, 10**15),
    help="Tokens to train. Default: the sweep's token_budget.",
)
@wide_option
@lab_option
@json_option
def feasible(name: str, limit_s: float, tokens: int | None, lab_folder: Path, as_json: bool) -> int:
    """Show which phones of a SWEEP can train a model in time.

    One row per phone and case: peak memory as a share of the phone's available memory, tokens per
    second in the last minute, and the hours and energy that the token budget takes at that speed.

    \b
    Examples:
      farm sweep feasible overnight
      farm sweep feasible overnight --within 10h --tokens 20000000
    """
    from orchestrator.app.assess_training import assess_training

    hours = limit_s / 3600
    answer = assess_training(connect(lab_folder), name, hours, tokens)
    if as_json:
        print_json(asdict(answer))
        return 0
    rows = [_cells(item, answer.tokens) for item in answer.forecasts]
    code = print_list(HEADINGS, rows, "this sweep has no runs", hide=HIDE)
    able = {item.phone for item in answer.forecasts if item.feasibility == "yes"}
    phones = count_text(len({item.phone for item in answer.forecasts}), "phone")
    click.echo(
        f"{len(able)} of {phones} can train {answer.tokens:,} tokens within {hours:g} h in at "
        "least one case. Memory is a share of the available memory of the phone; hours and energy "
        "are extrapolated.",
        err=True,
    )
    return code


def _cells(item: "TrainingForecast", budget: int) -> tuple[str, ...]:
    return (
        *(item.phone, item.model, item.case, _answer_text(item)),
        "" if item.memory_share is None else f"{100 * item.memory_share:.1f} %",
        "" if item.tokens_per_s is None else f"{item.tokens_per_s:,.0f}",
        "" if item.hours is None else f"{item.hours:.1f}",
        _energy_text(item),
        _interruptions_text(item),
        _loss_text(item, budget),
        item.source,
    )


def _answer_text(item: "TrainingForecast") -> str:
    is_some = item.feasibility == "not_survived" and item.runs_lost < item.runs
    some = f" in {item.runs_lost} of {item.runs} runs" if is_some else ""
    note = f": {safe_text(item.note, 200)}" if item.note else ""
    return _ANSWERS[item.feasibility] + some + note


def _interruptions_text(item: "TrainingForecast") -> str:
    if not item.interruptions:
        return "" if item.hours is None else "never"
    last = " by the last" if item.interruptions > 1 else ""
    lost = "" if item.lost_s is None else f", {item.lost_s:.0f} s lost{last}"
    since = "" if item.measured_s is None else f", {item.measured_s / 60:.1f} min measured since"
    return count_text(item.interruptions, "time") + lost + since


def _energy_text(item: "TrainingForecast") -> str:
    if item.hours is None:
        return ""
    return "not measured" if item.energy_j is None else f"{item.energy_j / 1000:,.1f} kJ"


def _loss_text(item: "TrainingForecast", budget: int) -> str:
    """Return the loss at the budget, or why there is none."""
    if item.hours is None:
        return ""
    if item.loss is not None:
        return f"{item.loss:.3g}"
    if not item.has_loss:
        return "none: a virtual phone does not train" if item.simulated else "none reported"
    if (item.tokens_trained or 0) >= budget:
        return "reached, but not recorded"
    return f"after {item.tokens_trained or 0:,.0f} of {budget:,} tokens: not reached"
