"""Submits a sweep: the file becomes queued runs in one transaction, or nothing is stored."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from orchestrator.app.app_errors import NoPhoneMatches
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.app.plan_sweep import (
    SweepName,
    missing_files,
    pattern_warnings,
    spread_trials,
    start_outlook,
)
from orchestrator.app.store_files import file_head
from orchestrator.planning.expand import Expansion, SkippedPhone
from orchestrator.planning.plan_warnings import clock_warnings, same_planned_clocks
from orchestrator.planning.randomize import order_runs
from orchestrator.store import phone_queries, submission, sweep_queries
from orchestrator.sweepfile.policy import Policy
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from orchestrator.sweepfile.workload_reader import FetchFile, fetch_no_file
from workloads.protocol.faults import BrokerDown, InvalidRequest
from workloads.protocol.messages import Event, EventKind
from workloads.protocol.same_clocks import SameClock
from workloads.units import count_text

OWNER_MAX = 64


@dataclass(frozen=True)
class Submission:
    """A submitted sweep: the phones that were skipped, and how many runs are new."""

    sweep: SweepName
    skipped: tuple[SkippedPhone, ...]
    stored: submission.SubmissionCounts
    warnings: tuple[str, ...] = ()
    same_clocks: tuple[SameClock, ...] = ()  # levels that a phone does not distinguish
    waits: tuple[str, ...] = ()  # of phones that are too warm to start at once


@operation(Role.OPERATOR)
def submit_sweep(lab: LabConnection, text: str, fetch: FetchFile = fetch_no_file) -> Submission:
    """Validate a sweep file, queue its runs and wake the scheduler."""
    sweep = read_sweep(text, fetch)
    lab.broker.check()
    missing = missing_files(partial(file_head, lab.lab.files_folder), sweep)
    if missing:
        raise InvalidRequest("; ".join(missing))
    phones = phone_queries.known_phones(lab.store)
    expansion = spread_trials(sweep, phones, lab.store)
    _refuse_too_few(sweep, expansion)
    same = same_planned_clocks(expansion.trials, [phone.facts for phone in phones])
    outlook = start_outlook(lab.broker, sweep, expansion.phones)
    warnings = (*_same_name(lab, sweep), *pattern_warnings(expansion), *clock_warnings(same))
    warnings += outlook.warnings
    row = {"id": sweep.id, "name": sweep.name, "source": text, "seed": sweep.seed}
    row |= _policy_columns(sweep.policy, lab.user)
    runs = order_runs(sweep, expansion.trials)
    stored = submission.submit(lab.store, row, expansion.trials, runs, lab.user)
    event = Event(
        occurred_at=datetime.now(UTC),
        kind=EventKind.SUBMITTED,
        text=f"{sweep.name}: {count_text(stored.new_runs, 'run')}",
        sweep=sweep.id,
    )
    # The sweep is stored; a scheduler that misses the event finds it at its next poll.
    with suppress(BrokerDown):
        lab.broker.publish_event(event)
    named = SweepName(sweep.id, sweep.name)
    return Submission(named, expansion.skipped, stored, warnings, same, outlook.waits)


def _same_name(lab: LabConnection, sweep: Sweep) -> list[str]:
    """Return a warning if another sweep has the same name: it has another content."""
    named = sweep_queries.sweeps_of_name(lab.store, sweep.name)
    return [
        f"{other} has the same name and another content; '{sweep.name}' now means {sweep.id}"
        for other in [name for name in named if name != sweep.id][:1]
    ]


def _refuse_too_few(sweep: Sweep, expansion: Expansion) -> None:
    count, required = len(expansion.phones), sweep.phones.at_least
    if count >= required:
        return
    reasons = [f"  {item.phone}: {item.reason}" for item in expansion.skipped if not item.cells]
    details = "\n".join(reasons) if reasons else "  no phone is known to the lab yet"
    skipped = {item.phone: item.reason for item in expansion.skipped}
    if required == 1:
        raise NoPhoneMatches(f"no phone can run '{sweep.name}':\n{details}", skipped)
    text = f"{count} phones can run '{sweep.name}', but it requires at least {required}:\n{details}"
    raise NoPhoneMatches(text, skipped)


def _policy_columns(policy: Policy, user: str) -> dict[str, Any]:
    """The policy as the store keeps it; the submitting user owns a sweep that names no owner."""
    policy = policy.model_copy(update={"owner": policy.owner or user[:OWNER_MAX]})
    return {
        "policy": policy.model_dump(mode="json"),
        "owner": policy.owner,
        "priority": policy.priority,
        "deadline": policy.deadline.timestamp() if policy.deadline else None,
    }
