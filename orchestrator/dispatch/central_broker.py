"""The central side of Redis: heartbeats, confirmations, events and the status board.

Nothing here is authoritative: every key may vanish at any moment and is written again.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workloads.protocol.limits import EVENT_BYTES_MAX, HEARTBEAT_BYTES_MAX
from workloads.redis_connection import RedisConnection

if TYPE_CHECKING:
    from workloads.protocol.messages import Event, HostHeartbeat

# Messages are brought in where they are read: `farm status` reads the board alone, and at once.
STATUS_KEY = "farm:status"
EVENTS_KEY = "farm:events"

EVENTS_KEPT = 10_000
CONFIRMED_KEPT = 10_000
CONFIRMED_TTL_S = 600
BOARD_TTL_S = 5


class CentralBroker(RedisConnection):
    """The central services' connection to the broker."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._heard: dict[str, tuple[bytes, HostHeartbeat | None]] = {}

    def presences(self) -> "list[HostHeartbeat]":
        """The heartbeats that have not expired; one that cannot be read counts as silence."""
        from workloads.protocol.messages import HOSTS_KEY, heartbeat_key

        with self._translated():
            hosts = sorted(
                name.decode(errors="replace") for name in self._redis.smembers(HOSTS_KEY)
            )
            beats = self._redis.mget([heartbeat_key(host) for host in hosts]) if hosts else []
        heard, self._heard = self._heard, {}
        for host, beat in zip(hosts, beats, strict=True):
            if beat:  # a host is looked at more often than it beats
                same = heard.get(host)
                found = same if same and same[0] == beat else (beat, _presence(host, beat))
                self._heard[host] = found
        return [presence for _, presence in self._heard.values() if presence is not None]

    def confirm(self, host: str, parcels: Sequence[str], events: "Sequence[Event]" = ()) -> None:
        """Tell a host what is stored for good, and everybody what happened."""
        from workloads.protocol.messages import confirmed_key

        with self._translated(), self._redis.pipeline(transaction=False) as pipe:
            if parcels:
                pipe.rpush(confirmed_key(host), *parcels)
                pipe.ltrim(confirmed_key(host), -CONFIRMED_KEPT, -1)
                pipe.expire(confirmed_key(host), CONFIRMED_TTL_S)
            for event in events:
                pipe.xadd(
                    EVENTS_KEY, {"e": event.model_dump_json()}, maxlen=EVENTS_KEPT, approximate=True
                )
            pipe.execute()

    def publish_status(self, board: dict[str, Any]) -> None:
        """Pin the board up for everybody; it falls off when it is not renewed."""
        with self._translated():
            self._redis.set(STATUS_KEY, json.dumps(board), ex=BOARD_TTL_S)

    def status(self) -> dict[str, Any] | None:
        """The board, or None when the scheduler is silent."""
        with self._translated():
            text = self._redis.get(STATUS_KEY)
        return dict(json.loads(text)) if text else None

    def publish_event(self, event: "Event") -> None:
        """Tell everybody what happened."""
        self.confirm("", (), (event,))

    def newest_event(self) -> str:
        """A cursor that skips everything up to now."""
        with self._translated():
            newest = self._redis.xrevrange(EVENTS_KEY, count=1)
        return str(newest[0][0].decode()) if newest else "0-0"

    def latest_events(self, count: int) -> "tuple[str, list[Event]]":
        """The last few things that happened, and the cursor that stands behind them."""
        with self._translated():
            entries = list(reversed(self._redis.xrevrange(EVENTS_KEY, count=count)))
        return (entries[-1][0].decode() if entries else "0-0"), _events(entries)

    def events(self, cursor: str, wait_s: float) -> "tuple[str, list[Event]]":
        """What happened after the cursor; waits for it, but no longer than asked.

        A cursor from before the broker lost its memory lies in its future: start over then.
        """
        with self._translated():
            streams = self._redis.xread({EVENTS_KEY: cursor}, 500, max(1, int(wait_s * 1000)))
            entries = streams[0][1] if streams else []
            if not entries and _moment(self.newest_event()) < _moment(cursor):
                cursor = "0-0"
        return (entries[-1][0].decode() if entries else cursor), _events(entries)


def _presence(host: str, beat: bytes) -> "HostHeartbeat | None":
    from workloads.protocol.messages import BadMessage, HostHeartbeat, decode

    try:
        presence = decode(HostHeartbeat, beat, HEARTBEAT_BYTES_MAX)
    except BadMessage:
        return None
    return presence if presence.host == host else None


def _events(entries: Sequence[Any]) -> "list[Event]":
    """What the entries of the stream say; one that cannot be read is left out."""
    from workloads.protocol.messages import BadMessage, Event, decode

    events = []
    for _, fields in entries:
        try:
            events.append(decode(Event, fields.get(b"e", b""), EVENT_BYTES_MAX))
        except BadMessage:
            continue
    return events


def _moment(entry: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split("-"))
