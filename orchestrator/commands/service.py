"""`farm service`: runs one central service in this process; `farm up` starts all of them."""

import signal
import threading
from pathlib import Path

import click

from orchestrator.commands.common import connect, lab_option
from workloads.logging_setup import configure_logging


@click.group()
def service() -> None:
    """Run one central service: scheduler, ingest or api."""
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


@service.command()
@lab_option
def api(lab_folder: Path) -> None:
    """Serve the lab over HTTP to people with a token.

    'farm up' runs it, too. Settings are in [api] of lab.toml.

    Example: farm service api --lab lab
    """
    from orchestrator.api.serve import serve_api
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.commands.common import read_lab

    serve_api(LabConnection(read_lab(lab_folder)))
