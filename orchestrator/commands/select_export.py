"""`farm select export` and `verify`: the fleet for a simulator, and what that will believe."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import json_option, print_json, print_table
from orchestrator.commands.select_census import census_of, of_a_sweep
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from orchestrator.export.federated.consumer_files import ConsumerEstimate, NetworkLink

CONSUMER_NAMES = ("fedscale", "oort", "flash", "flower", "table")


@click.command(name="export")
@of_a_sweep
@click.option("--to", "consumer", type=click.Choice(CONSUMER_NAMES), required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write into.")
@click.option("--link-kbps", metavar="DOWN[/UP]", help="The network, which the farm cannot see.")
@click.option("--allow-simulated", is_flag=True, help="Write simulated figures; the names say so.")
def export_fleet(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    mix: bool,
    consumer: str,
    output: Path | None,
    link_kbps: str | None,
    allow_simulated: bool,
) -> None:
    """Write the fleet for a federated-learning simulator, and read it back as it will."""
    from orchestrator.export.federated import CONSUMERS, write_consumer_files

    census = census_of(name, lab_folder, workload, batch, mix)
    folder = output or Path(f"{name}-{consumer}")
    link = _link(link_kbps) if link_kbps else None
    written = write_consumer_files(CONSUMERS[consumer], census, folder, link, allow_simulated)
    for path in written.files:
        click.echo(str(path))
    for item in census.left_out:
        click.echo(f"Without {item.phone}: {item.text}.", err=True)
    for phone in written.left_out:
        click.echo(f"Without {phone}: it lacks the memory.", err=True)
    _judge(written.estimates, CONSUMERS[consumer].title)


def _link(text: str) -> "NetworkLink":
    from math import isfinite

    from orchestrator.export.federated.consumer_files import NetworkLink

    try:
        down, _, up = text.partition("/")
        link = NetworkLink(float(down), float(up or down))
        if all(isfinite(speed) and speed > 0 for speed in vars(link).values()):
            return link
    except ValueError:
        pass
    raise InvalidRequest(f"'{text}' is no speed; write --link-kbps 20000 or 20000/5000")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def verify(folder: Path, as_json: bool) -> None:
    """Read an export in FOLDER as its consumer does; hold that against what was measured."""
    from orchestrator.export.federated.consumer_files import verify_export as read_back

    title, beliefs = read_back(folder)
    if as_json:
        print_json(
            {"for": title, "batch_ms": [{**vars(b), "off": b.relative_error} for b in beliefs]}
        )
    else:
        print_table(
            ["phone", "believed ms a batch", "measured ms a batch", "off"],
            [
                [b.phone, f"{b.consumer_ms:.5g}", f"{b.measured_ms:.5g}", f"{b.relative_error:.2%}"]
                for b in beliefs
            ],
        )
    _judge(beliefs, title)


def _judge(beliefs: "Sequence[ConsumerEstimate]", title: str) -> None:
    from orchestrator.export.federated.consumer_files import AGREES_WITHIN

    worst = max(belief.relative_error for belief in beliefs)
    if worst > AGREES_WITHIN:
        raise InvalidRequest(f"{title} would be off by up to {worst:.1%}: the export is wrong")
    click.echo(f"{title} will believe what was measured, to {worst:.2%}.", err=True)
