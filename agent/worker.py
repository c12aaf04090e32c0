"""The agent's Celery worker: one per host, with a pool of threads and the host's queue.

Celery cannot stop a thread, so cancellation and deadlines belong to the lane; Celery only
transports messages.
"""

import logging
import threading
import warnings
from collections.abc import Sequence

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from kombu.exceptions import OperationalError

from agent.host import HostAgent, HostSettings
from agent.phone.adb import AdbServer
from workloads.celery_setup import (
    QUIET_WORKER,
    ReconnectingConsumer,
    celery_settings,
    no_ack_queue,
)
from workloads.protocol.faults import BrokerDown
from workloads.protocol.limits import JOB_BYTES_MAX
from workloads.protocol.messages import (
    COMMAND,
    DELIVER,
    RESULTS_QUEUE,
    RUN,
    BadMessage,
    Command,
    Job,
    decode,
    host_queue,
)

log = logging.getLogger("farm.worker")

COMMAND_THREADS = 4

# Celery warns root users of pickle, which is not accepted here.
warnings.simplefilter("ignore", SecurityWarning)


def serve(settings: HostSettings, server: AdbServer) -> None:
    """Run the agent until the process receives a signal to stop."""
    app = Celery("farm.agent", set_as_current=False)
    app.conf.update(celery_settings(settings.broker, settings.host))
    app.conf.task_queues = [no_ack_queue(host_queue(settings.host))]

    def send(parcels: Sequence[str]) -> None:
        try:
            args = [settings.host, list(parcels)]
            # Without argsrepr Celery would format all parcels for its own log.
            app.send_task(DELIVER, args=args, queue=RESULTS_QUEUE, retry=False, argsrepr="")
        except (OperationalError, OSError) as error:
            raise BrokerDown(f"the broker cannot be reached: {error}") from error

    host = HostAgent(settings, server, send)
    _register(app, host)
    # On shutdown Celery waits for its threads, so the lanes have to be cancelled first.
    stopping = threading.Thread(target=host.stop, name="stopping")
    signals.worker_shutting_down.connect(lambda **_: stopping.start(), weak=False)
    worker = app.Worker(
        pool="threads",
        concurrency=settings.max_parallel + COMMAND_THREADS,
        queues=[host_queue(settings.host)],
        hostname=f"agent@{settings.host}",
        consumer_cls=ReconnectingConsumer,
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
            log.warning("rejected a message: %s", error)
        except Exception:  # a lane that fails must not stop the worker
            log.exception("a job failed outside of its lane")

    @app.task(name=COMMAND)  # type: ignore[untyped-decorator]
    def _command(message: object) -> None:
        try:
            host.command(decode(Command, message, JOB_BYTES_MAX))
        except BadMessage as error:
            log.warning("rejected a message: %s", error)
