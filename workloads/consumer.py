"""How both ends of the queue take messages: for good, and from a broker they find again at once.

The store's row is the job, and an agent resends what is not confirmed. So a message that is lost
with whoever took it is replaced anyway, and the broker need not keep a copy until it is
acknowledged: that would cost as much as all the rest of the way.
"""

from functools import partial
from typing import Any

from celery.worker.consumer import Consumer
from kombu.entity import Queue

RETRY_S, RETRY_MAX_S = 0.2, 1.0


def taken_for_good(name: str) -> Queue:
    """A queue whose messages need no acknowledgement."""
    return Queue(name, routing_key=name, no_ack=True)  # type: ignore[no-untyped-call]


def _no_need(delivery_tag: str, multiple: bool = False) -> None:
    pass


class PromptConsumer(Consumer):  # type: ignore[misc]
    """A consumer that looks for a lost broker every second.

    Left alone it would come to wait for half a minute, while the leases of jobs that nobody takes
    run out. Celery has no setting for its pauses; kombu, which makes them, has.
    """

    def ensure_connected(self, conn: Any) -> Any:
        """Try again soon, and then every second."""
        pauses = {"interval_start": RETRY_S, "interval_step": RETRY_S, "interval_max": RETRY_MAX_S}
        conn.ensure_connection = partial(conn.ensure_connection, **pauses)
        connected = super().ensure_connected(conn)
        # Celery acknowledges all the same; without a word to the broker it costs nothing.
        connected.default_channel.basic_ack = _no_need
        return connected
