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
from datetime import UTC, datetime
from functools import partial

from orchestrator.dispatch.central_broker import (
    CentralBroker,
    HostReading,
    SchedulerHeartbeat,
)
from orchestrator.dispatch.garbage_collection import freeze_gc
from orchestrator.dispatch.heartbeat_summary import (
    HeartbeatSummary,
    LastSeen,
    clock_skews,
    summarize_heartbeats,
)
from orchestrator.dispatch.host_notices import NO_RUNS, HostProblem, host_notices
from orchestrator.dispatch.job_queue import JobQueue
from orchestrator.dispatch.lab_hosts import LabHosts
from orchestrator.dispatch.ownership import (
    contested_phones,
    lease_hosts,
    of_their_hosts,
    own_readings,
)
from orchestrator.dispatch.scheduler_history import SchedulerHistory
from orchestrator.store import (
    budget,
    finished_sweeps,
    leases,
    phone_health,
    phone_queries,
    sweep_queries,
)
from orchestrator.store.database import Database
from orchestrator.store.next_runs import next_runs
from orchestrator.store.phone_health import health_event
from workloads.lab.logging_setup import log_values
from workloads.lab.service_health import ServiceHealth
from workloads.lab.service_metrics import Service
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.messages import (
    Command,
    CommandKind,
    Event,
    EventKind,
    PhoneState,
    RunId,
)

log = logging.getLogger("farm.scheduler")

