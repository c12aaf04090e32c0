"""Reads what the broker alone knows: fast, and without the store."""

from typing import TYPE_CHECKING

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation

if TYPE_CHECKING:
    from workloads.protocol.messages import PhoneStatus


@operation(Role.VIEWER)
def list_connected_phones(lab: LabConnection) -> "list[PhoneStatus]":
    """List the phones that hosts report at the moment."""
    return [status for heartbeat in lab.broker.heartbeats() for status in heartbeat.phones]
