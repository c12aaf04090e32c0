"""`farm service`: one service of the middle in this process; 'farm up' starts them all."""

import signal
import threading
from pathlib import Path

import click

from orchestrator.commands.common import lab_option, open_store, read_lab
from workloads.logging_setup import configure_logging


@click.group()
def service() -> None:
    """Run one service of the middle (farm up starts all of them)."""
    configure_logging()


@service.command()
@lab_option
def scheduler(lab_folder: Path) -> None:
    """Give each idle phone its next run."""
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.dispatch.job_queue import JobQueue
    from orchestrator.dispatch.scheduler import Scheduler

    lab = read_lab(lab_folder)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Scheduler(
        open_store(lab),
        CentralBroker(lab.broker_url),
        JobQueue(lab.broker_url),
        lab.settings.scheduler.lease_timeout_s,
    ).serve(stop)


@service.command()
@lab_option
def ingest(lab_folder: Path) -> None:
    """Store what agents report."""
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.dispatch.ingest_service import serve

    lab = read_lab(lab_folder)
    serve(open_store(lab), CentralBroker(lab.broker_url))
