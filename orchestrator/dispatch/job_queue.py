"""The central side of Celery: sends jobs and commands, receives deliveries."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from celery import bootsteps, signals

from workloads.lab.celery_setup import (
    QUIET_WORKER,
    broker_errors,
    celery_app,
    checked_consumer,
    no_ack_queue,
    send_task,
)
from workloads.protocol.envelope import MessageFilter
from workloads.protocol.faults import FarmTrouble
from workloads.protocol.messages import (
    COMMAND,
    DELIVER,
    RESULTS_QUEUES,
    RUN,
    Command,
    Job,
    host_queue,
    results_queue,
)

log = logging.getLogger("farm.queue")

COMMAND_EXPIRY_S = 60.0
FOLLOW_INTERVAL_S = 0.5


class JobQueue:
    """Sends tasks by name, so that no code of the agent is imported."""

    def __init__(self, broker: str) -> None:
        self._app = celery_app("farm.centre", broker)

    def send_jobs(self, jobs: Sequence[tuple[str, Job]], skew_s: Mapping[str, float]) -> None:
        """Send jobs to hosts, in one batch.

        A job expires with its lease, so the queue of a dead host empties itself. The host compares
        the expiry with its own clock, so the expiry is corrected by the host's clock skew.
        """
        with self._producer() as producer, producer.batch():
            for host, job in jobs:
                expires_s = job.lease_timeout_s + skew_s.get(host, 0.0)
                text = job.model_dump_json()
                send_task(self._app, RUN, text, host_queue(host), expires_s, producer)

    def send_command(self, host: str, command: Command, skew_s: float = 0.0) -> None:
        """Send a command."""
        with self._producer() as producer:
            text, expires_s = command.model_dump_json(), COMMAND_EXPIRY_S + skew_s
            send_task(self._app, COMMAND, text, host_queue(host), expires_s, producer)

    @contextmanager
    def _producer(self) -> Iterator[Any]:
        with broker_errors(), self._app.producer_or_acquire() as producer:
            yield producer


Deliver = Callable[[str, list[str]], None]


def serve_deliveries(
    broker: str,
    deliver: Deliver,
    message_filter: MessageFilter,
    find_hosts: Callable[[], Sequence[str]],
) -> None:
    """Call `deliver` for one delivery after another, of every host that `find_hosts` returns."""
    app = celery_app("farm.ingest", broker)
    # A worker without any queue would take Celery's own. Nothing is accepted from this one.
    app.conf.task_queues = [no_ack_queue(RESULTS_QUEUES)]
    app.steps["consumer"].add(_follow_hosts(find_hosts))

    @app.task(name=DELIVER, bind=True)  # type: ignore[untyped-decorator]
    def _deliver(task: Any, parcels: list[str]) -> None:
        # The filter has compared this name with the queue that the message came out of.
        deliver(task.request.delivery_info["routing_key"], parcels)

    worker = app.Worker(
        pool="solo",
        queues=[RESULTS_QUEUES],
        hostname="ingest@farm",
        consumer_cls=checked_consumer(message_filter),
        **QUIET_WORKER,
    )
    worker.start()


def call_on_shutdown(action: Callable[[], None]) -> None:
    """Call an action when the worker of this process begins to stop."""
    signals.worker_shutting_down.connect(lambda **_: action(), weak=False)


def _follow_hosts(find_hosts: Callable[[], Sequence[str]]) -> type[bootsteps.StartStopStep]:
    """Return the part of a consumer that adds the queues of hosts as they appear."""

    class FollowHosts(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def start(self, consumer: Any) -> None:
            self._timer = consumer.timer.call_repeatedly(FOLLOW_INTERVAL_S, self._add, (consumer,))

        def stop(self, consumer: Any) -> None:
            self._timer.cancel()

        def _add(self, consumer: Any) -> None:
            try:
                with broker_errors():
                    for queue in map(results_queue, find_hosts()):
                        if not consumer.task_consumer.consuming_from(queue):
                            consumer.app.amqp.queues.select_add(no_ack_queue(queue))
                            consumer.add_task_queue(queue)
            except FarmTrouble as error:  # the consumer itself reconnects
                log.warning("%s", error)

    return FollowHosts
