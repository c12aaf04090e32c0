"""The status of the lab as one small JSON object, which the scheduler publishes every second.

`farm status` reads it from the broker and does not need the store. When the scheduler stops, the
status expires.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.store import leases, phone_health, sweep_queries
from orchestrator.store.database import Database
from workloads.protocol.messages import HostHeartbeat

SWEEPS_SHOWN = 10


def build_status(
    db: Database, heartbeats: Sequence[HostHeartbeat], known: Collection[str]
) -> dict[str, Any]:
    """Count the hosts, the phones of the heartbeats and of the store, and the runs."""
    states = {phone.serial: phone.state for beat in heartbeats for phone in beat.phones}
    phones = Counter(states.get(serial, "away") for serial in {*known, *states})
    unhealthy = phone_health.unhealthy_phones(db)
    return {
        "at": datetime.now(UTC).isoformat(),
        "hosts": {beat.host: beat.sent_at.isoformat() for beat in heartbeats},
        "phones": dict(sorted(phones.items())),
        "unhealthy": [
            {"phone": serial, "health": health, "reason": reason}
            for serial, health, reason in unhealthy
        ],
        "drained": sorted(leases.drained_hosts(db)),
        "sweeps": [
            {
                "id": sweep.id,
                "name": sweep.name,
                "state": sweep.state,
                "reason": sweep.state_reason,
                "total": sweep.total,
                "done": sweep.done,
                "failed": sweep.failed,
                "left": sweep.left,
            }
            for sweep in sweep_queries.sweep_summaries(db, limit=SWEEPS_SHOWN)
        ],
    }
