"""Notices: what the lab has reported to people, and whether it reached them."""

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.store import notices
from orchestrator.store.notices import DeliveryState, StoredNotice
from workloads.lab.service_settings import NoticeKind
from workloads.protocol.faults import InvalidRequest

__all__ = ["DeliveryState"]

NOTICES_MAX = 1000


@operation(Role.VIEWER)
def list_notices(lab: LabConnection, limit: int = 50) -> list[StoredNotice]:
    """List the newest notices, newest first."""
    return notices.latest_notices(lab.store, max(1, min(limit, NOTICES_MAX)))


@operation(Role.OPERATOR)
def send_test_notice(lab: LabConnection) -> int:
    """Queue a notice for the lab's webhook or command; return its number."""
    if not lab.lab.settings.notices.has_target:
        raise InvalidRequest(
            "the lab has no target of notices; set webhook or command in [notices] of lab.toml"
        )
    with lab.store.write() as connection:
        text = f"this is a test, requested by {lab.user}"
        return notices.add_event(connection, NoticeKind.TEST, lab.user, text)
