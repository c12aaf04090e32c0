"""Runs one central service in this process, and prepares the store for the services."""

import threading

from orchestrator.app.lab_connection import LabConnection
from orchestrator.dispatch import ingest_service
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.scheduler import Scheduler
from orchestrator.store.database import Database
from workloads.lab_settings import Lab


def run_scheduler(lab: LabConnection, stop: threading.Event) -> None:
    """Dispatch runs and watch leases until stopped."""
    broker = CentralBroker(lab.lab.broker_url)  # it may be down; the scheduler waits for it
    settings = lab.lab.settings.scheduler
    scheduler = Scheduler(
        lab.store, broker, lab.job_queue, settings.lease_timeout_s, settings.hosts
    )
    scheduler.serve(stop)


def run_ingest(lab: LabConnection) -> None:
    """Store reports until the process is told to end."""
    hosts = lab.lab.settings.scheduler.hosts
    ingest_service.serve(lab.store, CentralBroker(lab.lab.broker_url), hosts)


def migrate_store(lab: Lab) -> None:
    """Create the tables of the store, or bring them to this version."""
    database = Database(lab.store_url)
    database.migrate()
    database.close()


def check_broker(lab: Lab) -> None:
    """Raise BrokerDown unless the broker answers."""
    broker = CentralBroker(lab.broker_url)
    try:
        broker.check()
    finally:
        broker.close()
