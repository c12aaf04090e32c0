"""The scheduler: each tick reads heartbeats and store, and gives each idle phone its next run.

The loop around the tick decides nothing. It waits for the next event, so a finished run is followed
at once; it also wakes up by itself, so a lost event only costs a short delay.
"""

import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.job_queue import JobQueue
from orchestrator.dispatch.scheduler_history import SchedulerHistory
from orchestrator.dispatch.status_board import build_status
from orchestrator.store import budget_pauses, leases, phone_health, phone_queries
from orchestrator.store.database import Database
from orchestrator.store.phone_health import health_event
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.messages import Command, CommandKind, Event, EventKind, HostHeartbeat, RunId

log = logging.getLogger("farm.scheduler")

EVENT_WAIT_S = 0.2
HEARTBEAT_POLL_INTERVAL_S = 0.2
STATUS_INTERVAL_S = 1.0
# Not after a fault: the phone may be gone, so its heartbeat is read first.
CLEAN_ENDS = frozenset({EventKind.ACCEPTED, EventKind.VOID})
RETRY_INTERVAL_S = 0.5
FACTS_REQUEST_INTERVAL_S = 5.0
SUSPECT_POLL_INTERVAL_S, CHECK_INTERVAL_S = 1.0, 60.0
CANCEL_INTERVAL_S = 2.0


@dataclass(frozen=True)
class HeartbeatSummary:
    """The content of all heartbeats, sorted for the tick."""

    running: dict[RunId, str]  # the host of each run
    idle: dict[str, str]  # the host of each idle phone
    unconfirmed: dict[str, RunId]  # idle if the store knows the end of this run
    unknown_hosts: frozenset[str]  # with phones whose facts the store lacks
    flaps: dict[str, int] = field(default_factory=dict)


def summarize_heartbeats(
    heartbeats: Sequence[HostHeartbeat], known: dict[str, str]
) -> HeartbeatSummary:
    """Sort heartbeats: which runs are running, which phones are idle, which facts are missing.

    The store decides whether a phone is idle. A heartbeat that still shows the last run of a phone
    is merely late, unless the store has no report of that run yet (unconfirmed). A phone that two
    hosts claim is not used until only one of them claims it.
    """
    running: dict[RunId, str] = {}
    idle: dict[str, str] = {}
    unconfirmed: dict[str, RunId] = {}
    unknown_hosts: set[str] = set()
    claims: Counter[str] = Counter()
    for beat in heartbeats:
        present = [phone for phone in beat.phones if phone.state in ("idle", "busy")]
        running |= {phone.run: beat.host for phone in beat.phones if phone.run is not None}
        claims.update(phone.serial for phone in present)
        for phone in present[: beat.max_parallel]:
            if phone.facts_digest is None or known.get(phone.serial) != phone.facts_digest:
                unknown_hosts.add(beat.host)
                continue
            idle[phone.serial] = beat.host
            if phone.run is not None:
                unconfirmed[phone.serial] = phone.run
    for serial, hosts in claims.items():
        if hosts > 1:  # guard: two-hosts-claim-a-phone
            idle.pop(serial, None)
    flaps = {
        phone.serial: phone.flaps for beat in heartbeats for phone in beat.phones if phone.flaps
    }
    return HeartbeatSummary(running, idle, unconfirmed, frozenset(unknown_hosts), flaps)


def clock_skews(
    heartbeats: Sequence[HostHeartbeat], now: datetime, lease_timeout_s: float
) -> dict[str, float]:
    """Return the hosts whose clock is wrong, and by how many seconds.

    The host that takes a job compares the job's expiry with its own clock. The delay of a heartbeat
    looks like a small error, so only errors that matter for a lease count.
    """
    skews = {beat.host: (beat.sent_at - now).total_seconds() for beat in heartbeats}
    return {
        host: skew
        for host, skew in skews.items()
        if abs(skew) > lease_timeout_s / 2  # guard: host-clock-skew
    }


