"""`farm phone`: the phones of the lab."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_broker,
    open_store,
    print_json,
    print_table,
    read_lab,
)

if TYPE_CHECKING:
    from orchestrator.nouns import KnownPhone


@click.group()
def phone() -> None:
    """List the phones."""


@phone.command("list")
@lab_option
@json_option
def list_phones(lab_folder: Path, as_json: bool) -> None:
    """List every phone the lab has met, and how it is now."""
    from orchestrator.lab_view import look

    lab = read_lab(lab_folder)
    phones = look(open_store(lab), open_broker(lab)).phones
    if as_json:
        print_json([asdict(item) | {"facts": item.facts.model_dump()} for item in phones])
        return
    headings = ("PHONE", "MODEL", "SOC", "HOST", "STATE", "TEMP", "BATTERY", "CONTROL", "NUMBERS")
    print_table(headings, [_row(item) for item in phones])


def _row(phone: "KnownPhone") -> tuple[str, ...]:
    facts = phone.facts
    time = facts.provenance.time if facts.provenance else None
    return (
        phone.serial,
        facts.model,
        facts.soc,
        phone.host,
        f"{phone.state} {phone.why}".strip(),
        "" if phone.temp_c is None else f"{phone.temp_c:.1f}",
        "" if phone.battery_pct is None else f"{phone.battery_pct} %",
        facts.control.value,
        facts.runner_absent or (str(time) if time else "none"),
    )