EVENT_WAIT_S = 0.2
HEARTBEAT_POLL_INTERVAL_S = 0.2
COUNT_INTERVAL_S = 1.0
# Not after a fault: the phone may be gone, so its heartbeat is read first.
CLEAN_ENDS = frozenset({EventKind.ACCEPTED, EventKind.SUSPECT, EventKind.VOID})
RETRY_INTERVAL_S = 0.5
FACTS_REQUEST_INTERVAL_S = 5.0
HELD_POLL_INTERVAL_S, CHECK_INTERVAL_S = 1.0, 60.0
CANCEL_INTERVAL_S = 2.0


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
        self._notices: set[tuple[str, HostProblem]] = set()
        self._broker = broker
        self._queue = queue
        self._lease_timeout_s = lease_timeout_s
        self._renewed_at = -math.inf
        self._facts_missing_since: dict[str, float] = {}  # by host
        self._disconnected = True
        self._summary = HeartbeatSummary({}, {}, {}, frozenset())
        self._last_seen = LastSeen()
        self._polled_at = self._counted_at = -math.inf  # the monotonic clock, never set back
        self._skews: dict[str, float] = {}
        self._drained: dict[str, str] = {}
        self._history = SchedulerHistory(db)
        self._held_read_at = -math.inf
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
        readings = self._broker.host_readings(self._lab_hosts.read())
        self._polled_at = moment
        known, leased = phone_queries.owned_phones(self._db), leases.leased_runs(self._db)
        readings = self._own_readings(readings, known, leased)
        heartbeats = [item.heartbeat for item in readings if item.heartbeat is not None]
        skews = clock_skews(heartbeats, datetime.now(UTC), self._lease_timeout_s)
        for host in skews.keys() - self._skews.keys():
            log.warning("the clock of %s is %+.0f s off; set it", host, skews[host])
        self._skews = skews
        stopped, contested = self._stopped_hosts(readings), contested_phones(readings)
        self._summary = summarize_heartbeats(heartbeats, known, stopped, contested)
        running = of_their_hosts(self._summary.running, leased)
        keep_s = 2 * self._lease_timeout_s
        self._last_seen = self._last_seen.after(heartbeats, running, moment, keep_s)
        unconfirmed = self._last_seen.reports_under_way(heartbeats, moment)
        self._drained = leases.drained_hosts(self._db)
        self._history.update(heartbeats)
        running = of_their_hosts(unconfirmed, leased) | running
        alive = self._last_seen.alive_until(running, moment, now + self._lease_timeout_s)
        self._renew(leased, alive, now, moment)
        freed = self._expire(alive, now) if any(run.until < now for run in leased) else set()
        self._request_facts(self._summary.unknown_hosts, moment)
        self._check_held(moment)
        self._cancel_runs(leased, moment)
        if moment - self._counted_at > COUNT_INTERVAL_S:
            self._end_sweeps(now)
            self._broker.publish_scheduler(SchedulerHeartbeat(sent_at=datetime.now(UTC)))
            self._count(readings, known)
            self._counted_at = moment
        busy = {run.phone for run in leased} - freed
        busy |= leases.phones_of_unstored_reports(self._db, unconfirmed)  # guard: report-under-way
        idle = [serial for serial in self._summary.idle if serial not in busy]
        last_runs = {serial: self._summary.unconfirmed.get(serial) for serial in idle}
        unfinished = leases.unfinished_runs(self._db, {run for run in last_runs.values() if run})
        return self._dispatch(serial for serial in idle if last_runs[serial] not in unfinished)

    def _own_readings(
        self,
        readings: Sequence[HostReading],
        known: Mapping[str, phone_queries.OwnedPhone],
        leased: Sequence[leases.LeasedRun],
    ) -> list[HostReading]:
        """Return readings without what belongs to other hosts."""
        owners = {serial: item.host for serial, item in known.items()}
        previous = partial(phone_queries.previous_hosts, self._db)
        return own_readings(readings, owners, previous, lease_hosts(leased))

    def _end_sweeps(self, now: float) -> None:
        """Pause the sweeps whose budget is used up, and mark those without runs left."""
        for change in budget.pause_overspent(self._db, now):
            self._broker.publish_event(change.event)
        finished_sweeps.mark_finished(self._db)

    def _count(self, readings: Sequence[HostReading], known: Collection[str]) -> None:
        """Update the metrics of the lab."""
        beats = [item.heartbeat for item in readings if item.heartbeat is not None]
        states = {phone.serial: phone.state for beat in beats for phone in beat.phones}
        phones = Counter(str(states.get(name, PhoneState.AWAY)) for name in {*known, *states})
        self._metrics.set_by_label("farm_phones", phones)
        unhealthy = phone_health.count_unhealthy(self._db)
        self._metrics.set_by_label("farm_unhealthy_phones", unhealthy)
        self._metrics.set("farm_hosts", len(beats))
        notices = host_notices(readings, self._broker.ingest_services(), self._lab_hosts.read())
        self._metrics.set("farm_claims_ignored", sum(len(item.claims) for item in readings))
        problems = Counter(str(item.problem) for item in notices)
        self._metrics.set_by_label("farm_host_problems", problems)
        self._metrics.set("farm_runs_left", sweep_queries.count_runs_left(self._db))

    def _stopped_hosts(self, readings: Sequence[HostReading]) -> set[str]:
        """Return the hosts that get no runs; log what is new about hosts."""
        notices = host_notices(readings, (), self._lab_hosts.read())
        found = {(item.host, item.problem) for item in notices}
        for item in notices:
            if (item.host, item.problem) not in self._notices:
                log.warning("%s: %s", item.host, item.text)
        self._notices = found
        return {item.host for item in notices if item.problem in NO_RUNS}

    def _dispatch(self, phones: Iterable[str]) -> int:
        hosts = {serial: self._summary.idle[serial] for serial in phones}
        idle = {serial: host for serial, host in hosts.items() if host not in self._drained}
        now = time.time()
        waiting = next_runs(self._db, idle, now) if idle else []
        chosen = self._history.choose_runs(waiting) if waiting else []
        jobs = leases.lease(self._db, chosen, idle, self._lease_timeout_s, now) if chosen else []
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
        fresh, latest = now + 0.75 * self._lease_timeout_s, now + self._lease_timeout_s
        due = [run for run in leased if not fresh <= run.until <= latest]
        leases.renew(self._db, due, alive, latest)

    def _expire(self, alive: Mapping[RunId, float], now: float) -> set[str]:
        """Expire the leases of runs that no heartbeat names; return the phones that are free."""
        named = {run for run, until in alive.items() if until > now}
        expired_leases = leases.expire(self._db, now, self._last_seen.runs.keys(), named)
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

    def _check_held(self, moment: float) -> None:
        """Update phones by their flaps; check held phones as soon as they are idle."""
        idle, flaps = self._summary.idle, self._summary.flaps
        for serial, state in phone_health.update_from_flaps(self._db, flaps).items():
            self._broker.publish_event(health_event(serial, idle.get(serial, ""), state))
        if moment - self._held_read_at < HELD_POLL_INTERVAL_S:
            return
        self._held_read_at = moment
        for serial in phone_health.held_phones(self._db) & idle.keys():
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
