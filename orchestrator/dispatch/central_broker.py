"""The central side of Redis: heartbeats, confirmations and events.

No key is authoritative: every key may vanish at any moment and is then written again.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.store.enrolments import Access, HostAccess
from workloads.lab.redis_connection import RedisConnection
from workloads.protocol.base import Moment, WireModel
from workloads.protocol.host_user import USER_PREFIX, host_rights, host_user
from workloads.protocol.limits import EVENT_BYTES_MAX, HEARTBEAT_BYTES_MAX
from workloads.protocol.messages import (
    HEARTBEAT_KEYS,
    HOST_PATTERN,
    INGESTS_KEY,
    RESULTS_QUEUES,
    BadMessage,
    Event,
    HostHeartbeat,
    HostIdentity,
    IngestHeartbeat,
    Message,
    confirmed_key,
    decode,
    heartbeat_key,
    host_queue,
    ingest_key,
    results_queue,
)

SCHEDULER_KEY = "farm:scheduler"
EVENTS_KEY = "farm:events"

# Of hosts whose results were cut, and of those that may not connect for a while because of it.
CUT_KEYS, PAUSED_KEYS, CUT_PAUSE_S = "farm:cut:", "farm:paused:", 60
HEARTBEAT_TTL_MAX_S = 60  # of a heartbeat that was sent without one

EVENTS_KEPT = 10_000
CONFIRMED_KEPT = 10_000
CONFIRMED_TTL_S = 600
SCHEDULER_TTL_S = 5
INGEST_TTL_S = 5
SETINFO_SINCE = (7, 2)
NAMES_MAX = 1000  # of hosts that the lab does not name, and of ingest services
SCAN_KEYS, SCAN_INTERVAL_S = 1000, 0.5


class SchedulerHeartbeat(WireModel):
    """The heartbeat of the scheduler."""

    sent_at: Moment


class ForeignClaim(NamedTuple):
    """A phone or a run that a host names although it belongs to another one."""

    name: str
    owner: str
    is_contested: bool = False  # the phone left this host before, and no operator said so


@dataclass(frozen=True)
class HostReading:
    """The last heartbeat of a host, or only its identity, or neither if it cannot be read."""

    host: str
    heartbeat: HostHeartbeat | None = None
    identity: HostIdentity | None = None
    claims: tuple[ForeignClaim, ...] = ()  # that were left out of the heartbeat


class CentralBroker(RedisConnection):
    """The central services' connection to the broker."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._last_beats: dict[str, tuple[bytes, HostReading]] = {}
        self._found: tuple[str, ...] = ()
        self._scanned_at = -math.inf
        self._users: dict[str, tuple[str, ...]] = {}  # that this process has set, with their rules

    def host_readings(self, lab: Collection[str] | None = None) -> list[HostReading]:
        """Return the last heartbeat of every live host, also one that cannot be decoded.

        `lab` names the hosts of the lab; others follow, so that they are shown.
        """
        names = [
            *sorted(lab or ()),
            *(name for name in self.found_hosts() if name not in (lab or ())),
        ]
        beats = self._beginnings([heartbeat_key(name) for name in names], HEARTBEAT_BYTES_MAX)
        last_beats, self._last_beats = self._last_beats, {}
        for host, beat in zip(names, beats, strict=True):
            if not beat:
                continue
            last = last_beats.get(host)  # unchanged since the last poll as a rule
            if last is None or last[0] != beat:
                last = (beat, _read_beat(host, beat))
            self._last_beats[host] = last
        return [reading for _, reading in self._last_beats.values()]

    def heartbeats(self, lab: Collection[str] | None = None) -> list[HostHeartbeat]:
        """Return the heartbeats that have not expired, without those that cannot be decoded."""
        readings = self.host_readings(lab)
        return [item.heartbeat for item in readings if item.heartbeat is not None]

    def found_hosts(self) -> tuple[str, ...]:
        """Return the names in the keys of heartbeats and results, so that no key has to list them.

        Names that were there before come first: a flood of new ones displaces none of them.
        """
        now = time.monotonic()
        if now - self._scanned_at > SCAN_INTERVAL_S:
            with self._translated():
                keys = set(self._redis.scan_iter("farm[.:]*", SCAN_KEYS))
            texts = (key.decode(errors="replace") for key in keys)
            names = {
                text.removeprefix(prefix)
                for text in texts
                for prefix in (HEARTBEAT_KEYS, RESULTS_QUEUES)
                if text.startswith(prefix)
            }
            named = {name for name in names if re.fullmatch(HOST_PATTERN, name)}
            kept = [name for name in self._found if name in named]
            self._found = (*kept, *sorted(named.difference(kept)))[:NAMES_MAX]
            self._scanned_at = now
        return self._found

    def set_host_users(self, accesses: Sequence[HostAccess]) -> None:
        """Create the users of hosts that lack one or have a new password; delete all others."""
        wanted = {
            host_user(item.host): (item.host, item.password_digest)
            for item in accesses
            if item.access is not Access.REVOKED and item.password_digest
        }
        with self._translated():
            hosts = [host for host, _ in wanted.values()]
            paused = self._redis.mget([f"{PAUSED_KEYS}{host}" for host in hosts]) if hosts else []
            for host, is_paused in zip(hosts, paused, strict=True):
                if is_paused:
                    del wanted[host_user(host)]
            found = set(self._redis.acl_users())
            stale = {
                user
                for user in found
                if user.startswith(USER_PREFIX) and self._password_of(user) != wanted.get(user)
            }
            if stale:
                self._redis.acl_deluser(*stale)  # it also ends the connections of these users
            has_setinfo = self._version() >= SETINFO_SINCE
            for user, (host, digest) in wanted.items():
                rules = ("reset", "on", f"#{digest}", *host_rights(host, has_setinfo))
                # Another version of Farmhand may have given it other rights.
                if user not in found - stale or self._users.get(user) != rules:
                    self._redis.execute_command("ACL SETUSER", user, *rules)
                    self._users[user] = rules

    def host_memory(self, hosts: Sequence[str]) -> dict[str, int]:
        """Return the bytes that the results of each host take in the broker."""
        with self._translated(), self._redis.pipeline(transaction=False) as pipe:
            for host in hosts:
                pipe.memory_usage(results_queue(host), samples=0)  # 0: all of it, not an estimate
            return {host: int(size or 0) for host, size in zip(hosts, pipe.execute(), strict=True)}

    def memory_limit(self) -> int:
        """Return how much memory the broker may take; 0: it has no limit."""
        with self._translated():
            return int(self._redis.info("memory").get("maxmemory", 0))

    def forget_host(self, host: str) -> None:
        """Delete what is queued for and from a host that does not belong to the lab."""
        keys = (results_queue(host), host_queue(host), confirmed_key(host))
        with self._translated():
            self._redis.unlink(*keys)
            self._redis.expire(heartbeat_key(host), HEARTBEAT_TTL_MAX_S, nx=True)

    def cut_results(self, host: str) -> None:
        """Delete the queued results of a host; its agent sends them again from its spool.

        A host whose results were cut before has to wait until it may connect again.
        """
        with self._translated():
            self._redis.delete(results_queue(host))  # not UNLINK: the memory is needed now
            if not self._redis.set(f"{CUT_KEYS}{host}", 1, ex=CUT_PAUSE_S, nx=True):
                self._pause(host)

    def limit_connections(self, most: int) -> dict[str, int]:
        """End the connections of hosts that have too many, and let these hosts wait; return them.

        The broker takes a limited number of connections, and all are listed only if they are many.
        """
        with self._translated():
            if int(self._redis.info("clients")["connected_clients"]) <= most:
                return {}
            users = Counter(client.get("user", "") for client in self._redis.client_list())
            crowded = {
                user.removeprefix(USER_PREFIX): count
                for user, count in users.items()
                if user.startswith(USER_PREFIX) and count > most
            }
            for host in crowded:
                self._pause(host)
        return crowded

    def _pause(self, host: str) -> None:
        self._redis.set(f"{PAUSED_KEYS}{host}", 1, ex=CUT_PAUSE_S)
        if host_user(host) in self._redis.acl_users():
            self._redis.acl_deluser(host_user(host))  # it also ends its connections

    def limit_heartbeats(self, hosts: Sequence[str]) -> list[str]:
        """Delete heartbeats that are too long, let all expire; return whose were deleted."""
        keys = [heartbeat_key(host) for host in hosts]
        with self._translated(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.memory_usage(key)
                pipe.expire(key, HEARTBEAT_TTL_MAX_S, nx=True)
            sizes = pipe.execute()[::2]
        long = [
            host
            for host, size in zip(hosts, sizes, strict=True)
            if (size or 0) > 2 * HEARTBEAT_BYTES_MAX
        ]
        if long:
            with self._translated():
                self._redis.unlink(*(heartbeat_key(host) for host in long))
        return long

    def _version(self) -> tuple[int, ...]:
        version = str(self._redis.info("server").get("redis_version", ""))
        return tuple(int(part) for part in version.split(".") if part.isdecimal())

    def _password_of(self, user: str) -> tuple[str, str]:
        entry = self._redis.acl_getuser(user) or {}
        return user.removeprefix(USER_PREFIX), "".join(entry.get("passwords", []))

    def publish_ingest(self, instance: str, heartbeat: IngestHeartbeat) -> None:
        """Show that an ingest service is alive."""
        self._repaired(INGESTS_KEY, lambda: self._redis.sadd(INGESTS_KEY, instance))
        with self._translated():
            text = heartbeat.model_dump_json()
            self._redis.set(ingest_key(instance), text, ex=INGEST_TTL_S)

    def ingest_services(self) -> list[IngestHeartbeat]:
        """Return the heartbeats of the ingest services that are alive."""
        beats = self._values(INGESTS_KEY, ingest_key)
        read = (_read(IngestHeartbeat, beat, HEARTBEAT_BYTES_MAX) for beat in beats.values())
        return [beat for beat in read if beat is not None]

    def _names(self, key: str) -> list[str]:
        """Return the members of a set of names; too many are deleted, and real ones come back."""
        members = self._repaired(key, lambda: self._redis.srandmember(key, NAMES_MAX))
        if len(members) == NAMES_MAX:
            with self._translated():
                self._redis.delete(key)
        names = (member.decode(errors="replace") for member in members)
        return sorted(name for name in names if re.fullmatch(HOST_PATTERN, name))

    def _values(self, key: str, key_of: Callable[[str], str]) -> dict[str, bytes]:
        """Return the values of the members of a set that have one."""
        names = self._names(key)
        with self._translated():
            values = self._redis.mget([key_of(name) for name in names]) if names else []
        return {name: value for name, value in zip(names, values, strict=True) if value}

    def confirm(self, host: str, parcels: Sequence[str], events: Sequence[Event] = ()) -> None:
        """Confirm to a host that parcels are stored, and publish events."""
        keys = (confirmed_key(host), EVENTS_KEY)
        self._repaired(keys, lambda: self._send_confirmed(host, parcels, events))

    def _send_confirmed(self, host: str, parcels: Sequence[str], events: Sequence[Event]) -> None:
        with self._redis.pipeline(transaction=False) as pipe:
            if parcels:
                pipe.rpush(confirmed_key(host), *parcels)
                pipe.ltrim(confirmed_key(host), -CONFIRMED_KEPT, -1)
                pipe.expire(confirmed_key(host), CONFIRMED_TTL_S)
            for event in events:
                entry = {"e": event.model_dump_json()}
                pipe.xadd(EVENTS_KEY, entry, maxlen=EVENTS_KEPT, approximate=True)
            pipe.execute()

    def publish_scheduler(self, heartbeat: SchedulerHeartbeat) -> None:
        """Show that a scheduler is alive; this expires unless it is published again."""
        with self._translated():
            self._redis.set(SCHEDULER_KEY, heartbeat.model_dump_json(), ex=SCHEDULER_TTL_S)

    def scheduler(self) -> SchedulerHeartbeat | None:
        """Return the heartbeat of the scheduler, or None without a readable one."""
        with self._translated():
            # In contrast to GET, MGET ignores other types.
            (text,) = self._redis.mget([SCHEDULER_KEY])
        return _read(SchedulerHeartbeat, text, HEARTBEAT_BYTES_MAX) if text else None

    def publish_event(self, event: Event) -> None:
        """Publish an event."""
        self.confirm("", (), (event,))

    def newest_cursor(self) -> str:
        """Return the cursor behind the newest event."""
        newest = self._newest_entries(1)
        return str(newest[0][0].decode()) if newest else "0-0"

    def latest_events(self, count: int) -> tuple[str, list[Event]]:
        """Return the newest events, oldest first, and the cursor behind them."""
        entries = list(reversed(self._newest_entries(count)))
        return (entries[-1][0].decode() if entries else "0-0"), _events(entries)

    def _newest_entries(self, count: int) -> Any:
        return self._repaired(EVENTS_KEY, lambda: self._redis.xrevrange(EVENTS_KEY, count=count))

    def events(self, cursor: str, wait_s: float) -> tuple[str, list[Event]]:
        """Return the events after a cursor, and the new cursor; wait for events up to `wait_s`.

        A broker that lost its data starts with low ids again: a cursor above them is reset.
        """
        wait_ms = max(1, int(wait_s * 1000))
        streams = self._repaired(
            EVENTS_KEY, lambda: self._redis.xread({EVENTS_KEY: cursor}, 500, wait_ms)
        )
        entries = streams[0][1] if streams else []
        if not entries and _entry_id(self.newest_cursor()) < _entry_id(cursor):
            cursor = "0-0"
        return (entries[-1][0].decode() if entries else cursor), _events(entries)


def _read(kind: type[Message], text: bytes, limit: int) -> Message | None:
    """Decode what was read from Redis; what cannot be decoded is absent."""
    try:
        return decode(kind, text, limit)
    except BadMessage:
        return None


def _read_beat(host: str, beat: bytes) -> HostReading:
    heartbeat = _read(HostHeartbeat, beat, HEARTBEAT_BYTES_MAX)
    if heartbeat is not None and heartbeat.host == host:
        return HostReading(host, heartbeat=heartbeat)
    identity = _read(HostIdentity, beat, HEARTBEAT_BYTES_MAX)
    return HostReading(host, identity=identity if identity and identity.host == host else None)


def _events(entries: Sequence[Any]) -> list[Event]:
    """Decode the entries of the event stream, without those that cannot be decoded."""
    read = (_read(Event, fields.get(b"e", b""), EVENT_BYTES_MAX) for _, fields in entries)
    return [event for event in read if event is not None]


def _entry_id(entry: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split("-"))
