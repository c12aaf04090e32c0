"""What the commands share: the lab they speak of, and how they print."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workloads.lab_settings import Lab
from workloads.protocol.faults import BrokerDown, StoreDown

if TYPE_CHECKING:
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.store.database import Database
    from orchestrator.store.operator_change import OperatorChange

DEFAULT_LAB = Path("lab")
lab_option = click.option(
    "--lab",
    "lab_folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_LAB,
    envvar="FARM_LAB",
    show_default=True,
    help="The lab folder.",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and do nothing."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def read_lab(folder: Path) -> Lab:
    """Read a lab's settings."""
    return Lab.read(folder, dict(os.environ))


def open_store(lab: Lab) -> "Database":
    """Open the store, or say in one sentence why not."""
    from orchestrator.store.database import Database

    if lab.has_embedded_store and not lab.store_file.exists():
        up = f"start it with 'farm up --lab {lab.root}', or name another with --lab or FARM_LAB"
        raise StoreDown(f"the lab in {lab.root} has no store yet; {up}")
    database = Database(lab.store_url)
    database.check()
    return database


def open_broker(lab: Lab) -> "CentralBroker":
    """Open the broker, or say in one sentence why not."""
    from orchestrator.dispatch.central_broker import CentralBroker

    broker = CentralBroker(lab.broker_url)
    try:
        broker.check()
    except BrokerDown as error:
        if lab.has_embedded_broker:
            up = f"the lab in {lab.root} is not up: its broker does not answer"
            raise BrokerDown(f"{up}; start it with 'farm up --lab {lab.root}'") from error
        raise
    return broker


def print_json(content: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(content, default=_plain, ensure_ascii=False, indent=2))


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else str(value)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: Rich on a terminal, tab-separated lines when piped."""
    from workloads.text import safe_text

    texts = [[safe_text(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in [list(headings), *texts]:
            click.echo("\t".join(line))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading)
    for line in texts:
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)


def current_user() -> str:
    """Who is at the keyboard, for the record of changes."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def print_change(broker: "CentralBroker", change: "OperatorChange") -> None:
    """Say what was changed and how to undo it, here and to whoever watches."""
    from workloads.text import safe_text

    if change.changed and not change.dry_run:
        broker.publish_event(change.event)
    said, *undo = change.lines
    click.echo(safe_text(said, 600))
    for way_back in undo:
        click.echo(safe_text(way_back, 600), err=True)
