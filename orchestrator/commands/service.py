"""`farm service`: runs one central service in this process; `farm up` starts all of them."""

import signal
import threading
from pathlib import Path

import click

from orchestrator.commands.common import connect, lab_option
from workloads.logging_setup import configure_logging


@click.group()
def service() -> None:
    """Run one central service (scheduler or ingest)."""
    configure_logging()


@service.command()
@lab_option
def scheduler(lab_folder: Path) -> None:
    """Dispatch runs to idle phones.

    Example: farm service scheduler --lab lab
    """
    from orchestrator.app.run_service import run_scheduler

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run_scheduler(connect(lab_folder), stop)


@service.command()
@lab_option
def ingest(lab_folder: Path) -> None:
    """Store the reports of agents.

    Example: farm service ingest --lab lab
    """
    from orchestrator.app.run_service import run_ingest

    run_ingest(connect(lab_folder))
