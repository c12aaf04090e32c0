"""The agent's Celery door: one worker per host, a pool of threads, its own queue.

Celery cannot end a thread, so cancelling and deadlines are the lane's own; here it only carries.
"""

import logging
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from kombu.exceptions import OperationalError

from agent.host import HostAgent, HostSettings
from agent.phone.adb import AdbServer
from workloads.consumer import PromptConsumer, taken_for_good
from workloads.fault import BrokerDown
from workloads.messages import (
    COMMAND,
    DELIVER,
    JOB_BYTES_MAX,
    RESULTS_QUEUE,
    RUN,
    BadMessage,
    Command,
    Job,
    decode,
    queue_for,
)
from workloads.transport import QUIET_WORKER, celery_settings

log = logging.getLogger("farm.worker")

ROOM_FOR_COMMANDS = 4

# It warns root of pickle, which is not accepted here.
warnings.simplefilter("ignore", SecurityWarning)


def serve(settings: HostSettings, server: AdbServer) -> None:
    """Run the agent until the process is told to stop."""
    app = Celery("farm.agent", set_as_current=False)
    app.conf.update(celery_settings(settings.broker, settings.host))
    app.conf.task_queues = [taken_for_good(queue_for(settings.host))]

    def send(parcels: Sequence[str]) -> None:
        try:
            args = [settings.host, list(parcels)]
            # Without argsrepr Celery would print all parcels for its own log.
            app.send_task(DELIVER, args=args, queue=RESULTS_QUEUE, retry=False, argsrepr="")
        except (OperationalError, OSError) as error:
            raise BrokerDown(f"the broker cannot be reached: {error}") from error

    host = HostAgent(settings, server, send)
    _register(app, host)
    # Told to stop, Celery waits for its threads; the lanes have to be cancelled for that to end.
    stopping = threading.Thread(target=host.stop, name="stopping")
    signals.worker_shutting_down.connect(lambda **_: stopping.start(), weak=False)
    worker = app.Worker(
        pool="threads",
        concurrency=settings.slots + ROOM_FOR_COMMANDS,
        queues=[queue_for(settings.host)],
        hostname=f"agent@{settings.host}",
        consumer_cls=PromptConsumer,
        **QUIET_WORKER,
    )
    host.start()
    worker.start()
    if stopping.ident is None:
        stopping.start()
    stopping.join()


def _register(app: Celery, host: HostAgent) -> None:
    @app.task(name=RUN)  # type: ignore[untyped-decorator]
    def _run(body: Any) -> None:
        try:
            host.run(decode(Job, body, JOB_BYTES_MAX))
        except BadMessage as error:
            log.warning("refused: %s", error)
        except Exception:  # a lane that fails must not take the worker with it
            log.exception("a job was not carried out")

    @app.task(name=COMMAND)  # type: ignore[untyped-decorator]
    def _command(body: Any) -> None:
        try:
            host.command(decode(Command, body, JOB_BYTES_MAX))
        except BadMessage as error:
            log.warning("refused: %s", error)
