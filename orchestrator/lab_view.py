"""How the lab is right now: the store's phones joined with the heartbeats, and its sweeps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from orchestrator.dispatch.broker import Broker
from orchestrator.nouns import KnownPhone, SweepSummary
from orchestrator.store import queries
from orchestrator.store.database import Database
from workloads.messages import Presence


@dataclass(frozen=True)
class LabView:
    """One look at everything."""

    at: datetime
    hosts: dict[str, datetime]
    phones: tuple[KnownPhone, ...]
    sweeps: tuple[SweepSummary, ...]


def look(db: Database, broker: Broker, sweep: str | None = None) -> LabView:
    """Look at the lab, or at one sweep in it."""
    presences = broker.presences()
    labels = {phone: label for phone, (_, _, label) in queries.leases(db).items()}
    phones = join(queries.known_phones(db), presences, labels)
    hosts = {presence.host: presence.at for presence in presences}
    sweeps = tuple(queries.sweep_summaries(db, sweep, limit=1))
    return LabView(datetime.now(UTC), hosts, phones, sweeps)


def join(
    known: Sequence[KnownPhone], presences: Sequence[Presence], labels: dict[str, str]
) -> tuple[KnownPhone, ...]:
    """Put each phone's latest heartbeat beside what the store knows of it."""
    seen = {phone.serial: (presence, phone) for presence in presences for phone in presence.phones}
    joined = []
    for phone in known:
        if phone.serial not in seen:
            joined.append(phone)
            continue
        presence, beat = seen[phone.serial]
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
                run=labels.get(phone.serial, ""),
            )
        )
    return tuple(joined)
