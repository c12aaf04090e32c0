"""Shell completion of sweeps, phones, workloads and studies; `farm help completion` sets it up."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection


def complete_sweep(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the ids and names of the newest sweeps; nothing if the lab is down."""
    from orchestrator.app.lab_status import read_lab_status
    from workloads.protocol.faults import FarmError

    try:
        view = read_lab_status(_connect(ctx), with_progress=False)
    except FarmError:
        return []
    return [
        CompletionItem(name, help=f"{sweep.done}/{sweep.total} runs")
        for sweep in (*view.sweeps, *view.others)
        for name in (sweep.id, sweep.name)
        if name.startswith(prefix)
    ]


def complete_phone(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the serial numbers of connected phones; nothing if the lab is down."""
    from orchestrator.app.read_status import list_connected_phones
    from workloads.protocol.faults import FarmError

    try:
        serials = sorted(phone.serial for phone in list_connected_phones(_connect(ctx)))
    except FarmError:
        return []
    return [CompletionItem(serial) for serial in serials if serial.startswith(prefix)]


def complete_workload(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the names of workloads."""
    from workloads.catalogue import CATALOGUE

    return [
        CompletionItem(name, help=item.text)
        for name, item in CATALOGUE.items()
        if name.startswith(prefix)
    ]


def complete_study(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the names of studies."""
    from orchestrator.app.run_study import all_studies

    return [CompletionItem(name) for name in all_studies() if name.startswith(prefix)]


def _connect(ctx: click.Context) -> "LabConnection":
    from orchestrator.commands.common import connect

    folder = ctx.params.get("lab_folder") or os.environ.get("FARM_LAB") or "lab"
    return connect(Path(str(folder)))
