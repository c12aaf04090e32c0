"""How the lab is right now: the store's phones joined with the heartbeats, and its sweeps."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

from orchestrator.analysis.eta import RemainingTime, estimate_remaining
from orchestrator.decisions.states import ReportStatus
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store import sweep_queries
from orchestrator.store.database import Database
from orchestrator.store.live_views import (
    CellProgress,
    CellProgressCache,
    LeaseCache,
    PhoneCache,
    runs_left,
)
from orchestrator.store.phone_queries import KnownPhone, Lease
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.store.timings import newest_timings
from workloads.protocol.messages import HostHeartbeat

SHARE_MAX = 0.02  # of the time that a question may take
SWEEPS_LOOKED_AT = 8
TAKEN_MAX, TAKEN_KEPT = 500, 200
COUNTED = (ReportStatus.ACCEPTED, ReportStatus.VOID, ReportStatus.FAULT)

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LabView:
    """One look at everything; the sweep that is followed stands first."""

    at: datetime
    hosts: dict[str, datetime]
    phones: tuple[KnownPhone, ...]
    sweeps: tuple[SweepSummary, ...]
    others: int = 0  # sweeps that have runs left, beside the first
    cells: tuple[CellProgress, ...] = ()
    rest: RemainingTime | None = None


class RateLimited(Generic[Answer]):
    """A question that is asked again only when its answer has cost little of the time since."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._answer: Answer | None = None
        self._again = 0.0

    def __call__(self) -> Answer:
        began = time.monotonic()
        if self._answer is None or began >= self._again:
            self._answer = self._ask()
            ended = time.monotonic()
            self._again = ended + (ended - began) / SHARE_MAX
        return self._answer


class LabPoller:
    """Looks at a lab again and again, without asking twice for what has not changed."""

    def __init__(self, db: Database, broker: CentralBroker, sweep: str | None = None) -> None:
        self._db = db
        self._broker = broker
        self._phones = PhoneCache(db)
        self._leases = LeaseCache(db)
        self._sweeps = RateLimited(lambda: _followed(db, sweep))
        self._shown = ("", False)
        self._course = RateLimited(lambda: _SweepProgress(db, "").read())

    def poll(self) -> LabView:
        """How all of it is now."""
        heartbeats = self._broker.heartbeats()
        phones = join_heartbeats(self._phones.read(), heartbeats, self._leases.read())
        hosts = {heartbeat.host: heartbeat.sent_at for heartbeat in heartbeats}
        sweeps, others = self._sweeps()
        view = LabView(datetime.now(UTC), hosts, phones, sweeps, others)
        if not sweeps:
            return view
        shown = (sweeps[0].id, sweeps[0].finished)
        if shown != self._shown:  # what is over waits for nobody: the last look is a fresh one
            self._shown = shown
            self._course = RateLimited(_SweepProgress(self._db, sweeps[0].id).read)
        cells, rest, waiting = self._course()
        told = tuple(
            replace(phone, queued=waiting[phone.serial]) if phone.serial in waiting else phone
            for phone in phones
        )
        return replace(view, phones=told, cells=cells, rest=rest)


def _followed(db: Database, sweep: str | None) -> tuple[tuple[SweepSummary, ...], int]:
    """The sweep to show: the one that was asked for, else the newest with runs left."""
    if sweep is not None:
        return tuple(sweep_queries.sweep_summaries(db, sweep)), 0
    newest = sweep_queries.sweep_summaries(db, limit=SWEEPS_LOOKED_AT)
    going = [item for item in newest if not item.finished]
    return tuple((going or newest)[:1]), max(0, len(going) - 1)


class _SweepProgress:
    """How a sweep goes: its cells, when it will be finished, and which phones it waits for."""

    def __init__(self, db: Database, sweep: str) -> None:
        self._db = db
        self._sweep = sweep
        self._matrix = CellProgressCache(db, sweep)
        self._last = 0
        self._taken: dict[str, list[float]] = {}

    def read(self) -> tuple[tuple[CellProgress, ...], RemainingTime | None, dict[str, int]]:
        """Look again."""
        new = newest_timings(self._db, TAKEN_MAX, COUNTED, self._sweep, self._last)
        for item in reversed(new):
            self._last = item.report
            self._taken[item.condition_digest] = [
                *self._taken.get(item.condition_digest, [])[1 - TAKEN_KEPT :],
                item.duration_s,
            ]
        cells = self._matrix.read()
        void = sum(cell.void for cell in cells)
        done = sum(sum(cell.runs.values()) for cell in cells)
        left = runs_left(self._db, self._sweep)
        ended = done - sum(sum(kinds.values()) for kinds in left.values())
        tries = 1.0 + void / ended if ended else 1.0
        waiting = {phone: sum(kinds.values()) for phone, kinds in left.items()}
        return cells, estimate_remaining(left, self._taken, tries), waiting


def read_lab_status(db: Database, broker: CentralBroker, sweep: str | None = None) -> LabView:
    """Look at the lab once, or at one sweep in it."""
    return LabPoller(db, broker, sweep).poll()


def join_heartbeats(
    known: Sequence[KnownPhone], heartbeats: Sequence[HostHeartbeat], leases: Mapping[str, Lease]
) -> tuple[KnownPhone, ...]:
    """Add its latest heartbeat and its lease to each phone that a host reports."""
    reported = {
        status.serial: (heartbeat, status)
        for heartbeat in heartbeats
        for status in heartbeat.phones
    }

    def join(phone: KnownPhone) -> KnownPhone:
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
