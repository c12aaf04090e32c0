"""The agent's side of Redis: it publishes heartbeats and receives confirmations."""

from workloads.lab.redis_connection import RedisConnection
from workloads.protocol.messages import HostHeartbeat, confirmed_key, heartbeat_key

HEARTBEAT_TTL_S = 5
CONFIRMATIONS_MAX = 500


class HostBroker(RedisConnection):
    """The agent's connection to the broker."""

    def __init__(self, url: str, host: str) -> None:
        super().__init__(url)
        self._host = host

    def publish_heartbeat(self, heartbeat: HostHeartbeat) -> bytes | None:
        """Show that the host is alive, and its phones; return the heartbeat before this one.

        Without renewal it expires.
        """
        key, text = heartbeat_key(self._host), heartbeat.model_dump_json()
        before: bytes | None = self._repaired(
            key, lambda: self._redis.set(key, text, ex=HEARTBEAT_TTL_S, get=True)
        )
        return before

    def withdraw_heartbeat(self) -> None:
        """Delete the heartbeat: the agent stops on purpose."""
        with self._translated():
            self._redis.delete(heartbeat_key(self._host))

    def take_confirmations(self, wait_s: int) -> list[str]:
        """The ids of stored parcels; waits for the first one and takes all that are there."""
        key = confirmed_key(self._host)
        first = self._repaired(key, lambda: self._redis.blpop([key], timeout=wait_s))
        if first is None:
            return []
        rest = self._repaired(key, lambda: self._redis.lpop(key, CONFIRMATIONS_MAX)) or []
        return [item.decode(errors="replace") for item in (first[1], *rest)]
