"""The status of the lab as one small JSON object, which the scheduler publishes every second.

`farm status` reads it from the broker and does not need the store. When the scheduler stops, the
status expires.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from orchestrator.dispatch.central_broker import HostReading
from orchestrator.dispatch.host_notices import host_notices
from orchestrator.dispatch.status_message import (
    LabStatus,
    NoticeLine,
    SweepStatus,
    UnhealthyPhone,
)
from orchestrator.store import leases, notices, phone_health, sweep_queries
from orchestrator.store.database import Database
from workloads.protocol.messages import IngestHeartbeat

SWEEPS_SHOWN = 10
NOTICES_SHOWN = 5


def build_status(
    db: Database,
    readings: Sequence[HostReading],
    ingests: Sequence[IngestHeartbeat],
    known: Collection[str],
    hosts: Collection[str] | None = None,
) -> LabStatus:
    """Count the hosts, the phones of the heartbeats and of the store, and the runs."""
    heartbeats = [item.heartbeat for item in readings if item.heartbeat is not None]
    states = {phone.serial: phone.state for beat in heartbeats for phone in beat.phones}
    phones = Counter(states.get(serial, "away") for serial in {*known, *states})
    return LabStatus(
        at=datetime.now(UTC),
        hosts={beat.host: beat.sent_at for beat in heartbeats},
        problems=tuple(host_notices(readings, ingests, hosts)),
        phones=dict(sorted(phones.items())),
        unhealthy=tuple(
            UnhealthyPhone(phone=serial, health=health, reason=reason)
            for serial, health, reason in phone_health.unhealthy_phones(db)
        ),
        drained=tuple(sorted(leases.drained_hosts(db))),
        sweeps=tuple(
            SweepStatus(
                id=sweep.id,
                name=sweep.name,
                state=sweep.state,
                reason=sweep.state_reason,
                total=sweep.total,
                done=sweep.done,
                failed=sweep.failed,
                left=sweep.left,
            )
            for sweep in sweep_queries.sweep_summaries(db, limit=SWEEPS_SHOWN, count_trials=False)
        ),
        notices=tuple(
            NoticeLine(id=item.id, kind=item.kind, text=item.text)
            for item in notices.latest_notices(db, NOTICES_SHOWN)
        ),
    )
