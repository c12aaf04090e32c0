"""The state of the lab: the store's phones with their heartbeats and leases, and its sweeps."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Generic, TypeVar

from orchestrator.analysis.failure_groups import FAILED_STATES, FailureGroup, group_failures
from orchestrator.analysis.trial_series import cell_medians
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.app.screen.waiting_sweep import absent_phones, availability_of
from orchestrator.dispatch.central_broker import HostReading
from orchestrator.dispatch.fair_share import PRIORITY_DOUBLING
from orchestrator.dispatch.host_notices import HostNotice, host_notices
from orchestrator.dispatch.lab_hosts import LabHosts
from orchestrator.dispatch.ownership import own_readings
from orchestrator.planning.eta import (
    CompetingWork,
    RemainingTime,
    SweepRest,
    estimate_remaining,
    needed_share,
)
from orchestrator.planning.run_durations import Cell, RunTiming
from orchestrator.planning.states import ReportStatus, RunState, SweepState
from orchestrator.store import results, sweep_queries
from orchestrator.store.database import Database
from orchestrator.store.leases import drained_hosts
from orchestrator.store.live_views import (
    CellProgress,
    CellProgressCache,
    LeaseCache,
    PhoneCache,
    runs_left,
)
from orchestrator.store.metric_rows import metric_values
from orchestrator.store.notices import StoredNotice, latest_notices
from orchestrator.store.phone_queries import KnownPhone, Lease, owned_phones, previous_hosts
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.store.timings import newest_timings
from orchestrator.store.verdict_totals import with_left_out
from workloads.protocol.messages import HostHeartbeat
from workloads.protocol.unusable_phone import PhoneProblem

TIME_SHARE_MAX = 0.02  # share of the time that repeating a query may take
NEWEST_SWEEPS, NEWEST_NOTICES = 8, 5
TIMINGS_MAX = 2000
COUNTED = (ReportStatus.ACCEPTED, ReportStatus.VOID, ReportStatus.FAULT)

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ReportedProblem:
    """A phone that a host sees and cannot use; it is known by its adb address."""

    host: str
    address: str
    problem: PhoneProblem
    text: str  # what is wrong; what to do


@dataclass(frozen=True)
class LabView:
    """The state of the lab at one moment; the sweep that is followed is the first one.

    Every face of a lab shows this one: status, screen, page, API and notices.
    """

    at: datetime
    hosts: dict[str, datetime]
    phones: tuple[KnownPhone, ...]
    sweeps: tuple[SweepSummary, ...]
    others: tuple[SweepSummary, ...] = ()  # the newest other sweeps, those with runs left first
    cells: tuple[CellProgress, ...] = ()
    failures: tuple[FailureGroup, ...] = ()  # of the sweep that is followed
    rest: RemainingTime | None = None
    problems: tuple[ReportedProblem, ...] = ()
    drained: tuple[str, ...] = ()  # hosts that get no runs
    host_problems: tuple[HostNotice, ...] = ()
    notices: tuple[StoredNotice, ...] = ()  # the newest ones
    has_scheduler: bool = True  # without one, no runs are dispatched


class RateLimited(Generic[Answer]):
    """A query that is repeated only when the last one cost a small share of the time since."""

    def __init__(self, query: Callable[[], Answer]) -> None:
        self._query = query
        self._answer: Answer | None = None
        self._due = 0.0

    def __call__(self) -> Answer:
        started = time.monotonic()
        if self._answer is None or started >= self._due:
            self._answer = self._query()
            ended = time.monotonic()
            self._due = ended + (ended - started) / TIME_SHARE_MAX
        return self._answer


class LabPoller:
    """Reads the state of a lab repeatedly; what has not changed is not read again."""

    def __init__(
        self, lab: LabConnection, sweep: str | None = None, with_values: bool = False
    ) -> None:
        db = lab.store
        self._db = db
        self._broker = lab.broker
        self._lab_hosts = LabHosts(db, lab.lab.settings.scheduler.hosts)
        self._phones = PhoneCache(db)
        self._leases = LeaseCache(db)
        self._sweep = sweep
        self._with_values = with_values
        self._sweeps = RateLimited(lambda: _followed(db, self._sweep))
        self._shown = ("", False)
        self._progress: Callable[[], SweepProgress] | None = None
        self._absent: Mapping[str, str] = {}
        self._running: dict[str, Cell] = {}
        self._models: dict[str, str] = {}
        self._others: tuple[SweepSummary, ...] = ()  # with runs left

    def follow(self, sweep: str) -> None:
        """Follow another sweep from the next poll on."""
        db, self._sweep = self._db, sweep
        self._sweeps = RateLimited(lambda: _followed(db, sweep))

    def read(self) -> LabView:
        """Return the current state, without the progress of the sweep that is followed."""
        known = self._phones.read()
        owners = {phone.serial: phone.host for phone in known}
        readings, heartbeats = self._read_hosts(owners)
        ingests = self._broker.ingest_services()
        now, drained = datetime.now(UTC), tuple(drained_hosts(self._db))
        phones = tuple(
            replace(phone, availability=availability_of(phone, now, drained))
            for phone in join_heartbeats(known, heartbeats, self._leases.read())
        )
        hosts = {heartbeat.host: heartbeat.sent_at for heartbeat in heartbeats}
        sweeps, others = self._sweeps()
        problems = reported_problems(owners, heartbeats)
        return LabView(
            *(now, hosts, phones, sweeps, others),
            problems=problems,
            drained=drained,
            host_problems=tuple(host_notices(readings, ingests, self._lab_hosts.read())),
            notices=tuple(latest_notices(self._db, NEWEST_NOTICES)),
            has_scheduler=self._broker.scheduler() is not None,
        )

    def _read_hosts(
        self, owners: Mapping[str, str]
    ) -> tuple[list[HostReading], list[HostHeartbeat]]:
        found = self._broker.host_readings(self._lab_hosts.read())
        readings = own_readings(found, owners, partial(previous_hosts, self._db))
        return readings, [item.heartbeat for item in readings if item.heartbeat is not None]

    def read_phones(self) -> tuple[KnownPhone, ...]:
        """Return the phones with their queues; no progress is read and no end estimated."""
        view = self.read()
        left = runs_left(self._db, view.sweeps[0].id) if view.sweeps else {}
        return _with_queues(view.phones, _count_queued(left))

    def read_problems(self) -> tuple[ReportedProblem, ...]:
        """Return the phones that hosts see and cannot use."""
        owners = {serial: owned.host for serial, owned in owned_phones(self._db).items()}
        return reported_problems(owners, self._read_hosts(owners)[1])

    def poll(self) -> LabView:
        """Return the current state."""
        view = self.read()
        sweeps, others, phones = view.sweeps, view.others, view.phones
        if not sweeps:
            return view
        shown = (sweeps[0].id, sweeps[0].finished)
        self._absent = absent_phones(phones, view.at, view.drained)
        self._running = {phone.serial: phone.lease.cell for phone in phones if phone.lease}
        self._models = {phone.serial: phone.facts.model for phone in phones}
        self._others = tuple(
            item for item in others if item.state is SweepState.ACTIVE and item.left
        )
        if self._progress is None or shown != self._shown:
            self._shown = shown  # a finished sweep bypasses the rate limit: its end is shown
            reader = _SweepProgress(self._db, sweeps[0], self._with_values)
            self._progress = RateLimited(
                lambda: reader.read(self._absent, self._running, self._models, self._others)
            )
        progress = self._progress()
        return replace(
            view,
            phones=_with_queues(phones, progress.queued),
            cells=progress.cells,
            failures=progress.failures,
            rest=progress.rest and progress.rest.after(time.time() - progress.read_at_s),
        )


def _count_queued(left: Mapping[str, Mapping[Cell, int]]) -> dict[str, int]:
    return {phone: sum(runs.values()) for phone, runs in left.items()}


def _with_queues(phones: Sequence[KnownPhone], queued: Mapping[str, int]) -> tuple[KnownPhone, ...]:
    return tuple(
        replace(phone, queued=queued[phone.serial]) if phone.serial in queued else phone
        for phone in phones
    )


def _followed(
    db: Database, sweep: str | None
) -> tuple[tuple[SweepSummary, ...], tuple[SweepSummary, ...]]:
    """The sweep to show (the given one, else the newest with runs left), and the newest others."""
    newest = sweep_queries.sweep_summaries(db, limit=NEWEST_SWEEPS)
    if sweep is not None and all(item.id != sweep for item in newest):
        newest += sweep_queries.sweep_summaries(db, sweep)
    ordered = sorted(newest, key=lambda item: (sweep not in (None, item.id), item.finished))
    counted = with_left_out(db, ordered)
    return tuple(counted[:1]), tuple(counted[1:])


@dataclass(frozen=True)
class SweepProgress:
    """The progress of a sweep: its cells, its failures, its remaining time, and queued runs."""

    cells: tuple[CellProgress, ...]
    failures: tuple[FailureGroup, ...]
    rest: RemainingTime | None
    queued: dict[str, int]  # runs by phone
    read_at_s: float


class _SweepProgress:
    """Reads the progress of a sweep."""

    def __init__(self, db: Database, summary: SweepSummary, with_values: bool) -> None:
        self._db = db
        self._with_values = with_values
        self._values: Mapping[tuple[str, str], float] = {}  # by the labels of the cell
        self._summary = summary
        self._sweep = sweep = summary.id
        self._matrix = CellProgressCache(db, sweep)
        self._last_report = 0
        self._attempts = 0
        self._ended: deque[RunTiming] = deque(maxlen=TIMINGS_MAX)
        self._stop = sweep_queries.stop_rule_limits(db, sweep)
        self._failures: tuple[int, tuple[FailureGroup, ...]] = (0, ())

    def read(
        self,
        absent: Mapping[str, str],
        running: Mapping[str, Cell],
        models: Mapping[str, str],
        others: Sequence[SweepSummary],
    ) -> SweepProgress:
        """Return the current progress; `absent` are the phones that get no runs, and why."""
        new = newest_timings(self._db, TIMINGS_MAX, COUNTED, after=self._last_report)
        for timing in reversed(new):
            self._last_report = timing.report
            self._ended.append(timing)
            self._attempts += timing.sweep == self._sweep
        if new and self._with_values:
            self._values = cell_medians(metric_values(self._db, "", self._sweep))
        cells = tuple(
            replace(each, value=self._values.get((each.case, each.condition)))
            for each in self._matrix.read()
        )
        counts = Counter[RunState]()
        for each in cells:
            counts.update(each.runs)
        left = runs_left(self._db, self._sweep)
        done = counts[RunState.DONE] + counts[RunState.FAILED]
        now_s = time.time()
        rest = SweepRest(
            now_s,
            left,
            list(self._ended),
            done,
            max(self._attempts - done, sum(each.void for each in cells)),
            absent,
            [
                CompetingWork(runs_left(self._db, other.id), weight)
                for other in others
                if (weight := weight_against(self._summary, other))
            ],
            needed_share(self._stop, counts[RunState.DONE], counts[RunState.SKIPPED]),
            self._summary.created_at.timestamp(),
            running,
            models,
        )
        rest_time = estimate_remaining(rest)
        return SweepProgress(
            cells, self._failure_groups(cells), rest_time, _count_queued(left), now_s
        )

    def _failure_groups(self, cells: Sequence[CellProgress]) -> tuple[FailureGroup, ...]:
        """Return the reasons of failed runs; they are read again only when more runs failed."""
        failed = sum(cell.runs.get(state, 0) for cell in cells for state in FAILED_STATES)
        if failed != self._failures[0]:
            outcomes = results.run_outcomes(self._db, self._sweep, FAILED_STATES)
            self._failures = (failed, group_failures(outcomes))
        return self._failures[1]


def weight_against(own: SweepSummary, other: SweepSummary) -> float:
    """Return the runs that phones give another sweep per run of this one (see fair_share)."""

    def order(sweep: SweepSummary) -> tuple[float, float, datetime, str]:
        deadline = math.inf if sweep.deadline is None else sweep.deadline.timestamp()
        return (-sweep.priority, deadline, sweep.created_at, sweep.id)

    if own.owner == other.owner:
        return math.inf if order(other) < order(own) else 0.0
    return float(2.0 ** ((other.priority - own.priority) / PRIORITY_DOUBLING))


@operation(Role.VIEWER)
def read_lab_status(
    lab: LabConnection, sweep: str | None = None, with_progress: bool = True
) -> LabView:
    """Read the state of the lab once, following a sweep or the newest one with runs left."""
    poller = LabPoller(lab, sweep)
    return poller.poll() if with_progress else poller.read()


def join_heartbeats(
    known: Sequence[KnownPhone], heartbeats: Sequence[HostHeartbeat], leases: Mapping[str, Lease]
) -> tuple[KnownPhone, ...]:
    """Add its latest heartbeat and its lease to each phone that a host reports."""
    reported = {
        status.serial: (heartbeat, status)
        for heartbeat in heartbeats
        for status in heartbeat.phones
    }

    # On USB the address of a phone is its serial number.
    unusable = {
        item.address: (heartbeat, item) for heartbeat in heartbeats for item in heartbeat.unusable
    }

    def join(phone: KnownPhone) -> KnownPhone:
        if phone.serial not in reported and phone.serial in unusable:
            heartbeat, item = unusable[phone.serial]
            status = phone.status.model_copy(update={"reason": item.advice})
            return replace(phone, host=heartbeat.host, status=status)
        if phone.serial not in reported:
            return phone
        heartbeat, status = reported[phone.serial]
        return replace(
            phone,
            host=heartbeat.host,
            status=status,
            last_seen_at=heartbeat.sent_at,
            lease=leases.get(phone.serial),
        )

    return tuple(join(phone) for phone in known)


def reported_problems(
    known: Collection[str], heartbeats: Sequence[HostHeartbeat]
) -> tuple[ReportedProblem, ...]:
    """The phones that hosts cannot use; a known phone shows its problem itself."""
    return tuple(
        ReportedProblem(heartbeat.host, item.address, item.problem, item.advice)
        for heartbeat in heartbeats
        for item in heartbeat.unusable
        if item.address not in known
    )
