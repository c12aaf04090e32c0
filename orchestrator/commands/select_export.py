"""`farm select export|verify`: writes the fleet for a federated-learning simulator."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import json_option, print_json, print_table
from orchestrator.commands.select_options import print_notes, read_clients, workload_options
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from orchestrator.app.select_clients import ConsumerEstimate, NetworkLink

CONSUMER_NAMES = ("fedscale", "oort", "flash", "flower", "table")


@click.command(name="export")
@workload_options
@click.option(
    "--to",
    "consumer",
    type=click.Choice(CONSUMER_NAMES),
    required=True,
    help="Simulator that will read the files.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write into.")
@click.option("--link-kbps", metavar="DOWN[/UP]", help="Network speed in kbit/s; not measured.")
@click.option(
    "--allow-simulated",
    is_flag=True,
    help="Write simulated figures; the file names contain 'simulated'.",
)
def export_fleet(  # noqa: PLR0913, PLR0917 (click passes options one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    allow_mixed: bool,
    consumer: str,
    output: Path | None,
    link_kbps: str | None,
    allow_simulated: bool,
) -> None:
    """Write the fleet for a simulator, and check it.

    The files are read back as the simulator reads them.

    Example: farm select export demo --to fedscale --allow-simulated --link-kbps 20000
    """
    from orchestrator.app.select_clients import export_clients

    table = read_clients(name, lab_folder, workload, batch, allow_mixed)
    folder = output or Path(f"{name}-{consumer}")
    link = _parse_link(link_kbps) if link_kbps else None
    title, written = export_clients(table, consumer, folder, link, allow_simulated)
    for path in written.files:
        click.echo(str(path))
    print_notes([f"Left out: {item.phone}: {item.text}." for item in table.left_out])
    print_notes([f"Left out: {phone}: not enough memory." for phone in written.left_out])
    _check_estimates(written.estimates, title)


def _parse_link(text: str) -> "NetworkLink":
    from orchestrator.app.select_clients import NetworkLink

    try:
        down, _, up = text.partition("/")
        link = NetworkLink(float(down), float(up or down))
        if all(isfinite(speed) and speed > 0 for speed in vars(link).values()):
            return link
    except ValueError:
        pass
    raise InvalidRequest(f"--link-kbps: '{text}' is not a speed; write 20000 or 20000/5000")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def verify(folder: Path, as_json: bool) -> None:
    """Check an exported FOLDER as its consumer reads it.

    Prints the times that the consumer computes beside the measured ones.

    Example: farm select verify demo-fedscale
    """
    from orchestrator.app.select_clients import verify_export

    title, estimates = verify_export(folder)
    if as_json:
        rows = [{**vars(item), "relative_error": item.relative_error} for item in estimates]
        print_json({"consumer": title, "batch_ms": rows})
    else:
        print_table(
            ["PHONE", "CONSUMER MS/BATCH", "MEASURED MS/BATCH", "ERROR"],
            [
                [e.phone, f"{e.consumer_ms:.5g}", f"{e.measured_ms:.5g}", f"{e.relative_error:.2%}"]
                for e in estimates
            ],
        )
    _check_estimates(estimates, title)


def _check_estimates(estimates: "Sequence[ConsumerEstimate]", title: str) -> None:
    from orchestrator.app.select_clients import AGREES_WITHIN

    worst = max(estimate.relative_error for estimate in estimates)
    if worst > AGREES_WITHIN:
        raise InvalidRequest(
            f"{title} would compute times that differ by up to {worst:.1%} from the measurements; "
            "do not use this export"
        )
    click.echo(f"{title} computes the measured times to within {worst:.2%}.", err=True)