class Scheduler:
    """Dispatches runs to idle phones; renews and expires leases."""

    def __init__(
        self, db: Database, broker: CentralBroker, queue: JobQueue, lease_timeout_s: float
    ) -> None:
        self._db = db
        self._broker = broker
        self._queue = queue
        self._lease_timeout_s = lease_timeout_s
        self._renewed_at = 0.0
        self._facts_requested_at: dict[str, float] = {}
        self._disconnected = True
        self._summary = HeartbeatSummary({}, {}, {}, frozenset())
        self._beats: dict[str, tuple[datetime, float]] = {}
        self._named_at: dict[RunId, float] = {}
        self._polled_at = 0.0
        self._published_at = 0.0
        self._skews: dict[str, float] = {}
        self._drained: dict[str, str] = {}
        self._history = SchedulerHistory(db)
        self._suspects_read_at = 0.0
        self._checked_at: dict[str, float] = {}
        self._cancelled_at: dict[RunId, float] = {}

    def serve(self, stop: threading.Event) -> None:
        """Tick until stopped; while broker or store is down, retry."""
        freeze_gc()
        cursor = "0-0"
        events: list[Event] = []
        while not stop.is_set():
            try:
                # A locked store or a suspended computer delays the tick as an outage does.
                since_poll_s = time.monotonic() - self._polled_at
                if self._disconnected or since_poll_s > self._lease_timeout_s / 2:
                    self._reconnect()
                    cursor = self._broker.newest_cursor()
                freed = phones_freed_by(events)
                if time.monotonic() - self._polled_at > HEARTBEAT_POLL_INTERVAL_S or not freed:
                    self.tick()
                else:
                    self.follow_up(freed)
                wait_s = 0.0 if self._history.has_more else EVENT_WAIT_S
                cursor, events = self._broker.events(cursor, wait_s)
            except (BrokerDown, StoreDown) as error:
                if not self._disconnected:
                    log.warning("%s", error)
                self._disconnected = True
                stop.wait(RETRY_INTERVAL_S)

    def tick(self) -> int:
        """Read heartbeats; renew, expire, dispatch; return the number of jobs that were sent."""
        now = time.time()
        heartbeats = self._broker.heartbeats()
        skews = clock_skews(heartbeats, datetime.now(UTC), self._lease_timeout_s)
        for host in skews.keys() - self._skews.keys():
            log.warning("the clock of %s is %+.0f s off; set it", host, skews[host])
        self._skews = skews
        known = phone_queries.facts_digests(self._db)
        self._summary = summarize_heartbeats(heartbeats, known)
        self._drained = leases.drained_hosts(self._db)
        self._history.update(heartbeats)
        self._polled_at = time.monotonic()
        self._note_heartbeats(heartbeats)
        leased = leases.leased_runs(self._db)
        self._renew(leased, now)
        freed = self._expire(now) if any(run.until < now for run in leased) else set()
        self._request_facts(self._summary.unknown_hosts, now)
        self._check_suspects(now)
        self._cancel_runs(leased, now)
        if now - self._published_at > STATUS_INTERVAL_S:
            for change in budget_pauses.pause_overspent(self._db, now):
                self._broker.publish_event(change.event)
            self._broker.publish_status(build_status(self._db, heartbeats, known))
            self._published_at = now
        busy = {run.phone for run in leased} - freed
        idle = [serial for serial in self._summary.idle if serial not in busy]
        last_runs = {serial: self._summary.unconfirmed.get(serial) for serial in idle}
        unfinished = leases.unfinished_runs(self._db, {run for run in last_runs.values() if run})
        return self._dispatch(serial for serial in idle if last_runs[serial] not in unfinished)

    def follow_up(self, freed: Collection[str]) -> int:
        """Give phones whose run has just been stored their next run, without a full tick."""
        return self._dispatch(serial for serial in freed if serial in self._summary.idle)

    def _dispatch(self, phones: Iterable[str]) -> int:
        hosts = {serial: self._summary.idle[serial] for serial in phones}
        idle = {serial: host for serial, host in hosts.items() if host not in self._drained}
        assign = self._history.choose_runs
        jobs = leases.lease_next(self._db, idle, self._lease_timeout_s, assign=assign)
        if jobs:
            self._queue.send_jobs(jobs, self._skews)
        return len(jobs)

    def _command(self, host: str, command: Command) -> None:
        self._queue.send_command(host, command, self._skews.get(host, 0.0))

    def _reconnect(self) -> None:
        """Renew every lease in full: the heartbeats of an outage were not read."""
        self._broker.check()
        leases.renew_all(self._db, self._lease_timeout_s)
        self._disconnected = False

    def _note_heartbeats(self, heartbeats: Sequence[HostHeartbeat]) -> None:
        """Note when each host and each run was last seen: a heartbeat outlives its agent."""
        seen_at = time.monotonic()
        self._named_at |= dict.fromkeys(self._summary.running, seen_at)
        for beat in heartbeats:
            if self._beats.get(beat.host, (None, 0.0))[0] != beat.sent_at:
                self._beats[beat.host] = (beat.sent_at, seen_at)

    def _alive_until(self, now: float) -> dict[RunId, float]:
        """Return the end of each run's lease, counted from its host's last new heartbeat."""
        until = now - time.monotonic() + self._lease_timeout_s
        return {run: until + self._beats[host][1] for run, host in self._summary.running.items()}

    def _renew(self, leased: Sequence[leases.LeasedRun], now: float) -> None:
        """Renew each lease of which a quarter is used, which spreads the writes over time."""
        moment = time.monotonic()
        if moment - self._renewed_at < self._lease_timeout_s / 32:
            return
        self._renewed_at = moment
        recent = moment - 2 * self._lease_timeout_s
        self._named_at = {run: seen for run, seen in self._named_at.items() if seen > recent}
        fresh, latest = now + 0.75 * self._lease_timeout_s, now + self._lease_timeout_s
        due = [run for run in leased if not fresh <= run.until <= latest]
        leases.renew(self._db, due, self._alive_until(now), latest)

    def _expire(self, now: float) -> set[str]:
        """Expire the leases that no heartbeat renewed; return the phones that are then free."""
        expired_leases = leases.expire(self._db, now, self._named_at.keys())
        for lease in expired_leases:
            run, phone = lease.run, lease.phone
            text = f"{run.trial} repeat {run.repeat}: the lease of attempt {run.attempt} expired"
            log.info("lease expired run=%s phone=%s host=%s", run, phone, lease.host)
            expired = Event(
                occurred_at=datetime.now(UTC), kind=EventKind.EXPIRED, text=text, phone=phone
            )
            for event in (expired, *lease.events):
                self._broker.publish_event(event)
        return {lease.phone for lease in expired_leases}

    def _cancel_runs(self, leased: Sequence[leases.LeasedRun], now: float) -> None:
        """Tell hosts to stop cancelled runs; repeat it until they report."""
        for item in leased:
            cancelled_at = self._cancelled_at.get(item.run, 0.0)
            if item.cancel_requested and now - cancelled_at > CANCEL_INTERVAL_S:
                self._cancelled_at[item.run] = now
                self._command(item.host, Command(kind=CommandKind.CANCEL, run=item.run))

    def _request_facts(self, hosts: Collection[str], now: float) -> None:
        for host in hosts:
            if now - self._facts_requested_at.get(host, 0.0) > FACTS_REQUEST_INTERVAL_S:
                self._facts_requested_at[host] = now
                self._command(host, Command(kind=CommandKind.RESEND_FACTS))

    def _check_suspects(self, now: float) -> None:
        """Update phones by their flaps; check suspect phones as soon as they are idle."""
        idle, flaps = self._summary.idle, self._summary.flaps
        for serial, state in phone_health.update_from_flaps(self._db, flaps).items():
            self._broker.publish_event(health_event(serial, idle.get(serial, ""), state))
        if now - self._suspects_read_at < SUSPECT_POLL_INTERVAL_S:
            return
        self._suspects_read_at = now
        for serial in phone_health.suspect_phones(self._db) & idle.keys():
            if now - self._checked_at.get(serial, 0.0) > CHECK_INTERVAL_S:
                self._checked_at[serial] = now
                command = Command(
                    kind=CommandKind.CHECK, phone=serial, id=f"auto-{serial}-{now:.0f}"[:64]
                )
                self._command(idle[serial], command)


def freeze_gc() -> None:
    """Exclude long-lived objects from garbage collection: collecting them takes three ticks."""
    gc.collect()
    gc.freeze()


def phones_freed_by(events: Sequence[Event]) -> set[str]:
    """Return the phones whose runs ended cleanly; none if any other event occurred."""
    if any(event.kind not in CLEAN_ENDS for event in events):
        return set()
    return {event.phone for event in events}
