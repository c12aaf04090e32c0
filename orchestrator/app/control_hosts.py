"""Lists and drains hosts."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from orchestrator.app.control_sweeps import publish_change
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.dispatch.central_broker import HostReading
from orchestrator.dispatch.host_notices import NO_RUNS, HostNotice, host_notices
from orchestrator.dispatch.ownership import own_readings
from orchestrator.store import enrolments, leases, phone_actions, phone_queries
from orchestrator.store.operator_change import OperatorChange
from workloads.protocol.messages import PhoneState
from workloads.text import TextEnum


class HostState(TextEnum):
    """Whether a host works."""

    UP = "up", "its phones get runs"
    DRAINED = "drained", "starts no runs; `farm host drain HOST --off` ends that"
    AWAY = "away", "its agent sends nothing: it is switched off, or cannot reach the broker"
    STOPPED = "stopped", "gets no runs because of the problem that `farm host list` shows"


@dataclass(frozen=True)
class HostSummary:
    """A host of the lab in one line."""

    host: str
    state: HostState
    phones: int
    busy: int
    clock_offset_s: float | None  # how far its clock is ahead of this computer's
    drain_reason: str = ""
    software: str = ""
    instance: str = ""
    problems: tuple[HostNotice, ...] = ()


@operation(Role.VIEWER)
def list_hosts(lab: LabConnection) -> list[HostSummary]:
    """List the hosts that send heartbeats, joined, have phones in the store, or are drained."""
    accesses = enrolments.host_accesses(lab.store)
    names = enrolments.lab_hosts(accesses, lab.lab.settings.scheduler.hosts)
    owned = phone_queries.owned_phones(lab.store)
    owners = {serial: item.host for serial, item in owned.items()}
    previous = partial(phone_queries.previous_hosts, lab.store)
    own = own_readings(lab.broker.host_readings(names), owners, previous)
    readings = {item.host: item for item in own}
    notices = host_notices(own, lab.broker.ingest_services(), names)
    drained = leases.drained_hosts(lab.store)
    known = set(owners.values())
    heard = {item.host for item in notices}
    return [
        _summary(
            host,
            readings.get(host),
            tuple(item for item in notices if item.host == host),
            drained.get(host),
        )
        for host in sorted({*readings, *known, *drained, *heard, *(names or ())})
    ]


def _summary(
    host: str,
    reading: HostReading | None,
    notices: tuple[HostNotice, ...],
    drain_reason: str | None,
) -> HostSummary:
    heartbeat = reading.heartbeat if reading else None
    states = [phone.state for phone in heartbeat.phones] if heartbeat else []
    state = HostState.UP if drain_reason is None else HostState.DRAINED
    if any(item.problem in NO_RUNS for item in notices):
        state = HostState.STOPPED
    offset_s = (heartbeat.sent_at - datetime.now(UTC)).total_seconds() if heartbeat else None
    return HostSummary(
        host,
        HostState.AWAY if reading is None else state,
        sum(state is not PhoneState.AWAY for state in states),
        sum(state is PhoneState.BUSY for state in states),
        offset_s,
        drain_reason or "",
        heartbeat.software if heartbeat else "",
        (heartbeat.instance or "") if heartbeat else "",
        notices,
    )


@operation(Role.OPERATOR)
def drain_host(
    lab: LabConnection, host: str, reason: str = "", dry_run: bool = False
) -> OperatorChange:
    """Send no more runs to a host; running ones finish."""
    lab.broker.check()
    change = phone_actions.set_drained(lab.store, host, lab.actor(dry_run), True, reason)
    return publish_change(lab, change)


@operation(Role.OPERATOR)
def undrain_host(lab: LabConnection, host: str, dry_run: bool = False) -> OperatorChange:
    """Send runs to a host again."""
    lab.broker.check()
    change = phone_actions.set_drained(lab.store, host, lab.actor(dry_run), False)
    return publish_change(lab, change)
