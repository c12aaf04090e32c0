"""How the queue is set up: both ends must agree on it, so it stands here once.

The store's row is the job and Celery only carries it. So: early acknowledgement or none (a late one
runs a long job several times at once), no prefetch, JSON only, no results, no remote control.
"""

import re
from typing import Any


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    return re.sub(r"//[^@/]*@", "//***@", url)


def celery_url(broker: str) -> str:
    """Turn the broker's URL into Celery's spelling of it."""
    return broker.replace("unix://", "redis+socket://", 1)


def celery_settings(broker: str, unacked: str) -> dict[str, Any]:
    """The settings of every Celery application of the farm.

    `unacked` names this end's own bookkeeping keys: by default all workers share one hash, which
    any of them could read or delete.
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


# Workers do not speak of themselves: heartbeats and events are the farm's own.
QUIET_WORKER: dict[str, Any] = {
    "loglevel": "WARNING",
    "without_gossip": True,
    "without_mingle": True,
    "without_heartbeat": True,
    "quiet": True,
}
