"""The central side of Redis: heartbeats, confirmations, events and the status.

No key is authoritative: every key may vanish at any moment and is then written again.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workloads.protocol.limits import EVENT_BYTES_MAX, HEARTBEAT_BYTES_MAX
from workloads.redis_connection import RedisConnection

if TYPE_CHECKING:
    from workloads.protocol.messages import Event, HostHeartbeat

# Functions import the messages themselves: `farm status` reads only the status and must start fast.
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
        self._last_beats: dict[str, tuple[bytes, HostHeartbeat | None]] = {}

    def heartbeats(self) -> "list[HostHeartbeat]":
        """Return the heartbeats that have not expired, without those that cannot be decoded."""
        from workloads.protocol.messages import HOSTS_KEY, heartbeat_key

        with self._translated():
            hosts = sorted(
                name.decode(errors="replace") for name in self._redis.smembers(HOSTS_KEY)
            )
            beats = self._redis.mget([heartbeat_key(host) for host in hosts]) if hosts else []
        last_beats, self._last_beats = self._last_beats, {}
        for host, beat in zip(hosts, beats, strict=True):
            if beat:  # unchanged since the last poll as a rule: do not decode it again
                last = last_beats.get(host)
                if last is None or last[0] != beat:
                    last = (beat, _decode_beat(host, beat))
                self._last_beats[host] = last
        return [heartbeat for _, heartbeat in self._last_beats.values() if heartbeat is not None]

    def confirm(self, host: str, parcels: Sequence[str], events: "Sequence[Event]" = ()) -> None:
        """Confirm to a host that parcels are stored, and publish events."""
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
        """Publish the status of the lab; it expires unless it is published again."""
        with self._translated():
            self._redis.set(STATUS_KEY, json.dumps(board), ex=BOARD_TTL_S)

    def status(self) -> dict[str, Any] | None:
        """Return the status of the lab, or None while no scheduler publishes it."""
        with self._translated():
            text = self._redis.get(STATUS_KEY)
        return dict(json.loads(text)) if text else None

    def publish_event(self, event: "Event") -> None:
        """Publish an event."""
        self.confirm("", (), (event,))

    def newest_cursor(self) -> str:
        """Return the cursor behind the newest event."""
        with self._translated():
            newest = self._redis.xrevrange(EVENTS_KEY, count=1)
        return str(newest[0][0].decode()) if newest else "0-0"

    def latest_events(self, count: int) -> "tuple[str, list[Event]]":
        """Return the newest events, oldest first, and the cursor behind them."""
        with self._translated():
            entries = list(reversed(self._redis.xrevrange(EVENTS_KEY, count=count)))
        return (entries[-1][0].decode() if entries else "0-0"), _events(entries)

    def events(self, cursor: str, wait_s: float) -> "tuple[str, list[Event]]":
        """Return the events after a cursor, and the new cursor; wait for events up to `wait_s`.

        A broker that lost its data starts with low ids again: a cursor above them is reset.
        """
        with self._translated():
            streams = self._redis.xread({EVENTS_KEY: cursor}, 500, max(1, int(wait_s * 1000)))
            entries = streams[0][1] if streams else []
            if not entries and _entry_id(self.newest_cursor()) < _entry_id(cursor):
                cursor = "0-0"
        return (entries[-1][0].decode() if entries else cursor), _events(entries)


def _decode_beat(host: str, beat: bytes) -> "HostHeartbeat | None":
    from workloads.protocol.messages import BadMessage, HostHeartbeat, decode

    try:
        heartbeat = decode(HostHeartbeat, beat, HEARTBEAT_BYTES_MAX)
    except BadMessage:
        return None
    return heartbeat if heartbeat.host == host else None


def _events(entries: Sequence[Any]) -> "list[Event]":
    """Decode the entries of the event stream, without those that cannot be decoded."""
    from workloads.protocol.messages import BadMessage, Event, decode

    events = []
    for _, fields in entries:
        try:
            events.append(decode(Event, fields.get(b"e", b""), EVENT_BYTES_MAX))
        except BadMessage:
            continue
    return events


def _entry_id(entry: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split("-"))
