"""Submitting: a sweep file becomes a backlog, in one transaction or not at all."""

import getpass
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.app.app_errors import NoPhoneMatches
from orchestrator.app.plan_sweep import spread_trials
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.planning.expand import Expansion
from orchestrator.planning.randomize import order_runs
from orchestrator.store import phone_queries, submission
from orchestrator.store.database import Database
from orchestrator.sweepfile.policy import Policy
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from orchestrator.sweepfile.workload_reader import FetchFile, fetch_no_file
from workloads.protocol.faults import BrokerDown
from workloads.protocol.messages import Event, EventKind


@dataclass(frozen=True)
class Submission:
    """What was submitted and what became of it."""

    sweep: Sweep
    expansion: Expansion
    stored: submission.SubmissionCounts


def submit_sweep(
    text: str, db: Database, broker: CentralBroker, fetch: FetchFile = fetch_no_file
) -> Submission:
    """Read, expand, order and store a sweep, then wake the scheduler."""
    sweep = read_sweep(text, fetch)
    broker.check()
    expansion = spread_trials(sweep, phone_queries.known_phones(db), db)
    _refuse_too_few(sweep, expansion)
    row = {"id": sweep.id, "name": sweep.name, "source": text, "seed": sweep.seed}
    row |= _wishes(sweep.policy)
    stored = submission.submit(db, row, expansion.trials, order_runs(sweep, expansion.trials))
    at = datetime.now(UTC)
    text = f"{sweep.name}: {stored.new_runs} runs"
    # What is stored is submitted; a scheduler that does not hear of it looks by itself.
    with suppress(BrokerDown):
        broker.publish_event(
            Event(occurred_at=at, kind=EventKind.SUBMITTED, text=text, sweep=sweep.id)
        )
    return Submission(sweep, expansion, stored)


def _refuse_too_few(sweep: Sweep, expansion: Expansion) -> None:
    found, least = len(expansion.phones), sweep.phones.at_least
    if found >= least:
        return
    reasons = [f"  {item.phone}: {item.reason}" for item in expansion.skipped if not item.cells]
    why = "\n".join(reasons) if reasons else "  the lab has met no phone yet"
    if least == 1:
        raise NoPhoneMatches(f"no phone can run '{sweep.name}':\n{why}")
    some = f"{found} phones can run '{sweep.name}', and it asks for at least {least}"
    raise NoPhoneMatches(f"{some}:\n{why}")


def _wishes(policy: Policy) -> dict[str, Any]:
    """The policy as the store keeps it; whoever names no owner is it."""
    policy = policy.model_copy(update={"owner": policy.owner or _user()})
    return {
        "policy": policy.model_dump(mode="json"),
        "owner": policy.owner,
        "priority": policy.priority,
        "deadline": policy.deadline.timestamp() if policy.deadline else None,
    }


def _user() -> str:
    try:
        return getpass.getuser()[:64]
    except (KeyError, OSError):  # a container's user may have no name
        return ""
