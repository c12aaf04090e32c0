"""`farm notice`: what the lab has reported to people, and whether it reached them."""

import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json, print_table
from workloads.cli_options import value_option
from workloads.protocol.faults import BrokerDown, FarmTrouble
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection

TEST_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.3


@click.group()
def notice() -> None:
    """List notices, and test their delivery; [notices] of lab.toml sets the targets."""


@notice.command("list")
@value_option(
    "--limit", type=click.IntRange(1, 1000), default=50, help="Maximum number of notices."
)
@lab_option
@json_option
def list_all(limit: int, lab_folder: Path, as_json: bool) -> None:
    """List the newest notices and their deliveries.

    Example: farm notice list --limit 10
    """
    from orchestrator.app.manage_notices import list_notices

    found = list_notices(connect(lab_folder), limit)
    if as_json:
        print_json([asdict(item) for item in found])
        return
    rows = [
        (
            *(item.id, f"{datetime.fromtimestamp(item.raised_at_s, UTC):%Y-%m-%d %H:%M}"),
            *(item.kind, "" if item.cleared_at_s else "yes"),
            *(item.text, "; ".join(each.text for each in item.deliveries)),
        )
        for item in found
    ]
    print_table(("NOTICE", "AT (UTC)", "KIND", "HOLDS", "TEXT", "DELIVERED"), rows)


@notice.command()
@click.argument("target")
@lab_option
def test(target: str, lab_folder: Path) -> None:
    """Send a test notice to a TARGET and wait for its delivery.

    Example: farm notice test office
    """
    from orchestrator.app.manage_notices import DeliveryState, list_notices, send_test_notice

    lab = connect(lab_folder)
    number = send_test_notice(lab, target)
    deadline, state = time.monotonic() + TEST_TIMEOUT_S, ""
    while time.monotonic() < deadline:
        found = next((item for item in list_notices(lab) if item.id == number), None)
        deliveries = found.deliveries if found else ()
        state = "; ".join(item.text for item in deliveries)
        if any(item.state is DeliveryState.SENT for item in deliveries):
            click.echo(f"notice {number} was delivered to {target}")
            return
        time.sleep(POLL_INTERVAL_S)
    reason = safe_text(state, 300) or "no scheduler runs, or it has other settings"
    raise FarmTrouble(f"notice {number} was not delivered within a minute: {reason}")


class NoticePrinter:
    """Prints the notices that are new since `farm up` began, and rings."""

    def __init__(self, lab: "LabConnection") -> None:
        self._lab = lab
        self._newest: int | None = None

    def poll(self) -> None:
        """Print what is new."""
        from orchestrator.app.read_status import read_status_board

        try:
            board = read_status_board(self._lab)
        except BrokerDown:
            return  # the supervisor is restarting it
        if board is None:
            return
        rings = self._lab.lab.settings.notices.bell and sys.stdout.isatty()
        for item in reversed(board.notices):
            if self._newest is not None and item.id > self._newest:
                click.echo("\a" * rings + safe_text(item.text, 500))
        self._newest = max((item.id for item in board.notices), default=0)
