"""`farm lab notices`: what the lab has reported to people, and whether it reached them."""

import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
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
from workloads.cli_options import value_option
from workloads.command_output import say
from workloads.protocol.faults import BrokerDown, FarmTrouble, StoreDown
from workloads.text import safe_text
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection

TEST_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.3


@click.command()
@click.option("--test", is_flag=True, help="Send a test notice instead, and wait for its delivery.")
@value_option(
    "--limit", type=click.IntRange(1, 1000), default=50, help="Maximum number of notices."
)
@wide_option
@lab_option
@json_option
def notices(test: bool, limit: int, lab_folder: Path, as_json: bool) -> None:
    """List the newest notices and their delivery.

    [notices] of lab.toml sets a webhook or command.

    \b
    Examples:
      farm lab notices --limit 10
      farm lab notices --test
    """
    if test:
        _test_delivery(connect(lab_folder))
        return
    from orchestrator.app.manage_notices import list_notices

    found = list_notices(connect(lab_folder), limit)
    if as_json:
        print_json([asdict(item) for item in found])
        return
    rows = [
        (
            *(item.id, f"{datetime.fromtimestamp(item.raised_at_s, UTC):%Y-%m-%d %H:%M}"),
            *(item.kind, "" if item.cleared_at_s else "yes", item.text),
            f"{item.delivery}" + f" ({item.error})" * bool(item.error),
        )
        for item in found
    ]
    headings = ("NOTICE", "AT (UTC)", "KIND", "HOLDS", "TEXT", "DELIVERED")
    summary = f"{count_text(len(rows), 'notice')}, newest first."
    hide = ("NOTICE", "DELIVERED")
    print_list(headings, rows, "no notice yet", summary, hide)


def _test_delivery(lab: "LabConnection") -> None:
    """Send a test notice and wait for its delivery."""
    from orchestrator.app.manage_notices import DeliveryState, list_notices, send_test_notice

    number = send_test_notice(lab)
    deadline, error = time.monotonic() + TEST_TIMEOUT_S, ""
    while time.monotonic() < deadline:
        found = next((item for item in list_notices(lab) if item.id == number), None)
        if found is not None and found.delivery is DeliveryState.SENT:
            click.echo(f"notice {number} was delivered")
            return
        error = found.error if found else ""
        time.sleep(POLL_INTERVAL_S)
    reason = safe_text(error, 300) or "no scheduler runs, or it has other settings"
    raise FarmTrouble(f"notice {number} was not delivered within a minute: {reason}")


class NoticePrinter:
    """Prints the notices that are new since `farm up` began, and rings."""

    def __init__(self, lab: "LabConnection") -> None:
        self._lab = lab
        self._newest: int | None = None

    def poll(self) -> None:
        """Print what is new."""
        from orchestrator.app.manage_notices import list_notices

        try:
            newest = list_notices(self._lab, 5)
        except (BrokerDown, StoreDown):
            return  # the supervisor is restarting it
        rings = self._lab.lab.settings.notices.bell and sys.stdout.isatty()
        for item in reversed(newest):
            if self._newest is not None and item.id > self._newest:
                say("\a" * rings + safe_text(item.text, 500))
        self._newest = max((item.id for item in newest), default=0)
