"""The scheduler: a tick looks at heartbeats and store, and gives each idle phone its next run.

The loop around the tick holds no judgement. It waits for the next event, so a finished run is
followed at once; it also wakes by itself, so a lost event costs a moment and nothing else.
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
from orchestrator.dispatch.status_board import publish_board
from orchestrator.store import budget_pauses, leases, phone_health, phone_queries
from orchestrator.store.database import Database
from orchestrator.store.phone_health import health_event
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.messages import Command, CommandKind, Event, EventKind, HostHeartbeat, RunId

log = logging.getLogger("farm.scheduler")

WAKE_S = 0.2
SIGHT_S = 0.2
BOARD_S = 1.0
# After a fault the phone may be gone: look first.
ENDED = frozenset({EventKind.ACCEPTED, EventKind.VOID})
TROUBLE_PAUSE_S = 0.5
ANNOUNCE_PAUSE_S = 5.0
SUSPECTS_S, CHECK_PAUSE_S = 1.0, 60.0
CANCEL_PAUSE_S = 2.0


@dataclass(frozen=True)
class HeartbeatSummary:
    """What the heartbeats say, sorted for the tick."""

    running: dict[RunId, str]
    idle: dict[str, str]
    doubtful: dict[str, RunId]
    strangers: frozenset[str]
    flaps: dict[str, int] = field(default_factory=dict)


def summarize_heartbeats(
    presences: Sequence[HostHeartbeat], known: dict[str, str]
) -> HeartbeatSummary:
    """Sort heartbeats: what runs, which phones are free, whose facts the store lacks.

    A phone is free when the store says so; a heartbeat that still shows its last run is merely
    late, unless the store has not heard the end of that run (doubtful). A phone that two hosts
    claim to have is nobody's until one lets go.
    """
    running: dict[RunId, str] = {}
    idle: dict[str, str] = {}
    doubtful: dict[str, RunId] = {}
    strangers: set[str] = set()
    claimed: Counter[str] = Counter()
    for presence in presences:
        here = [phone for phone in presence.phones if phone.state in ("idle", "busy")]
        running |= {phone.run: presence.host for phone in presence.phones if phone.run is not None}
        claimed.update(phone.serial for phone in here)
        for phone in here[: presence.max_parallel]:
            if phone.facts_digest is None or known.get(phone.serial) != phone.facts_digest:
                strangers.add(presence.host)
                continue
            idle[phone.serial] = presence.host
            if phone.run is not None:
                doubtful[phone.serial] = phone.run
    for serial, hosts in claimed.items():
        if hosts > 1:  # guard: two-hosts-claim-a-phone
            idle.pop(serial, None)
    flaps = {
        phone.serial: phone.flaps for each in presences for phone in each.phones if phone.flaps
    }
    return HeartbeatSummary(running, idle, doubtful, frozenset(strangers), flaps)


def clock_skews(
    presences: Sequence[HostHeartbeat], now: datetime, lease_timeout_s: float
) -> dict[str, float]:
    """Hosts whose clock is off, and by how many seconds.

    A job expires by the clock of the host that takes it, so it has to be told in that clock. What
    a heartbeat is late by looks like a small error; only what a lease would notice counts.
    """
    off = {beat.host: (beat.sent_at - now).total_seconds() for beat in presences}
    return {
        host: skew
        for host, skew in off.items()
        if abs(skew) > lease_timeout_s / 2  # guard: host-clock-skew
    }


class Scheduler:
    """Keeps every phone that has work busy, and every lease honest."""

    def __init__(
        self, db: Database, broker: CentralBroker, queue: JobQueue, lease_timeout_s: float
    ) -> None:
        self._db = db
        self._broker = broker
        self._queue = queue
        self._lease_timeout_s = lease_timeout_s
        self._renewed_at = 0.0
        self._asked_at: dict[str, float] = {}
        self._deaf = True
        self._sight = HeartbeatSummary({}, {}, {}, frozenset())
        self._beats: dict[str, tuple[datetime, float]] = {}
        self._named_at: dict[RunId, float] = {}
        self._looked_at = 0.0
        self._pinned_at = 0.0
        self._skews: dict[str, float] = {}
        self._closed: dict[str, str] = {}
        self._book = SchedulerHistory(db)
        self._suspected_at = 0.0
        self._checked_at: dict[str, float] = {}
        self._stopped_at: dict[RunId, float] = {}

    def serve(self, stop: threading.Event) -> None:
        """Tick until told to stop; trouble with broker or store is waited out."""
        freeze_gc()
        cursor = "0-0"
        events: list[Event] = []
        while not stop.is_set():
            try:
                # Held up for long, by a locked store or a sleeping machine, it has heard nothing.
                if self._deaf or time.monotonic() - self._looked_at > self._lease_timeout_s / 2:
                    self._listen_again()
                    cursor = self._broker.newest_event()
                if time.monotonic() - self._looked_at > SIGHT_S or not phones_freed_by(events):
                    self.tick()
                else:
                    self.follow_up(phones_freed_by(events))
                wait_s = 0.0 if self._book.left_out else WAKE_S
                cursor, events = self._broker.events(cursor, wait_s)
            except (BrokerDown, StoreDown) as error:
                if not self._deaf:
                    log.warning("%s", error)
                self._deaf = True
                stop.wait(TROUBLE_PAUSE_S)

    def tick(self) -> int:
        """Look at everything; renew, expire, dispatch; say how many jobs went out."""
        now = time.time()
        presences = self._broker.presences()
        skewed = clock_skews(presences, datetime.now(UTC), self._lease_timeout_s)
        for host in skewed.keys() - self._skews.keys():
            log.warning("the clock of %s is %+.0f s off; set it", host, skewed[host])
        self._skews = skewed
        known = phone_queries.facts_digests(self._db)
        self._sight = summarize_heartbeats(presences, known)
        self._closed = leases.drained_hosts(self._db)
        self._book.look(presences)
        self._looked_at = time.monotonic()
        self._hear(presences)
        held = leases.leased_runs(self._db)
        self._renew(held, now)
        lost = self._expire(now) if any(each.until < now for each in held) else set()
        self._ask_strangers(self._sight.strangers, now)
        self._check_suspects(now)
        self._stop_unwanted(held, now)
        if now - self._pinned_at > BOARD_S:
            for change in budget_pauses.pause_overspent(self._db, now):
                self._broker.publish_event(change.event)
            self._broker.publish_status(publish_board(self._db, presences, known))
            self._pinned_at = now
        at_work = {each.phone for each in held} - lost
        free = [serial for serial in self._sight.idle if serial not in at_work]
        doubtful = {serial: self._sight.doubtful.get(serial) for serial in free}
        waiting = leases.unfinished_runs(self._db, {run for run in doubtful.values() if run})
        return self._dispatch(serial for serial in free if doubtful[serial] not in waiting)

    def follow_up(self, freed: Collection[str]) -> int:
        """Give phones whose run has just been stored their next one, without a look at the rest."""
        return self._dispatch(serial for serial in freed if serial in self._sight.idle)

    def _dispatch(self, phones: Iterable[str]) -> int:
        here = {serial: self._sight.idle[serial] for serial in phones}
        idle = {serial: host for serial, host in here.items() if host not in self._closed}
        jobs = leases.lease_next(self._db, idle, self._lease_timeout_s, assign=self._book.choose)
        if jobs:
            self._queue.send_jobs(jobs, self._skews)
        return len(jobs)

    def _command(self, host: str, command: Command) -> None:
        self._queue.send_command(host, command, self._skews.get(host, 0.0))

    def _listen_again(self) -> None:
        """After deafness silence proves nothing: every lease gets its full time again."""
        self._broker.check()
        leases.renew_all(self._db, self._lease_timeout_s)
        self._deaf = False

    def _hear(self, presences: Sequence[HostHeartbeat]) -> None:
        """Note when each host was last heard of, and each run: a heartbeat outlives its agent."""
        heard = time.monotonic()
        self._named_at |= dict.fromkeys(self._sight.running, heard)
        for beat in presences:
            if self._beats.get(beat.host, (None, 0.0))[0] != beat.sent_at:
                self._beats[beat.host] = (beat.sent_at, heard)

    def _alive_until(self, now: float) -> dict[RunId, float]:
        """How long each run has, counted from the last heartbeat that was news."""
        until = now - time.monotonic() + self._lease_timeout_s
        return {run: until + self._beats[host][1] for run, host in self._sight.running.items()}

    def _renew(self, held: Sequence[leases.LeasedRun], now: float) -> None:
        """Keep what lives alive: each lease when a quarter of it is used up, not all at once."""
        moment = time.monotonic()
        if moment - self._renewed_at < self._lease_timeout_s / 32:
            return
        self._renewed_at = moment
        recent = moment - 2 * self._lease_timeout_s
        self._named_at = {run: at for run, at in self._named_at.items() if at > recent}
        fresh, latest = now + 0.75 * self._lease_timeout_s, now + self._lease_timeout_s
        due = [each for each in held if not fresh <= each.until <= latest]
        leases.renew(self._db, due, self._alive_until(now), latest)

    def _expire(self, now: float) -> set[str]:
        """Take back what fell silent; say which phones that frees."""
        lost = leases.expire(self._db, now, self._named_at.keys())
        for gone in lost:
            run, phone = gone.run, gone.phone
            text = f"{run.trial} repeat {run.repeat}: the lease of attempt {run.attempt} ran out"
            log.warning("%s on %s", text, phone)
            expired = Event(
                occurred_at=datetime.now(UTC), kind=EventKind.EXPIRED, text=text, phone=phone
            )
            for event in (expired, *gone.events):
                self._broker.publish_event(event)
        return {gone.phone for gone in lost}

    def _stop_unwanted(self, held: Sequence[leases.LeasedRun], now: float) -> None:
        """Tell hosts to stop what somebody has cancelled; they are told until they report."""
        for each in held:
            if each.cancel_requested and now - self._stopped_at.get(each.run, 0.0) > CANCEL_PAUSE_S:
                self._stopped_at[each.run] = now
                self._command(each.host, Command(kind=CommandKind.CANCEL, run=each.run))

    def _ask_strangers(self, hosts: Collection[str], now: float) -> None:
        for host in hosts:
            if now - self._asked_at.get(host, 0.0) > ANNOUNCE_PAUSE_S:
                self._asked_at[host] = now
                self._command(host, Command(kind=CommandKind.RESEND_FACTS))

    def _check_suspects(self, now: float) -> None:
        """Have phones that are suspect looked at, as soon as they are idle."""
        for serial, standing in phone_health.update_from_flaps(self._db, self._sight.flaps).items():
            self._broker.publish_event(
                health_event(serial, self._sight.idle.get(serial, ""), standing)
            )
        if now - self._suspected_at < SUSPECTS_S:
            return
        self._suspected_at = now
        for serial in phone_health.suspect_phones(self._db) & self._sight.idle.keys():
            if now - self._checked_at.get(serial, 0.0) > CHECK_PAUSE_S:
                self._checked_at[serial] = now
                command = Command(
                    kind=CommandKind.CHECK, phone=serial, id=f"auto-{serial}-{now:.0f}"[:64]
                )
                self._command(self._sight.idle[serial], command)


def freeze_gc() -> None:
    """Keep the garbage collector from what is loaded for good: a look at that takes three ticks."""
    gc.collect()
    gc.freeze()


def phones_freed_by(events: Sequence[Event]) -> set[str]:
    """Phones whose run has ended, if that is all that happened; else nothing can be told."""
    if any(event.kind not in ENDED for event in events):
        return set()
    return {event.phone for event in events}
