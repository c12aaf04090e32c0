"""Three phones of one host, and a sweep with one case for each of them."""

from orchestrator.planning.states import RunState
from orchestrator.store import submission, sweep_queries
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.sweepfile.policy import Policy
from tests.builders import a_phone, a_trial, an_announcement, planned_runs
from tests.leasing import lease_next
from workloads.protocol.messages import Job

PHONES = ("PH1", "PH2", "PH3")
HOSTS = dict.fromkeys(PHONES, "host-a")
SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}


def announce_phones(store: Database) -> None:
    """Announce three phones of host-a."""
    store_parcels(store, "host-a", [an_announcement(a_phone(name)) for name in PHONES])


def submit(store: Database, repeat: int, policy: Policy | None = None) -> None:
    """Submit one case for every phone, with this many repeats."""
    values = (policy or Policy()).model_dump(mode="json")
    trials = [a_trial(0, name) for name in PHONES]
    submission.submit(store, {**SWEEP, "policy": values}, trials, planned_runs(trials, repeat))


def lease(store: Database, phone: str, now: float = 2e9) -> Job:
    """Lease a phone's next run."""
    ((_, job),) = lease_next(store, {phone: "host-a"}, lease_timeout_s=30, now=now)
    return job


def counts(store: Database) -> dict[RunState, int]:
    """Count the runs of the sweep by state."""
    return sweep_queries.sweep_summaries(store)[0].runs
