"""`farm service`: one service of the middle in this process; 'farm up' starts them all."""

import logging
import signal
import threading
from pathlib import Path

import click

from orchestrator.commands.common import lab_option, open_store, read_lab


@click.group()
def service() -> None:
    """Run one service of the middle (farm up starts all of them)."""
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level="INFO")


@service.command()
@lab_option
def scheduler(lab_folder: Path) -> None:
    """Give each idle phone its next run."""
    from orchestrator.dispatch.broker import Broker
    from orchestrator.dispatch.queue import Queue
    from orchestrator.dispatch.scheduler import Scheduler

    lab = read_lab(lab_folder)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Scheduler(
        open_store(lab),
        Broker(lab.broker_url),
        Queue(lab.broker_url),
        lab.settings.scheduler.lease_s,
    ).serve(stop)


@service.command()
@lab_option
def ingest(lab_folder: Path) -> None:
    """Store what agents report."""
    from orchestrator.dispatch.broker import Broker
    from orchestrator.dispatch.ingest import serve

    lab = read_lab(lab_folder)
    serve(open_store(lab), Broker(lab.broker_url))
