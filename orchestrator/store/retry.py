"""Decides what follows a report: accept it, retry the run, or give up.

Blame decides. An invalid request, a runner that fails, and work that is not what its name says are
findings and are never repeated. A fault of the phone and an unmet condition are retried a bounded
number of times, after some other runs of the phone. A fault of the lab itself never counts against
a run.

The place of a retry is a number of runs, because the order of a phone's runs must not depend on how
fast this computer is. Only a fault of the lab also has a pause: until it has passed, its sweep
starts nothing else on that phone, so the pause does not change the order either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from time import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select, update

from orchestrator.planning.states import RunState
from orchestrator.store.finished_sweeps import reopen
from orchestrator.store.tables import run
from orchestrator.sweepfile.policy import RetryLimits
from workloads.protocol.faults import Blame
from workloads.protocol.messages import Report
from workloads.protocol.verdict import OF_LEARNING, Validity, Verdict


class RetryAction(StrEnum):
    """What follows for the run."""

    ACCEPT = "accept"
    RETRY = "retry"
    GIVE_UP = "give up"


class RetryPlace(NamedTuple):
    """The place of the next attempt in the order of its phone, and how long it waits at least."""

    after_runs: int  # other runs of the same sweep on this phone, or all that are left
    pause_s: float = 0.0


AT_ONCE = RetryPlace(0)


@dataclass(frozen=True)
class RetryDecision:
    """What follows for the run, why, whose attempt counter it increments, and its next place."""

    action: RetryAction
    reason: str
    blame: Blame | None = None
    place: RetryPlace = AT_ONCE


DEFAULT_LIMITS = RetryLimits()
# The place of the next attempt, by the number of earlier attempts with the same blame.
PLACES = {
    Blame.FARM: (
        AT_ONCE,
        RetryPlace(1, 0.5),
        RetryPlace(2, 2.0),
        RetryPlace(4, 5.0),
        RetryPlace(8, 15.0),
        RetryPlace(16, 30.0),
    ),
    Blame.PHONE: (RetryPlace(1), RetryPlace(4)),  # after a restart other runs may work
    Blame.CONDITION: (RetryPlace(4), RetryPlace(16)),  # a disturbance may pass
}


def decide_retry(
    report: Report,
    attempts: Mapping[str, int],
    limits: RetryLimits = DEFAULT_LIMITS,
    accept_timing: bool = False,
) -> RetryDecision:
    """Judge a report of the current attempt; `attempts` counts earlier ones by blame."""
    if report.fault is None:
        return _after_verdict(report.verdict, attempts, limits, accept_timing)
    fault = report.fault
    reason = str(fault)
    if fault.blame in (Blame.REQUEST, Blame.RUNNER):
        return RetryDecision(RetryAction.GIVE_UP, reason, fault.blame)
    if fault.blame is Blame.FARM:
        return RetryDecision(RetryAction.RETRY, reason, Blame.FARM, _place(Blame.FARM, attempts))
    return _bounded_retry(fault.blame, reason, attempts, limits)


def _after_verdict(
    verdict: Verdict | None, attempts: Mapping[str, int], limits: RetryLimits, accept_timing: bool
) -> RetryDecision:
    """Repeat what is void, and what something passing disturbed; the last such run is kept."""
    accepted = RetryDecision(RetryAction.ACCEPT, "")
    if verdict is None or (accept_timing and verdict.doubted <= OF_LEARNING):
        return accepted
    if verdict.validity is Validity.VOID and verdict.deterministic:
        return RetryDecision(RetryAction.GIVE_UP, verdict.text, Blame.RUNNER)
    again = _bounded_retry(Blame.CONDITION, verdict.text, attempts, limits)
    if verdict.validity is Validity.VOID:
        return again
    is_repeated = verdict.is_of_the_moment and again.action is RetryAction.RETRY
    return again if is_repeated else accepted


def _bounded_retry(
    blame: Blame, reason: str, attempts: Mapping[str, int], limits: RetryLimits
) -> RetryDecision:
    limit = limits.phone if blame is Blame.PHONE else limits.condition
    if attempts.get(blame, 0) + 1 >= limit:
        return RetryDecision(RetryAction.GIVE_UP, f"{reason} ({limit} times)", blame)
    return RetryDecision(RetryAction.RETRY, reason, blame, _place(blame, attempts))


def _place(blame: Blame, attempts: Mapping[str, int]) -> RetryPlace:
    places = PLACES[blame]
    return places[min(attempts.get(blame, 0), len(places) - 1)]


def set_next_state(connection: Connection, row: Row[Any], decision: RetryDecision) -> None:
    """Set the next state of a run that is not done."""
    changes: dict[str, object] = {"note": decision.reason, "lease_until": 0.0}
    if decision.blame is not None:
        changes["tries"] = {**row.tries, decision.blame: row.tries.get(decision.blame, 0) + 1}
    if row.cancel_requested:
        changes |= {"state": RunState.CANCELLED, "note": "cancelled", "cancel_requested": False}
    elif row.stop_rule:
        changes |= {"state": RunState.SKIPPED, "note": row.stop_reason}
    elif decision.action is RetryAction.GIVE_UP:
        changes["state"] = RunState.FAILED
        if decision.blame is Blame.REQUEST:
            _block_repeats(connection, row, decision.reason)
    else:
        if row.state == RunState.BLOCKED:  # its sweep may have no other run left
            reopen(connection, row.sweep)
        changes["state"] = RunState.QUEUED
        changes["rank"] = _rank_after(connection, row, decision.place.after_runs)
        pause_s = decision.place.pause_s
        changes["not_before"] = time() + pause_s if pause_s else 0.0
    connection.execute(update(run).where(run.c.id == row.id).values(**changes))


def _rank_after(connection: Connection, row: Row[Any], runs: int) -> int:
    """Return the rank of a run after some other queued runs of its sweep and phone, or all."""
    others = (run.c.phone == row.phone, run.c.sweep == row.sweep, run.c.id != row.id)
    ranks = (
        select(run.c.rank)
        .where(*others, run.c.state == RunState.QUEUED)
        .order_by(run.c.rank, run.c.id)
        .limit(runs)
    )
    # Of two runs with one rank the one that was planned first is next, and that is this one.
    passed = connection.execute(ranks).scalars().all()
    return max(row.rank, passed[-1] + 1) if passed else int(row.rank)


def _block_repeats(connection: Connection, row: Row[Any], reason: str) -> None:
    """Block the queued runs of a trial whose request failed: they would fail alike."""
    same = (run.c.trial == row.trial, run.c.state == RunState.QUEUED)
    note = f"blocked: an earlier run of the trial failed: {reason}"
    connection.execute(update(run).where(*same).values(state=RunState.BLOCKED, note=note[:600]))
