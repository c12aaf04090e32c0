"""Leases runs without a scheduler."""

import time
from collections.abc import Callable, Mapping, Sequence

from orchestrator.store import leases
from orchestrator.store.database import Database
from orchestrator.store.next_runs import NextRun, next_runs
from workloads.protocol.messages import Job


def choose_oldest(waiting: Sequence[NextRun]) -> list[NextRun]:
    """Choose the oldest run of each phone, regardless of temperature and owner."""
    oldest: dict[str, NextRun] = {}
    for item in sorted(waiting, key=lambda item: (item.rank, item.run)):
        oldest.setdefault(item.phone, item)
    return list(oldest.values())


def lease_next(
    db: Database,
    idle: Mapping[str, str],
    lease_timeout_s: float,
    now: float | None = None,
    choose: Callable[[Sequence[NextRun]], Sequence[NextRun]] = choose_oldest,
) -> list[tuple[str, Job]]:
    """Lease a run to each idle phone (serial -> host); return hosts and their jobs."""
    now = time.time() if now is None else now
    chosen = choose(next_runs(db, idle, now))
    return leases.lease(db, chosen, idle, lease_timeout_s, now)
