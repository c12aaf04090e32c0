"""The agent's Redis door: heartbeats go out, confirmations come in. Foreign errors: BrokerDown."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from workloads.fault import BrokerDown, Refused
from workloads.messages import (
    HOSTS_KEY,
    Presence,
    confirmed_key,
    presence_key,
)
from workloads.transport import without_password

PRESENCE_TTL_S = 5


class Broker:
    """A connection to the broker, made when it is first needed."""

    def __init__(self, url: str, host: str) -> None:
        self.url = url
        self._host = host
        # The stubs describe every protocol and decoding at once; ours is one of them.
        options = {"socket_timeout": 10, "socket_connect_timeout": 3, "health_check_interval": 30}
        try:
            self._redis: Any = redis.Redis.from_url(url, protocol=2, **options)
        except ValueError as error:
            shown = without_password(url)
            raise Refused(f"the broker's URL {shown} cannot be used: {error}") from error

    def beat(self, presence: Presence) -> None:
        """Show that the host is alive, and with what; silence erases it."""
        with self._translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.sadd(HOSTS_KEY, self._host)
            pipe.set(presence_key(self._host), presence.model_dump_json(), ex=PRESENCE_TTL_S)
            pipe.execute()

    def leave(self) -> None:
        """Erase the heartbeat: the host goes on purpose."""
        with self._translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.delete(presence_key(self._host))
            pipe.srem(HOSTS_KEY, self._host)
            pipe.execute()

    def confirmed(self, wait_s: int) -> list[str]:
        """Parcels that the centre has stored; waits for the first, takes all that are there."""
        key = confirmed_key(self._host)
        with self._translated():
            first = self._redis.blpop([key], timeout=wait_s)
            if first is None:
                return []
            rest = self._redis.lpop(key, 500) or []
        return [item.decode(errors="replace") for item in (first[1], *rest)]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            shown = without_password(self.url)
            raise BrokerDown(f"the broker at {shown} cannot be reached: {error}") from error
