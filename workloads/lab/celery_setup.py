"""Celery settings, queues, sending, and a consumer that checks messages, for both sides.

Celery is transport only: the database row is the job, and an agent resends every parcel until it is
confirmed, so a lost message is replaced anyway. Acknowledgements and a result backend are therefore
not needed, and the copy that the broker keeps of every unacknowledged message would cost as much as
the rest of the transport. Late acknowledgement would run a long job several times at once. No
prefetch, JSON only, no remote control.
"""

import logging
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

from celery import Celery, signals
from celery.apps.worker import Worker
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.worker import state as worker_state
from celery.worker.consumer import Consumer
from kombu.entity import Queue
from kombu.exceptions import KombuError
from kombu.transport.redis import get_redis_error_classes

from workloads.lab.connection_url import refuse_unverified
from workloads.protocol.envelope import MessageFilter
from workloads.protocol.faults import BrokerDown

log = logging.getLogger("farm.queue")

RETRY_S, RETRY_MAX_S = 0.2, 1.0
_CONNECTION_ERRORS, _REFUSALS = get_redis_error_classes()  # type: ignore[no-untyped-call]

# Celery warns when root accepts pickle; celery_settings does not accept it.
warnings.simplefilter("ignore", SecurityWarning)
# It warns at every lost connection of a setting that concerns acknowledgements.
warnings.simplefilter("ignore", CPendingDeprecationWarning)


class SilentWorker(Worker):  # type: ignore[misc]
    """A worker that a signal stops; Celery's own handlers write to the terminal."""

    def install_platform_tweaks(self, worker: Any) -> None:
        """Stop at the first signal; those that are ignored, such as after nohup, stay ignored."""

        def stop(number: int, _: object) -> None:
            if worker_state.should_stop is None:
                worker_state.should_stop = 0
                name = signal.Signals(number).name
                details = {"sig": name, "how": "Warm", "exitcode": 0}
                signals.worker_shutting_down.send(sender=worker.hostname, **details)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, stop)


class FarmCelery(Celery):  # type: ignore[misc]
    """A Celery application whose messages ask for no reply, with a silent worker."""

    thread_oid = ""

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name
        """Return the class of this application's worker."""
        return self.subclass_with_self(SilentWorker, name="Worker", reverse="Worker")


def celery_app(name: str, broker: str) -> FarmCelery:
    """Return an application with the settings of every application."""
    app = FarmCelery(name, set_as_current=False)
    app.conf.update(celery_settings(broker))
    return app


@contextmanager
def broker_errors() -> Iterator[None]:
    """Turn the errors of sending into BrokerDown, also a refusal of the broker."""
    try:
        yield
    except (KombuError, *_CONNECTION_ERRORS, *_REFUSALS) as error:
        raise BrokerDown(f"a message cannot be sent: {error}") from error


def send_task(
    app: Celery,
    name: str,
    argument: str | list[str],
    queue: str,
    expires_s: float | None = None,
    producer: Any = None,
) -> None:
    """Send a message in the only form that a MessageFilter admits."""
    expires = None if expires_s is None else datetime.now(UTC) + timedelta(seconds=expires_s)
    app.send_task(
        name,
        args=[argument],
        queue=queue,
        expires=expires,
        retry=False,
        ignore_result=True,
        declare=[],  # a queue is a list, which needs no declaration
        argsrepr="",  # otherwise Celery formats the whole argument for its log
        producer=producer,
    )


def celery_url(broker: str) -> str:
    """Return the broker's URL in the form that Celery expects.

    Its TLS options are part of it: without them kombu would accept any server.
    """
    refuse_unverified(broker)
    return broker.replace("unix://", "redis+socket://", 1)


