"""The agent's Celery worker: one per host, with a pool of threads and the host's queue.

Celery cannot stop a thread, so cancellation and deadlines belong to the lane; Celery only
transports messages.
"""

import logging
import threading
from collections.abc import Sequence

from celery import Celery, signals

from agent.host import HostAgent
from agent.host_settings import HostSettings
from agent.phone.adb import AdbServer
from workloads.lab.celery_setup import (
    QUIET_WORKER,
    broker_errors,
    celery_app,
    checked_consumer,
    no_ack_queue,
    send_task,
)
from workloads.lab.service_health import ServiceHealth
from workloads.protocol.envelope import MessageFilter
from workloads.protocol.limits import JOB_BYTES_MAX
from workloads.protocol.messages import (
    COMMAND,
    DELIVER,
    RUN,
    BadMessage,
    Command,
    Job,
    decode,
    host_queue,
    results_queue,
)

log = logging.getLogger("farm.worker")

COMMAND_THREADS = 4


def serve(settings: HostSettings, server: AdbServer, health: ServiceHealth) -> None:
    """Run the agent until the process receives a signal to stop."""
    app = celery_app("farm.agent", settings.broker)
    app.conf.task_queues = [no_ack_queue(host_queue(settings.host))]

    def send(parcels: Sequence[str]) -> None:
        with broker_errors():
            send_task(app, DELIVER, list(parcels), results_queue(settings.host))

    host = HostAgent(settings, server, send, health)
    message_filter = MessageFilter((RUN, COMMAND), lambda _, reason: host.heartbeat.refuse(reason))
    _register(app, host)
    # On shutdown Celery waits for its threads, so the lanes have to be cancelled first.
    stopping = threading.Thread(target=host.stop, name="stopping")
    signals.worker_shutting_down.connect(lambda **_: stopping.start(), weak=False)
    worker = app.Worker(
        pool="threads",
        concurrency=settings.max_parallel + COMMAND_THREADS,
        queues=[host_queue(settings.host)],
        hostname=f"agent@{settings.host}",
        consumer_cls=checked_consumer(message_filter),
        **QUIET_WORKER,
    )
    host.start()
    worker.start()
    if stopping.ident is None:
        stopping.start()
    stopping.join()


def _register(app: Celery, host: HostAgent) -> None:
    @app.task(name=RUN)  # type: ignore[untyped-decorator]
    def _run(message: object) -> None:
        try:
            host.run(decode(Job, message, JOB_BYTES_MAX))
        except BadMessage as error:
            host.heartbeat.refuse(str(error))
        except Exception:  # a lane that fails must not stop the worker
            log.exception("a job failed outside of its lane")

    @app.task(name=COMMAND)  # type: ignore[untyped-decorator]
    def _command(message: object) -> None:
        try:
            host.command(decode(Command, message, JOB_BYTES_MAX))
        except BadMessage as error:
            host.heartbeat.refuse(str(error))
        except Exception:  # nor must a command
            log.exception("a command failed")
