"""The Redis door in the middle: heartbeats, confirmations, events. Foreign errors: BrokerDown.

Nothing here is the truth. Every key may vanish at any moment and comes back by itself.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis

from workloads.fault import BrokerDown, Refused
from workloads.transport import without_password

if TYPE_CHECKING:
    from workloads.messages import Event, Presence

# Messages are brought in where they are read: `farm status` reads the board alone, and at once.
BOARD_KEY = "farm:board"
EVENTS_KEY = "farm:events"

EVENTS_KEPT = 10_000
CONFIRMED_KEPT = 10_000
CONFIRMED_TTL_S = 600
BOARD_TTL_S = 5
PRESENCE_BYTES_MAX = 1024 * 1024
EVENT_BYTES_MAX = 64 * 1024


class Broker:
    """A connection to the broker, made when it is first needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        # The stubs describe every protocol and decoding at once; ours is one of them.
        options = {"socket_timeout": 10, "socket_connect_timeout": 3, "health_check_interval": 30}
        try:
            self._redis: Any = redis.Redis.from_url(url, protocol=2, **options)
        except ValueError as error:
            shown = without_password(url)
            raise Refused(f"the broker's URL {shown} cannot be used: {error}") from error
        self._heard: dict[str, tuple[bytes, Presence | None]] = {}

    def check(self) -> None:
        """Raise BrokerDown, in one sentence, unless the broker answers."""
        with self._translated():
            self._redis.ping()

    def is_open(self) -> bool:
        """Whether anybody who reaches it may use it: asked without a name and a password."""
        plain = re.sub(r"//[^@/]*@", "//", self.url)
        stranger = redis.Redis.from_url(plain, protocol=2, socket_timeout=3)
        try:
            stranger.ping()
        except redis.AuthenticationError:
            return False
        except redis.RedisError as error:
            if "NOAUTH" in str(error) or "NOPERM" in str(error) or "DENIED" in str(error):
                return False
            raise BrokerDown(f"the broker at {without_password(self.url)}: {error}") from error
        finally:
            stranger.close()
        return True

    def presences(self) -> "list[Presence]":
        """The heartbeats that have not expired; one that cannot be read counts as silence."""
        from workloads.messages import HOSTS_KEY, presence_key

        with self._translated():
            hosts = sorted(
                name.decode(errors="replace") for name in self._redis.smembers(HOSTS_KEY)
            )
            beats = self._redis.mget([presence_key(host) for host in hosts]) if hosts else []
        heard, self._heard = self._heard, {}
        for host, beat in zip(hosts, beats, strict=True):
            if beat:  # a host is looked at more often than it beats
                same = heard.get(host)
                found = same if same and same[0] == beat else (beat, _presence(host, beat))
                self._heard[host] = found
        return [presence for _, presence in self._heard.values() if presence is not None]

    def confirm(self, host: str, parcels: Sequence[str], events: "Sequence[Event]" = ()) -> None:
        """Tell a host what is stored for good, and everybody what happened."""
        from workloads.messages import confirmed_key

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

    def pin(self, board: dict[str, Any]) -> None:
        """Pin the board up for everybody; it falls off when it is not renewed."""
        with self._translated():
            self._redis.set(BOARD_KEY, json.dumps(board), ex=BOARD_TTL_S)

    def board(self) -> dict[str, Any] | None:
        """The board, or None when the scheduler is silent."""
        with self._translated():
            text = self._redis.get(BOARD_KEY)
        return dict(json.loads(text)) if text else None

    def tell(self, event: "Event") -> None:
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

    def close(self) -> None:
        """Let go of the connection."""
        self._redis.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            shown = without_password(self.url)
            raise BrokerDown(f"the broker at {shown} cannot be reached: {error}") from error


def _presence(host: str, beat: bytes) -> "Presence | None":
    from workloads.messages import BadMessage, Presence, decode

    try:
        presence = decode(Presence, beat, PRESENCE_BYTES_MAX)
    except BadMessage:
        return None
    return presence if presence.host == host else None


def _events(entries: Sequence[Any]) -> "list[Event]":
    """What the entries of the stream say; one that cannot be read is left out."""
    from workloads.messages import BadMessage, Event, decode

    events = []
    for _, fields in entries:
        try:
            events.append(decode(Event, fields.get(b"e", b""), EVENT_BYTES_MAX))
        except BadMessage:
            continue
    return events


def _moment(entry: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split("-"))
