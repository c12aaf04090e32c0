"""How the lab is right now: the store's phones joined with the heartbeats, and its sweeps."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

from orchestrator.analysis.remaining import Remaining, remaining
from orchestrator.dispatch.broker import Broker
from orchestrator.nouns import Cell, KnownPhone, Lease, SweepSummary
from orchestrator.store import queries
from orchestrator.store.database import Database
from orchestrator.store.watching import LeaseBook, Matrix, PhoneBook, runs_left, taken_since
from workloads.messages import Presence

SHARE_MAX = 0.02  # of the time that a question may take
SWEEPS_LOOKED_AT = 8
TAKEN_KEPT = 200

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LabView:
    """One look at everything; the sweep that is followed stands first."""

    at: datetime
    hosts: dict[str, datetime]
    phones: tuple[KnownPhone, ...]
    sweeps: tuple[SweepSummary, ...]
    others: int = 0  # sweeps that have runs left, beside the first
    cells: tuple[Cell, ...] = ()
    rest: Remaining | None = None


class Paced(Generic[Answer]):
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


class Lookout:
    """Looks at a lab again and again, without asking twice for what has not changed."""

    def __init__(self, db: Database, broker: Broker, sweep: str | None = None) -> None:
        self._db = db
        self._broker = broker
        self._phones = PhoneBook(db)
        self._leases = LeaseBook(db)
        self._sweeps = Paced(lambda: _followed(db, sweep))
        self._shown = ("", False)
        self._course = Paced(lambda: _Course(db, "").read())

    def look(self) -> LabView:
        """How all of it is now."""
        presences = self._broker.presences()
        phones = join(self._phones.read(), presences, self._leases.read())
        hosts = {presence.host: presence.at for presence in presences}
        sweeps, others = self._sweeps()
        view = LabView(datetime.now(UTC), hosts, phones, sweeps, others)
        if not sweeps:
            return view
        shown = (sweeps[0].id, sweeps[0].finished)
        if shown != self._shown:  # what is over waits for nobody: the last look is a fresh one
            self._shown = shown
            self._course = Paced(_Course(self._db, sweeps[0].id).read)
        cells, rest, waiting = self._course()
        told = tuple(
            replace(phone, waiting=waiting[phone.serial]) if phone.serial in waiting else phone
            for phone in phones
        )
        return replace(view, phones=told, cells=cells, rest=rest)


def _followed(db: Database, sweep: str | None) -> tuple[tuple[SweepSummary, ...], int]:
    """The sweep to show: the one that was asked for, else the newest with runs left."""
    if sweep is not None:
        return tuple(queries.sweep_summaries(db, sweep)), 0
    newest = queries.sweep_summaries(db, limit=SWEEPS_LOOKED_AT)
    going = [item for item in newest if not item.finished]
    return tuple((going or newest)[:1]), max(0, len(going) - 1)


class _Course:
    """How a sweep goes: its cells, when it will be finished, and which phones it waits for."""

    def __init__(self, db: Database, sweep: str) -> None:
        self._db = db
        self._sweep = sweep
        self._matrix = Matrix(db, sweep)
        self._last = 0
        self._taken: dict[str, list[float]] = {}

    def read(self) -> tuple[tuple[Cell, ...], Remaining | None, dict[str, int]]:
        """Look again."""
        for item in taken_since(self._db, self._sweep, self._last):
            self._last = item.report
            self._taken[item.condition] = [
                *self._taken.get(item.condition, [])[1 - TAKEN_KEPT :],
                item.seconds,
            ]
        cells = self._matrix.read()
        void = sum(cell.void for cell in cells)
        done = sum(sum(cell.runs.values()) for cell in cells)
        left = runs_left(self._db, self._sweep)
        ended = done - sum(sum(kinds.values()) for kinds in left.values())
        tries = 1.0 + void / ended if ended else 1.0
        waiting = {phone: sum(kinds.values()) for phone, kinds in left.items()}
        return cells, remaining(left, self._taken, tries), waiting


def look(db: Database, broker: Broker, sweep: str | None = None) -> LabView:
    """Look at the lab once, or at one sweep in it."""
    return Lookout(db, broker, sweep).look()


def join(
    known: Sequence[KnownPhone], presences: Sequence[Presence], leases: Mapping[str, Lease]
) -> tuple[KnownPhone, ...]:
    """Put each phone's latest heartbeat beside what the store knows of it."""
    seen = {phone.serial: (presence, phone) for presence in presences for phone in presence.phones}
    joined = []
    for phone in known:
        if phone.serial not in seen:
            joined.append(phone)
            continue
        presence, beat = seen[phone.serial]
        lease = leases.get(phone.serial)
        joined.append(
            replace(
                phone,
                host=presence.host,
                state=beat.state,
                why=beat.why,
                stage=beat.stage,
                progress=beat.progress,
                temp_c=beat.temp_c,
                battery_pct=beat.battery_pct,
                ready_s=beat.ready_s,
                seen_at=presence.at,
                run=lease.label if lease else "",
                lease=lease,
                left_s=beat.left_s,
                steps=beat.steps,
                locked_khz=beat.locked_khz,
                clocks_khz=beat.clocks_khz,
                power_w=beat.power_w,
            )
        )
    return tuple(joined)
