"""Celery settings, queues and a consumer that reconnects fast, for the scheduler and the agents.

Celery is transport only: the database row is the job, and an agent resends every parcel until it is
confirmed, so a lost message is replaced anyway. Acknowledgements and a result backend are therefore
not needed, and the copy that the broker keeps of every unacknowledged message would cost as much as
the rest of the transport. Late acknowledgement would run a long job several times at once. No
prefetch, JSON only, no remote control.
"""

from functools import partial
from typing import Any

from celery.worker.consumer import Consumer
from kombu.entity import Queue

RETRY_S, RETRY_MAX_S = 0.2, 1.0


def celery_url(broker: str) -> str:
    """Return the broker's URL in the form that Celery expects."""
    return broker.replace("unix://", "redis+socket://", 1)


def celery_settings(broker: str, unacked: str) -> dict[str, Any]:
    """Return the settings of every Celery application.

    `unacked` makes the names of this side's bookkeeping keys unique: by default all workers share
    one hash, which any of them could read or delete.
    """
    return {
        "broker_url": celery_url(broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            "visibility_timeout": 24 * 3600,
            "socket_keepalive": True,
            "unacked_key": f"farm.unacked.{unacked}",
            "unacked_index_key": f"farm.unacked_index.{unacked}",
            "unacked_mutex_key": f"farm.unacked_mutex.{unacked}",
        },
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_acks_late": False,
        "task_ignore_result": True,
        "task_create_missing_queues": True,
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


def _ignore_ack(delivery_tag: str, multiple: bool = False) -> None:
    pass


class ReconnectingConsumer(Consumer):  # type: ignore[misc]
    """A consumer that tries to reconnect to a lost broker every second.

    Celery's own pauses grow to half a minute, and leases of undelivered jobs expire meanwhile.
    Celery has no setting for these pauses, but kombu, which waits, has.
    """

    def ensure_connected(self, conn: Any) -> Any:
        """Connect with short pauses between attempts, and disable acknowledgements."""
        pauses = {"interval_start": RETRY_S, "interval_step": RETRY_S, "interval_max": RETRY_MAX_S}
        conn.ensure_connection = partial(conn.ensure_connection, **pauses)
        connected = super().ensure_connected(conn)
        # Celery acknowledges even so; an acknowledgement that is not sent costs nothing.
        connected.default_channel.basic_ack = _ignore_ack
        return connected
