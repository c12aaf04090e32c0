"""Whether a host may use the broker of a lab."""

from dataclasses import dataclass
from enum import StrEnum


class Access(StrEnum):
    """Whether a host may use the broker."""

    OFFERED = "offered"  # it has not joined yet
    ENROLLED = "enrolled"
    REVOKED = "revoked"


@dataclass(frozen=True)
class HostAccess:
    """A host that was added to the lab."""

    host: str
    access: Access
    enrolled_at_s: float  # 0: never
    certificate_until_s: float  # 0: it has none
    password_digest: str