def celery_settings(broker: str) -> dict[str, Any]:
    """Return the settings of every Celery application."""
    return {
        "broker_url": celery_url(broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            "socket_keepalive": True,
            "priority_steps": [0],  # one list per queue
            "ack_emulation": False,  # else messages in a hash of the broker would be sent on
        },
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_acks_late": False,
        "task_ignore_result": True,
        "task_create_missing_queues": True,
        "task_default_exchange": "",  # messages go to queues by name; no bindings are kept
        "worker_disable_prefetch": True,
        "worker_enable_remote_control": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_send_task_events": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_proc_alive_timeout": 30.0,
        "enable_utc": True,
    }


# Celery's gossip, heartbeats and banner are off: Farmhand has its own heartbeats and events.
QUIET_WORKER: dict[str, Any] = {
    "loglevel": "WARNING",
    "without_gossip": True,
    "without_mingle": True,
    "without_heartbeat": True,
    "quiet": True,
}


def no_ack_queue(name: str) -> Queue:
    """Return a queue whose messages need no acknowledgement."""
    return Queue(name, routing_key=name, no_ack=True)  # type: ignore[no-untyped-call]


def _ignore_size(queue: str) -> int:
    return 0


def _ignore_ack(delivery_tag: str, multiple: bool = False) -> None:
    pass


def checked_consumer(message_filter: MessageFilter) -> type[Consumer]:
    """Return a consumer whose messages have passed a filter."""
    return type("FilteringConsumer", (CheckedConsumer,), {"message_filter": message_filter})


class CheckedConsumer(Consumer):  # type: ignore[misc]
    """A consumer that drops bad messages, and tries to reconnect to a lost broker every second.

    Celery's own pauses grow to half a minute, and leases of undelivered jobs would expire by then.
    Celery has no setting for these pauses, but kombu, which waits, has.
    """

    message_filter: MessageFilter

    def ensure_connected(self, conn: Any) -> Any:
        """Connect with short pauses between attempts, and set up the channel."""
        pauses = {"interval_start": RETRY_S, "interval_step": RETRY_S, "interval_max": RETRY_MAX_S}
        conn.ensure_connection = partial(conn.ensure_connection, **pauses)
        while True:
            try:
                connected = super().ensure_connected(conn)
                channel = connected.default_channel
                break
            except _REFUSALS as error:
                log.warning("the broker refuses this user: %s; check its rights", error)
                time.sleep(RETRY_MAX_S)
        # Celery acknowledges even so; an acknowledgement that is not sent costs nothing.
        channel.basic_ack = _ignore_ack
        channel._size = _ignore_size  # nor is the length of a queue of any use
        channel.client.parse_response = partial(
            _read_checked, channel, channel.client.parse_response, self.message_filter
        )
        return connected


def _read_checked(
    channel: Any,
    read: Any,
    message_filter: MessageFilter,
    connection: Any,
    command: str,
    **options: Any,
) -> Any:
    """Read a reply of the broker; a message that the filter drops counts as no message."""
    try:
        reply = read(connection, command, **options)
    except _REFUSALS as error:
        if command != "BRPOP":
            raise
        _delete_other_types(channel)
        time.sleep(RETRY_MAX_S)
        raise ConnectionResetError(f"the broker refuses to read the queue: {error}") from None
    if command == "BRPOP" and reply and not message_filter.admits(reply[0].decode(), reply[1]):
        return None
    return reply


def _delete_other_types(channel: Any) -> None:
    """Delete a key with the name of a queue and another type; it would block the queue."""
    try:
        with channel.conn_or_acquire() as client:
            for queue in channel.active_queues:
                if client.type(queue) not in (b"list", b"none"):
                    log.warning("deleted the key %s, which is not a queue", queue)
                    client.delete(queue)
    except _REFUSALS as error:
        log.warning("the broker refuses this user: %s; check its rights", error)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Log a lost connection as one line."""
    if record.levelno < logging.ERROR:
        record.exc_info = record.exc_text = None
    return True


logging.getLogger("celery.worker.consumer.consumer").addFilter(_without_traceback)
