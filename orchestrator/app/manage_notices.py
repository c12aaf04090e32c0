"""Notices: what the lab has reported to people, and whether it reached them."""

from collections.abc import Collection

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.store import notices
from orchestrator.store.notices import DeliveryState, StoredNotice
from workloads.protocol.faults import InvalidRequest
from workloads.service_settings import NoticeKind, NoticeSettings

__all__ = ["DeliveryState"]

NOTICES_MAX = 1000


@operation(Role.VIEWER)
def list_notices(lab: LabConnection, limit: int = 50) -> list[StoredNotice]:
    """List the newest notices with their deliveries, newest first."""
    return notices.latest_notices(lab.store, max(1, min(limit, NOTICES_MAX)))


@operation(Role.OPERATOR)
def send_test_notice(lab: LabConnection, target: str) -> int:
    """Queue a notice for one target; return its number. The scheduler delivers it."""
    check_targets(lab.lab.settings.notices, [target])
    with lab.store.write() as connection:
        text = f"this is a test, requested by {lab.user}"
        return notices.add_event(connection, NoticeKind.TEST, target, text)


def check_targets(settings: NoticeSettings, names: Collection[str]) -> None:
    """Refuse names of targets that the lab does not have."""
    for name in names:
        if name not in settings.targets:
            known = ", ".join(sorted(settings.targets)) or "none"
            raise InvalidRequest(
                f"the lab has no target '{name}' of notices (it has {known}); "
                f"add [notices.targets.{name}] to lab.toml"
            )
