"""Runs one central service in this process, and prepares the store for the services."""

import logging
import threading
import time
from collections.abc import Callable

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.maintain_store import prune_store
from orchestrator.app.services.notice_service import NoticeService
from orchestrator.dispatch import ingest_service
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.scheduler import Scheduler
from orchestrator.store.database import Database
from orchestrator.store.joint_judgements import judge_outdated
from workloads.lab.service_health import ServiceHealth
from workloads.lab.service_metrics import ServiceMetrics
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmError

log = logging.getLogger("farm.service")

CHECK_INTERVAL_S = 5.0
FIRST_PRUNE_S, PRUNE_INTERVAL_S = 3600.0, 86400.0


def run_scheduler(lab: LabConnection, stop: threading.Event, health: ServiceHealth) -> None:
    """Dispatch runs and watch leases until stopped."""
    broker = CentralBroker(lab.lab.broker_url)  # it may be down; the scheduler waits for it
    settings = lab.lab.settings.scheduler
    scheduler = Scheduler(
        lab.store, broker, lab.job_queue, settings.lease_timeout_s, settings.hosts, health
    )
    notices = NoticeService(lab, health.metrics)
    for target, *more in ((notices.serve,), (prune_daily, lab, health.metrics)):
        threading.Thread(target=target, args=(*more, stop), daemon=True).start()
    scheduler.serve(stop)


def prune_daily(
    lab: LabConnection,
    metrics: ServiceMetrics,
    stop: threading.Event,
    first_s: float = FIRST_PRUNE_S,
    interval_s: float = PRUNE_INTERVAL_S,
) -> None:
    """Remove what is older than the settings say, an hour after the start and then every day."""
    wait_s = first_s
    while not stop.wait(wait_s):
        outcome = "failed"
        try:
            pruned = prune_store(lab.for_user("scheduler"))
            log.info("the store was pruned sweeps=%d", len(pruned.sweeps))
            outcome = "done"
        except FarmError as error:
            log.warning("the store was not pruned: %s", error)
        except Exception:  # an unknown error must not end the pruning of later days
            log.exception("the store was not pruned")
        metrics.add("farm_prunes_total", label=outcome)
        wait_s = interval_s


def run_ingest(lab: LabConnection, health: ServiceHealth) -> None:
    """Store reports until the process receives a signal."""
    hosts = lab.lab.settings.scheduler.hosts
    ingest_service.serve(lab.store, CentralBroker(lab.lab.broker_url), health, hosts)


def watch_connections(lab: Lab, health: ServiceHealth) -> None:
    """Note again and again whether store and broker answer; for a daemon thread."""
    store, broker = Database(lab.store_url), CentralBroker(lab.broker_url)
    checks: dict[str, Callable[[], None]] = {"store": store.check, "broker": broker.check}
    while True:
        for part, check in checks.items():
            try:
                check()
                health.set_trouble(part)
            except FarmError as error:
                health.set_trouble(part, str(error))
            health.beat()
        time.sleep(CHECK_INTERVAL_S)


def migrate_store(lab: Lab) -> None:
    """Create the tables of the store, or bring them and the judgements to this version."""
    database = Database(lab.store_url)
    database.migrate()
    judge_outdated(database)
    database.close()


def check_broker(lab: Lab) -> None:
    """Raise BrokerDown unless the broker answers."""
    broker = CentralBroker(lab.broker_url)
    try:
        broker.check()
    finally:
        broker.close()
