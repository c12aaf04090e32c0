"""The peer of plumbing.py: a bare Celery request and reply, on the same broker.

It has the settings of Farmhand, and takes messages off the queue as Celery does by default.

`python -m benchmarks.bare_celery request|reply BROKER COUNT` runs one end.
"""

import sys
import threading
import time
import warnings

from celery import Celery
from celery.exceptions import SecurityWarning

from workloads.lab.celery_setup import QUIET_WORKER, celery_settings

warnings.simplefilter("ignore", SecurityWarning)  # about root and pickle, as in the farm

REQUESTS, REPLIES = "bare.requests", "bare.replies"


def application(broker: str, name: str) -> Celery:
    """Build a Celery application with the settings of Farmhand, on the transport as it comes.

    Farmhand switches acknowledgements, bindings and priorities of the transport off.
    """
    app = Celery(f"bare.{name}", set_as_current=False)
    app.conf.update(celery_settings(broker) | {"task_default_exchange": "celery"})
    app.conf.broker_transport_options = {"visibility_timeout": 24 * 3600, "socket_keepalive": True}
    return app


def send(broker: str, count: int) -> None:
    """Send the requests as fast as possible."""
    app = application(broker, "sender")
    for number in range(count):
        app.send_task("bare.request", args=[number], queue=REQUESTS)


def serve(role: str, broker: str, count: int) -> None:
    """Run one worker: it answers requests, or counts replies."""
    app = application(broker, role)
    counted = 0

    @app.task(name="bare.request")
    def request(number: int) -> None:
        app.send_task("bare.reply", args=[number], queue=REPLIES)

    @app.task(name="bare.reply")
    def reply(number: int) -> None:
        nonlocal counted
        counted += 1
        if counted == count:
            print(f"{time.time():.6f}", flush=True)

    worker = app.Worker(
        pool="threads" if role == "request" else "solo",
        concurrency=64 if role == "request" else 1,
        queues=[REQUESTS if role == "request" else REPLIES],
        hostname=f"{role}@bare",
        **QUIET_WORKER,
    )
    threading.Thread(target=lambda: print("ready", flush=True)).start()
    worker.start()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
