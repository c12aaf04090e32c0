"""Lists and drains hosts."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from orchestrator.app.control_sweeps import publish_change
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.store import leases, phone_actions, phone_queries
from orchestrator.store.operator_change import OperatorChange
from workloads.protocol.messages import PhoneState


class HostState(StrEnum):
    """Whether a host works."""

    UP = "up"
    DRAINED = "drained"
    AWAY = "away"


@dataclass(frozen=True)
class HostSummary:
    """A host of the lab in one line."""

    host: str
    state: HostState
    phones: int
    busy: int
    clock_offset_s: float | None  # how far its clock is ahead of this computer's
    drain_reason: str = ""


@operation(Role.VIEWER)
def list_hosts(lab: LabConnection) -> list[HostSummary]:
    """List the hosts that send heartbeats, have phones in the store, or are drained."""
    heartbeats = {heartbeat.host: heartbeat for heartbeat in lab.broker.heartbeats()}
    drained = leases.drained_hosts(lab.store)
    known = {phone.host for phone in phone_queries.known_phones(lab.store)}
    now = datetime.now(UTC)
    summaries = []
    for host in sorted({*heartbeats, *known, *drained}):
        heartbeat = heartbeats.get(host)
        states = [phone.state for phone in heartbeat.phones] if heartbeat else []
        state = HostState.DRAINED if host in drained else HostState.UP
        summaries.append(
            HostSummary(
                host,
                HostState.AWAY if heartbeat is None else state,
                sum(state is not PhoneState.AWAY for state in states),
                sum(state is PhoneState.BUSY for state in states),
                (heartbeat.sent_at - now).total_seconds() if heartbeat else None,
                drained.get(host, ""),
            )
        )
    return summaries


@operation(Role.OPERATOR)
def drain_host(
    lab: LabConnection, host: str, reason: str = "", dry_run: bool = False
) -> OperatorChange:
    """Send no more runs to a host; running ones finish."""
    lab.broker.check()
    return publish_change(lab, phone_actions.drain(lab.store, host, lab.actor(dry_run), reason))


@operation(Role.OPERATOR)
def undrain_host(lab: LabConnection, host: str, dry_run: bool = False) -> OperatorChange:
    """Send runs to a host again."""
    lab.broker.check()
    return publish_change(lab, phone_actions.undrain(lab.store, host, lab.actor(dry_run)))
