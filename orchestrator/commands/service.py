"""`farm service`: runs one central service in this process; `farm up` starts all of them.

`farm service agent` is in agent/cli.py.
"""

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import lab_option, read_lab

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection
    from workloads.lab.service_health import ServiceHealth


@click.group()
def service() -> None:
    """Run one service: scheduler, ingest, api, or the agent of a host."""


def _start(lab_folder: Path, name: str) -> "tuple[LabConnection, ServiceHealth]":
    from orchestrator.app.lab_connection import LabConnection
    from workloads.lab.service_health import start_service
    from workloads.lab.service_metrics import Service

    lab = read_lab(lab_folder)
    return LabConnection(lab), start_service(lab, Service(name), name)


@service.command()
@lab_option
def scheduler(lab_folder: Path) -> None:
    """Dispatch runs to idle phones.

    Example: farm service scheduler --lab lab
    """
    from orchestrator.app.services.run_service import run_scheduler

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    lab, health = _start(lab_folder, "scheduler")
    run_scheduler(lab, stop, health)


@service.command()
@lab_option
def ingest(lab_folder: Path) -> None:
    """Store the reports of agents.

    Example: farm service ingest --lab lab
    """
    from orchestrator.app.services.run_service import run_ingest

    run_ingest(*_start(lab_folder, "ingest"))


@service.command()
@lab_option
def api(lab_folder: Path) -> None:
    """Serve the lab over HTTP to users with a token.

    'farm up' runs it, too. Settings are in [api] of lab.toml.

    Example: farm service api --lab lab
    """
    from orchestrator.api.serve import serve_api

    serve_api(*_start(lab_folder, "api"))
