"""The board: how the lab is, in one small note that the scheduler keeps up to date.

Whoever wants to know at a glance reads it from the broker, without a way to the store; when the
scheduler falls silent, the note expires.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.store import leases, phone_health, sweep_queries
from orchestrator.store.database import Database
from workloads.protocol.messages import HostHeartbeat

SWEEPS_SHOWN = 10


def publish_board(
    db: Database, presences: Sequence[HostHeartbeat], known: Collection[str]
) -> dict[str, Any]:
    """Count hosts, phones (those that the store knows too) and runs."""
    states = {phone.serial: phone.state for beat in presences for phone in beat.phones}
    phones = Counter(states.get(serial, "away") for serial in {*known, *states})
    ill = phone_health.unhealthy_phones(db)
    return {
        "at": datetime.now(UTC).isoformat(),
        "hosts": {presence.host: presence.sent_at.isoformat() for presence in presences},
        "phones": dict(sorted(phones.items())),
        "ill": [{"phone": serial, "health": is_, "why": why} for serial, is_, why in ill],
        "drained": sorted(leases.drained_hosts(db)),
        "sweeps": [
            {
                "id": sweep.id,
                "name": sweep.name,
                "state": sweep.state,
                "why": sweep.state_reason,
                "total": sweep.total,
                "done": sweep.done,
                "failed": sweep.failed,
                "left": sweep.left,
            }
            for sweep in sweep_queries.sweep_summaries(db, limit=SWEEPS_SHOWN)
        ],
    }
