"""The central side of Celery: sends jobs and commands, receives deliveries."""

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from kombu.exceptions import BatchPublishError, OperationalError

from workloads.celery_setup import (
    QUIET_WORKER,
    ReconnectingConsumer,
    celery_settings,
    no_ack_queue,
)
from workloads.protocol.faults import BrokerDown
from workloads.protocol.messages import (
    COMMAND,
    DELIVER,
    RESULTS_QUEUE,
    RUN,
    Command,
    Job,
    host_queue,
)

log = logging.getLogger("farm.queue")

COMMAND_EXPIRY_S = 60.0

# Celery warns when root accepts pickle; celery_settings does not accept it.
warnings.simplefilter("ignore", SecurityWarning)


class JobQueue:
    """Sends tasks by name, so that no code of the agent is imported."""

    def __init__(self, broker: str) -> None:
        self._app = Celery("farm.centre", set_as_current=False)
        self._app.conf.update(celery_settings(broker, "centre"))

    def send_jobs(self, jobs: Sequence[tuple[str, Job]], skew_s: Mapping[str, float]) -> None:
        """Send jobs to hosts, in one batch.

        A job expires with its lease, so the queue of a dead host empties itself. The host compares
        the expiry with its own clock, so the expiry is corrected by the host's clock skew.
        """
        with self._producer() as producer, producer.batch():
            for host, job in jobs:
                expires_s = job.lease_timeout_s + skew_s.get(host, 0.0)
                self._send(producer, RUN, host, job.model_dump_json(), expires_s)

    def send_command(self, host: str, command: Command, skew_s: float = 0.0) -> None:
        """Send a command."""
        with self._producer() as producer:
            expires_s = COMMAND_EXPIRY_S + skew_s
            self._send(producer, COMMAND, host, command.model_dump_json(), expires_s)

    @contextmanager
    def _producer(self) -> Iterator[Any]:
        try:
            with self._app.producer_or_acquire() as producer:
                yield producer
        except (OperationalError, BatchPublishError, OSError) as error:
            raise BrokerDown(f"cannot send: {error}") from error

    def _send(self, producer: Any, name: str, host: str, message: str, expires_s: float) -> None:
        self._app.send_task(
            name,
            args=[message],
            queue=host_queue(host),
            expires=datetime.now(UTC) + timedelta(seconds=expires_s),
            retry=False,
            argsrepr="",  # otherwise Celery formats the whole job for its log
            producer=producer,
        )


Deliver = Callable[[str, Sequence[str], threading.Event], None]


def serve_deliveries(broker: str, deliver: Deliver) -> None:
    """Call `deliver` for one delivery after another; its event is set when the process stops."""
    stop = threading.Event()
    signals.worker_shutting_down.connect(lambda **_: stop.set(), weak=False)
    app = Celery("farm.ingest", set_as_current=False)
    app.conf.update(celery_settings(broker, "ingest"))
    app.conf.task_queues = [no_ack_queue(RESULTS_QUEUE)]

    @app.task(name=DELIVER)  # type: ignore[untyped-decorator]
    def _deliver(host: str, parcels: list[str]) -> None:
        try:
            deliver(host, parcels, stop)
        except Exception:  # the agent resends unconfirmed parcels; the worker must not end
            log.exception("a delivery from %s was not stored", host)

    worker = app.Worker(
        pool="solo",
        queues=[RESULTS_QUEUE],
        hostname="ingest@farm",
        consumer_cls=ReconnectingConsumer,
        **QUIET_WORKER,
    )
    worker.start()
