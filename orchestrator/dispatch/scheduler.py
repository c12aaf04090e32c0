"""The scheduler: each tick reads heartbeats and store, and gives each idle phone its next run.

The loop around the tick decides nothing. It waits for the next event, so a finished run is followed
at once; it also wakes up by itself, so a lost event only costs a short delay.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.dispatch.central_broker import CentralBroker, HostReading
from orchestrator.dispatch.garbage_collection import freeze_gc
from orchestrator.dispatch.host_notices import NO_RUNS, host_notices
from orchestrator.dispatch.job_queue import JobQueue
from orchestrator.dispatch.lab_hosts import LabHosts
from orchestrator.dispatch.scheduler_history import SchedulerHistory
from orchestrator.dispatch.status_board import build_status
from orchestrator.dispatch.status_message import LabStatus
from orchestrator.store import budget_pauses, finished_sweeps, leases, phone_health, phone_queries
from orchestrator.store.database import Database
from orchestrator.store.phone_health import health_event
from workloads.logging_setup import log_values
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.messages import (
    Command,
    CommandKind,
    Event,
    EventKind,
    HostHeartbeat,
    PhoneState,
    RunId,
)
from workloads.service_health import ServiceHealth
from workloads.service_metrics import Service

log = logging.getLogger("farm.scheduler")

EVENT_WAIT_S = 0.2
HEARTBEAT_POLL_INTERVAL_S = 0.2
STATUS_INTERVAL_S = 1.0
# Not after a fault: the phone may be gone, so its heartbeat is read first.
CLEAN_ENDS = frozenset({EventKind.ACCEPTED, EventKind.SUSPECT, EventKind.VOID})
RETRY_INTERVAL_S = 0.5
FACTS_REQUEST_INTERVAL_S = 5.0
SUSPECT_POLL_INTERVAL_S, CHECK_INTERVAL_S = 1.0, 60.0
CANCEL_INTERVAL_S = 2.0
HOLD_MAX_S = 900.0  # a report that is not stored for longer than this is not waited for


@dataclass(frozen=True)
class HeartbeatSummary:
    """The content of all heartbeats, sorted for the tick."""

    running: dict[RunId, str]  # the host of each run
    idle: dict[str, str]  # the host of each idle phone
    unconfirmed: dict[str, RunId]  # idle if the store knows the end of this run
    unknown_hosts: frozenset[str]  # with phones whose facts the store lacks
    flaps: dict[str, int] = field(default_factory=dict)


def summarize_heartbeats(
    heartbeats: Sequence[HostHeartbeat], known: dict[str, str], stopped: Collection[str] = ()
) -> HeartbeatSummary:
    """Sort heartbeats: which runs are running, which phones are idle, which facts are missing.

    The store decides whether a phone is idle. A heartbeat that still shows the last run of a phone
    is merely late, unless the store has no report of that run yet (unconfirmed). A phone that two
    hosts claim is not used until only one of them claims it. A stopped host gets no runs.
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
        for phone in present[: beat.max_parallel] if beat.host not in stopped else ():
            if phone.facts_digest is None or known.get(phone.serial) != phone.facts_digest:
                unknown_hosts.add(beat.host)
                continue
            if phone.state is PhoneState.BUSY and phone.run is None:
                continue  # it is being commissioned
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
        self,
        db: Database,
        broker: CentralBroker,
        queue: JobQueue,
        lease_timeout_s: float,
        hosts: Collection[str] = (),
        health: ServiceHealth | None = None,
    ) -> None:
        self._db = db
        self._health = health or ServiceHealth(Service.SCHEDULER)
        self._metrics = self._health.metrics
        self._lab_hosts = LabHosts(db, hosts, broker)
        self._notices: set[tuple[str, str]] = set()
        self._unconfirmed_at: dict[RunId, float] = {}
        self._broker = broker
        self._queue = queue
        self._lease_timeout_s = lease_timeout_s
        self._renewed_at = -math.inf
        self._facts_missing_since: dict[str, float] = {}  # by host
        self._disconnected = True
        self._summary = HeartbeatSummary({}, {}, {}, frozenset())
        self._beats: dict[str, tuple[datetime, float]] = {}
        self._named_at: dict[RunId, float] = {}
        self._polled_at = self._published_at = -math.inf  # the monotonic clock, never set back
        self._skews: dict[str, float] = {}
        self._drained: dict[str, str] = {}
        self._history = SchedulerHistory(db)
        self._suspects_read_at = -math.inf
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
                    self._health.set_trouble("connection")
                freed = phones_freed_by(events)
                started = time.monotonic()
                if started - self._polled_at > HEARTBEAT_POLL_INTERVAL_S or not freed:
                    self.tick()
                    self._metrics.observe("farm_tick_seconds", time.monotonic() - started)
                else:  # phones whose run has just been stored get their next run at once
                    self._dispatch(serial for serial in freed if serial in self._summary.idle)
                self._health.beat()
                wait_s = 0.0 if self._history.has_more else EVENT_WAIT_S
                cursor, events = self._broker.events(cursor, wait_s)
            except (BrokerDown, StoreDown) as error:
                if not self._disconnected:
                    log.warning("%s", error)
                self._disconnected = True
                self._health.beat()
                self._health.set_trouble("connection", str(error))
                stop.wait(RETRY_INTERVAL_S)

    def tick(self) -> int:
        """Read heartbeats; renew, expire, dispatch; return the number of jobs that were sent."""
        # Read before any call that can block: the heartbeats are those of this moment.
        moment, now = time.monotonic(), time.time()
        readings = self._broker.host_readings()
        self._polled_at = moment
        heartbeats = [item.heartbeat for item in readings if item.heartbeat is not None]
        skews = clock_skews(heartbeats, datetime.now(UTC), self._lease_timeout_s)
        for host in skews.keys() - self._skews.keys():
            log.warning("the clock of %s is %+.0f s off; set it", host, skews[host])
        self._skews = skews
        known = phone_queries.facts_digests(self._db)
        stopped = self._stopped_hosts(readings)
        self._summary = summarize_heartbeats(heartbeats, known, stopped)
        unconfirmed = self._unconfirmed_runs(heartbeats, moment)
        self._note_heartbeats(heartbeats, moment)
        self._drained = leases.drained_hosts(self._db)
        self._history.update(heartbeats)
        leased = leases.leased_runs(self._db)
        alive = self._alive_until(now, moment, unconfirmed)
        self._renew(leased, alive, now, moment)
        freed = self._expire(alive, now) if any(run.until < now for run in leased) else set()
        self._request_facts(self._summary.unknown_hosts, moment)
        self._check_suspects(moment)
        self._cancel_runs(leased, moment)
        if moment - self._published_at > STATUS_INTERVAL_S:
            self._publish_status(readings, known, now)
            self._published_at = moment
        busy = {run.phone for run in leased} - freed
        busy |= leases.phones_of_unstored_reports(self._db, unconfirmed)  # guard: report-under-way
        idle = [serial for serial in self._summary.idle if serial not in busy]
        last_runs = {serial: self._summary.unconfirmed.get(serial) for serial in idle}
        unfinished = leases.unfinished_runs(self._db, {run for run in last_runs.values() if run})
        return self._dispatch(serial for serial in idle if last_runs[serial] not in unfinished)

    def _publish_status(
        self, readings: Sequence[HostReading], known: Collection[str], now: float
    ) -> None:
        for change in budget_pauses.pause_overspent(self._db, now):
            self._broker.publish_event(change.event)
        finished_sweeps.mark_finished(self._db)
        ingests = self._broker.ingest_services()
        status = build_status(self._db, readings, ingests, known, self._lab_hosts.read())
        self._broker.publish_status(status)
        self._count(status)

    def _count(self, status: LabStatus) -> None:
        self._metrics.set_by_label("farm_phones", status.phones)
        unhealthy = Counter(phone.health for phone in status.unhealthy)
        self._metrics.set_by_label("farm_unhealthy_phones", unhealthy)
        self._metrics.set("farm_hosts", len(status.hosts))
        problems = Counter(item.problem for item in status.problems)
        self._metrics.set_by_label("farm_host_problems", problems)
        self._metrics.set("farm_runs_left", sum(sweep.left for sweep in status.sweeps))

    def _stopped_hosts(self, readings: Sequence[HostReading]) -> set[str]:
        """Return the hosts that get no runs; log what is new about hosts."""
        notices = host_notices(readings, (), self._lab_hosts.read())
        found = {(item.host, item.problem) for item in notices}
        for item in notices:
            if (item.host, item.problem) not in self._notices:
                log.warning("%s: %s", item.host, item.text)
        self._notices = found
        return {item.host for item in notices if item.problem in NO_RUNS}

    def _unconfirmed_runs(
        self, heartbeats: Sequence[HostHeartbeat], moment: float
    ) -> dict[RunId, str]:
        """Return the runs whose report is on its way, with their host, for a limited time."""
        named = {run: beat.host for beat in heartbeats for run in beat.unconfirmed}
        since = self._unconfirmed_at
        self._unconfirmed_at = {run: since.get(run, moment) for run in named}
        return {
            run: host
            for run, host in named.items()
            if moment - self._unconfirmed_at[run] < HOLD_MAX_S
        }

    def _dispatch(self, phones: Iterable[str]) -> int:
        hosts = {serial: self._summary.idle[serial] for serial in phones}
        idle = {serial: host for serial, host in hosts.items() if host not in self._drained}
        assign = self._history.choose_runs
        jobs = leases.lease_next(self._db, idle, self._lease_timeout_s, assign=assign)
        if jobs:
            self._queue.send_jobs(jobs, self._skews)
            self._metrics.add("farm_jobs_sent_total", len(jobs))
        return len(jobs)

    def _command(self, host: str, command: Command) -> None:
        self._queue.send_command(host, command, self._skews.get(host, 0.0))

    def _reconnect(self) -> None:
        """Renew every lease in full: the heartbeats of an outage were not read."""
        self._broker.check()
        leases.renew_all(self._db, self._lease_timeout_s)
        self._disconnected = False

    def _note_heartbeats(self, heartbeats: Sequence[HostHeartbeat], seen_at: float) -> None:
        """Note when each host and each run was last seen: a heartbeat outlives its agent."""
        self._named_at |= dict.fromkeys(self._summary.running, seen_at)
        for beat in heartbeats:
            if self._beats.get(beat.host, (None, 0.0))[0] != beat.sent_at:
                self._beats[beat.host] = (beat.sent_at, seen_at)

    def _alive_until(
        self, now: float, moment: float, unconfirmed: Mapping[RunId, str]
    ) -> dict[RunId, float]:
        """Return the end of each run's lease, counted from its host's last new heartbeat."""
        until = now - moment + self._lease_timeout_s
        running = {**unconfirmed, **self._summary.running}
        return {run: until + self._beats[host][1] for run, host in running.items()}

    def _renew(
        self,
        leased: Sequence[leases.LeasedRun],
        alive: Mapping[RunId, float],
        now: float,
        moment: float,
    ) -> None:
        """Renew each lease of which a quarter is used, which spreads the writes over time."""
        if moment - self._renewed_at < self._lease_timeout_s / 32:
            return
        self._renewed_at = moment
        recent = moment - 2 * self._lease_timeout_s
        self._named_at = {run: seen for run, seen in self._named_at.items() if seen > recent}
        fresh, latest = now + 0.75 * self._lease_timeout_s, now + self._lease_timeout_s
        due = [run for run in leased if not fresh <= run.until <= latest]
        leases.renew(self._db, due, alive, latest)

    def _expire(self, alive: Mapping[RunId, float], now: float) -> set[str]:
        """Expire the leases of runs that no heartbeat names; return the phones that are free."""
        named = {run for run, until in alive.items() if until > now}
        expired_leases = leases.expire(self._db, now, self._named_at.keys(), named)
        for lease in expired_leases:
            run, phone = lease.run, lease.phone
            text = f"{run.trial} repeat {run.repeat}: the lease of attempt {run.attempt} expired"
            with log_values(sweep=lease.sweep):
                log.info("lease expired run=%s phone=%s host=%s", run, phone, lease.host)
            self._metrics.add("farm_leases_expired_total")
            expired = Event(
                occurred_at=datetime.now(UTC), kind=EventKind.EXPIRED, text=text, phone=phone
            )
            for event in (expired, *lease.events):
                self._broker.publish_event(event)
        return {lease.phone for lease in expired_leases}

    def _cancel_runs(self, leased: Sequence[leases.LeasedRun], moment: float) -> None:
        """Tell hosts to stop cancelled runs; repeat it until they report."""
        for item in leased:
            cancelled_at = self._cancelled_at.get(item.run, -math.inf)
            if item.cancel_requested and moment - cancelled_at > CANCEL_INTERVAL_S:
                self._cancelled_at[item.run] = moment
                self._command(item.host, Command(kind=CommandKind.CANCEL, run=item.run))

    def _request_facts(self, hosts: Collection[str], moment: float) -> None:
        """Ask hosts for the facts of their phones that have been unknown for some time.

        Facts that have just changed are on their way: a heartbeat is faster than a parcel.
        """
        since = self._facts_missing_since
        self._facts_missing_since = {host: since.get(host, moment) for host in hosts}
        for host, missing_at in self._facts_missing_since.items():
            if moment - missing_at > FACTS_REQUEST_INTERVAL_S:
                self._facts_missing_since[host] = moment
                self._command(host, Command(kind=CommandKind.RESEND_FACTS))

    def _check_suspects(self, moment: float) -> None:
        """Update phones by their flaps; check suspect phones as soon as they are idle."""
        idle, flaps = self._summary.idle, self._summary.flaps
        for serial, state in phone_health.update_from_flaps(self._db, flaps).items():
            self._broker.publish_event(health_event(serial, idle.get(serial, ""), state))
        if moment - self._suspects_read_at < SUSPECT_POLL_INTERVAL_S:
            return
        self._suspects_read_at = moment
        for serial in phone_health.suspect_phones(self._db) & idle.keys():
            if moment - self._checked_at.get(serial, -math.inf) > CHECK_INTERVAL_S:
                self._checked_at[serial] = moment
                command_id = f"auto-{serial}-{time.time():.0f}"[:64]
                command = Command(kind=CommandKind.CHECK, phone=serial, id=command_id)
                self._command(idle[serial], command)


def phones_freed_by(events: Sequence[Event]) -> set[str]:
    """Return the phones whose runs ended cleanly; none if any other event occurred."""
    if any(event.kind not in CLEAN_ENDS for event in events):
        return set()
    return {event.phone for event in events}
