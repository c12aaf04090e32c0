"""`farm select export|verify`: writes the fleet for a federated-learning simulator."""

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import json_option, print_json, print_table
from orchestrator.commands.select_options import (
    duty_options,
    print_notes,
    read_clients,
    workload_options,
)
from workloads.cli_options import SEED, FiniteRange, value_option
from workloads.protocol.faults import InvalidRequest
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.select_clients import ExportCheck, LinkDistribution

CONSUMER_NAMES = ("fedscale", "flower", "appfl", "csv")
LINK_NAMES = ("flash-wifi",)


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
@duty_options
@click.option(
    "--clients",
    type=click.IntRange(1, 1_000_000),
    help="Size of the population that is drawn. Default: the measured phones themselves.",
)
@value_option("--seed", type=SEED, default=0, help="Random seed.")
@click.option(
    "--model-share",
    metavar="MODEL=SHARE,...",
    help="Shares of the phone models in the population. Default: equal per phone.",
)
@click.option(
    "--unit-spread",
    type=FiniteRange(0, 1),
    help="Relative deviation of the speed between units of a model. Default: that of measured "
    "phones of the same model.",
)
@click.option("--link-kbps", metavar="DOWN[/UP]", help="Network speed in kbit/s; not measured.")
@click.option(
    "--links", type=click.Choice(LINK_NAMES), help="Draw network speeds from this distribution."
)
@click.option(
    "--availability",
    metavar="day|FILE",
    help="Windows in which clients are available: drawn with a daily pattern, or from a table "
    "with the columns client, start_s, end_s, charging. Default: always.",
)
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
    samples: float | None,
    round_seconds: float,
    rest_seconds: float | None,
    clients: int | None,
    seed: int,
    model_share: str | None,
    unit_spread: float | None,
    link_kbps: str | None,
    links: str | None,
    availability: str | None,
    allow_simulated: bool,
) -> None:
    """Write the fleet for a simulator, and check it.

    The files are read back as the simulator reads them. Their times hold for the stated rounds:
    --samples or --round, --rest and --batch-size.

    \b
    Examples:
      farm select export demo --to fedscale --allow-simulated --link-kbps 20000
      farm select export demo --to flower --clients 1000 --links flash-wifi --availability day
    """
    from orchestrator.app.select_clients import LocalWork, PopulationPlan, export_clients

    if clients is None and (model_share is not None or unit_spread is not None):
        raise InvalidRequest("--model-share and --unit-spread draw a population; pass --clients N")
    table = read_clients(name, lab_folder, workload, batch, allow_mixed)
    plan = PopulationPlan(
        clients,
        seed,
        None if model_share is None else _parse_shares(model_share),
        _parse_links(link_kbps, links),
        rhythm=availability == "day",
        unit_spread=unit_spread,
    )
    work = LocalWork(samples, round_seconds, rest_seconds)
    trace = Path(availability) if availability not in {None, "day"} else None
    folder = output or Path(f"{name}-{consumer}")
    written = export_clients(table, consumer, folder, plan, work, trace, allow_simulated)
    for path in written.files:
        click.echo(str(path))
    print_notes([f"Left out: {item.phone}: {item.text}." for item in table.left_out])
    print_notes([f"Left out: {phone}: not enough memory." for phone in written.left_out])
    rest = "until cool" if written.rest_s is None else f"for {written.rest_s:g} s"
    print_notes(
        [
            f"The times hold for rounds of {written.samples:.0f} samples with batch size "
            f"{written.batch}, after which a phone rests {rest}; other rounds differ."
        ]
    )
    if written.spread_unknown:
        print_notes(["No model was measured on two phones: units of a model do not differ."])
    _report_check(written.check)


def _parse_shares(text: str) -> dict[str, float]:
    parts = [part.rpartition("=") for part in text.split(",")]
    try:
        shares = {model.strip(): float(share) for model, _, share in parts}
    except ValueError:
        shares = {}
    if not shares or "" in shares or not all(map(isfinite, shares.values())):
        raise InvalidRequest(f"--model-share: '{text}' is not a list; write MODEL=0.7,MODEL=0.3")
    if len(shares) < len(parts):
        raise InvalidRequest("--model-share names a model twice; name it once")
    return shares


def _parse_links(link_kbps: str | None, name: str | None) -> "LinkDistribution | None":
    from orchestrator.app.select_clients import LINKS, LinkDistribution

    if link_kbps and name:
        raise InvalidRequest("--link-kbps and --links exclude each other; pass one of them")
    if name:
        return LINKS[name]
    if not link_kbps:
        return None
    try:
        down, _, up = link_kbps.partition("/")
        link = LinkDistribution(float(down), float(up or down))
        if all(isfinite(speed) and speed > 0 for speed in link[:2]):
            return link
    except ValueError:
        pass
    raise InvalidRequest(f"--link-kbps: '{link_kbps}' is not a speed; write 20000 or 20000/5000")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def verify(folder: Path, as_json: bool) -> None:
    """Check an exported FOLDER as its consumer reads it.

    Prints the time of a round that the consumer computes beside the time of 'farm select', for the
    client of each measured phone with the largest difference.

    Example: farm select verify demo-fedscale
    """
    from orchestrator.app.select_clients import verify_export

    check = verify_export(folder)
    if as_json:
        document = {
            "consumer": check.title,
            "clients": check.clients,
            "rounds": [vars(each) for each in check.rounds],
            "link_error": check.link_error,
        }
        print_json(document)
    else:
        print_table(
            ["PHONE", "CLIENTS", "CONSUMER S/ROUND", "SELECT S/ROUND", "ERROR"],
            [
                [
                    *(each.phone, str(each.clients), f"{each.consumer_s:.5g}"),
                    *(f"{each.select_s:.5g}", f"{each.relative_error:.2%}"),
                ]
                for each in check.rounds
            ],
        )
    _report_check(check)


def _report_check(check: "ExportCheck") -> None:
    link = "" if check.link_error is None else f", links to within {check.link_error:.2%}"
    if not check.agrees:
        raise InvalidRequest(
            f"{check.title} would compute times that differ by up to {check.worst:.1%}{link} "
            "from those of 'farm select'; do not use this export"
        )
    rounds = f"rounds of {count_text(check.clients, 'client')}"
    click.echo(f"{check.title} computes {rounds} to within {check.worst:.2%}{link}.", err=True)
