"""The Celery door in the middle: jobs and commands go out, deliveries come in."""

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

COMMAND_S = 60.0

# It warns root of pickle, which is not accepted here.
warnings.simplefilter("ignore", SecurityWarning)


class JobQueue:
    """Sends by name, so that no code of the agent is needed here."""

    def __init__(self, broker: str) -> None:
        self._app = Celery("farm.centre", set_as_current=False)
        self._app.conf.update(celery_settings(broker, "centre"))

    def send_jobs(self, jobs: Sequence[tuple[str, Job]], skew_s: Mapping[str, float]) -> None:
        """Send jobs to hosts, all in one go.

        A job expires with its lease, so a dead host's queue empties itself. That moment is judged
        by the host's own clock, so it is told in the host's own time.
        """
        with self._going_out() as producer, producer.batch():
            for host, job in jobs:
                expires_s = job.lease_timeout_s + skew_s.get(host, 0.0)
                self._send(producer, RUN, host, job.model_dump_json(), expires_s)

    def send_command(self, host: str, command: Command, skew_s: float = 0.0) -> None:
        """Send a command."""
        with self._going_out() as producer:
            self._send(producer, COMMAND, host, command.model_dump_json(), COMMAND_S + skew_s)

    @contextmanager
    def _going_out(self) -> Iterator[Any]:
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
            argsrepr="",  # Celery would print the whole job for its own log
            producer=producer,
        )


Deliver = Callable[[str, Sequence[str], threading.Event], None]


def serve_deliveries(broker: str, deliver: Deliver) -> None:
    """Take deliveries, one after another, until the process is told to stop; then say so."""
    stop = threading.Event()
    signals.worker_shutting_down.connect(lambda **_: stop.set(), weak=False)
    app = Celery("farm.ingest", set_as_current=False)
    app.conf.update(celery_settings(broker, "ingest"))
    app.conf.task_queues = [no_ack_queue(RESULTS_QUEUE)]

    @app.task(name=DELIVER)  # type: ignore[untyped-decorator]
    def _deliver(host: str, parcels: list[str]) -> None:
        try:
            deliver(host, parcels, stop)
        except Exception:  # the agent resends what is not confirmed; the worker must live
            log.exception("a delivery from %s was not stored", host)

    worker = app.Worker(
        pool="solo",
        queues=[RESULTS_QUEUE],
        hostname="ingest@farm",
        consumer_cls=ReconnectingConsumer,
        **QUIET_WORKER,
    )
    worker.start()
