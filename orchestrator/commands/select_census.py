"""Which sweep, workload and batch are meant: what every verb of `farm select` asks first."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import lab_option, open_store, read_lab
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.analysis.measurements import RunOutcome
    from orchestrator.selection.client_types import ClientTable, ExcludedClient

POLICY_NAMES = ("random", "fastest", "fastest-sustained", "fedcs", "tifl", "oort", "frugal")

_case_options = (
    click.argument("name", metavar="SWEEP"),
    lab_option,
    click.option("--workload", help="Which one, where the sweep has several."),
    click.option("--batch", type=click.IntRange(1), help="Which batch size."),
    click.option("--mix", is_flag=True, help="Hold also phones together that were held unlike."),
)
link_option = click.option(
    "--link-s",
    "link_s",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds that a phone takes to fetch the model and send its update.",
)
deadline_option = click.option(
    "--deadline", type=click.FloatRange(0, min_open=True), help="Of a round, seconds."
)


def of_a_sweep(command: click.decorators.FC) -> click.decorators.FC:
    """Let a command be about one workload of one sweep."""
    for option in reversed(_case_options):
        command = option(command)
    return command


def census_of(
    name: str, lab_folder: Path, workload: str | None, batch: int | None, mix: bool
) -> "ClientTable":
    """Read a sweep's clients; refuse where there is none, and say why."""
    from dataclasses import replace

    from orchestrator.selection.client_table import build_client_table
    from orchestrator.store.results import measured_runs, run_outcomes
    from orchestrator.store.sweep_queries import find_sweep, phones_of_sweep

    db = open_store(read_lab(lab_folder))
    sweep = find_sweep(db, name)
    runs = measured_runs(db, sweep.id, include_void=True)
    census = build_client_table(runs, workload, batch, mix)
    if silent := phones_of_sweep(db, sweep.id) - {run.phone for run in runs}:
        why = _why_silent(silent, run_outcomes(db, sweep.id), census)
        census = replace(census, left_out=(*census.left_out, *why))
    if not census.clients:
        reasons = "; ".join(f"{item.phone}: {item.text}" for item in census.left_out)
        raise InvalidRequest(f"no phone can be chosen: {reasons}")
    return census


def _why_silent(
    silent: "frozenset[str]", outcomes: "Iterable[RunOutcome]", census: "ClientTable"
) -> "list[ExcludedClient]":
    """Say why phones without any result have none."""
    from orchestrator.selection.client_types import ClientExclusion, ExcludedClient

    of_this = (census.workload, census.batch)
    found = {
        outcome.phone: outcome.memory_outcome or outcome.note or f"its runs are {outcome.state}"
        for outcome in outcomes
        if outcome.phone in silent
        and of_this == (outcome.case.workload, outcome.case.parameters.get("batch_size", 1))
    }
    return [
        ExcludedClient(phone, ClientExclusion.NO_RESULT, text)
        for phone, text in sorted(found.items())
    ]
