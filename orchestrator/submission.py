"""Submitting: a sweep file becomes a backlog, in one transaction or not at all."""

from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.dispatch.broker import Broker
from orchestrator.exits import NoPhoneMatches
from orchestrator.plan.cases import Fetch, fetch_nothing
from orchestrator.plan.expand import Expansion, expand
from orchestrator.plan.order import order
from orchestrator.plan.sweep import Sweep, read_sweep
from orchestrator.store import backlog, queries
from orchestrator.store.database import Database
from workloads.messages import Event


@dataclass(frozen=True)
class Submission:
    """What was submitted and what became of it."""

    sweep: Sweep
    expansion: Expansion
    stored: backlog.Submitted


def submit(text: str, db: Database, broker: Broker, fetch: Fetch = fetch_nothing) -> Submission:
    """Read, expand, order and store a sweep, then wake the scheduler."""
    sweep = read_sweep(text, fetch)
    broker.check()
    expansion = expand(sweep, [phone.facts for phone in queries.known_phones(db)])
    if not expansion.trials:
        reasons = [f"  {item.phone}: {item.reason}" for item in expansion.skipped]
        why = "\n".join(reasons) if reasons else "  the lab has met no phone yet"
        raise NoPhoneMatches(f"no phone can run '{sweep.name}':\n{why}")
    row = {"id": sweep.id, "name": sweep.name, "source": text, "seed": sweep.seed}
    stored = backlog.submit(db, row, expansion.trials, order(sweep, expansion.trials))
    at = datetime.now(UTC)
    text = f"{sweep.name}: {stored.new_runs} runs"
    broker.tell(Event(at=at, kind="submitted", text=text, sweep=sweep.id))
    return Submission(sweep, expansion, stored)
