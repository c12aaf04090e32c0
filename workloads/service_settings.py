"""The settings of lab.toml that every service has: log, health, and who gets notices."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from workloads.protocol.base import WireModel

# An IPv6 address is in brackets, as in a URL: [::1]:8400.
LISTEN_PATTERN = r"^(\[[0-9A-Fa-f:.]{2,45}\]|[^\s/@:]{1,200}):[0-9]{1,5}$"


class NoticeKind(StrEnum):
    """What is reported to people."""

    SWEEP_ENDED = "sweep_ended"
    SWEEP_BLOCKED = "sweep_blocked"
    BUDGET_SPENT = "budget_spent"
    PHONE_QUARANTINED = "phone_quarantined"
    PHONE_AWAY = "phone_away"
    HOST_AWAY = "host_away"
    DISK_LOW = "disk_low"
    TEST = "test"


class LogSettings(WireModel):
    """[log]"""

    format: Literal["text", "json"] = Field(
        default="text",
        description="form of the services' log lines: text, or json with named values",
    )
    file_mb_max: float = Field(
        default=20,
        gt=0,
        le=1_000_000,
        description="size at which 'farm up' starts a new log file, in MB; it keeps two older ones",
    )


class HealthSettings(WireModel):
    """[health]"""

    listen: str = Field(
        default="127.0.0.1:0",
        pattern=LISTEN_PATTERN,
        description="address of /healthz, /readyz and /metrics of a service; port 0: a free one, "
        "which run/SERVICE.json names",
    )


class NoticeTarget(WireModel):
    """[notices.targets.NAME]"""

    webhook: str = Field(
        default="", pattern=r"^$|^https?://", description="URL to which a notice is posted as JSON"
    )
    secret_file: str = Field(
        default="", description="file with the key that signs what is posted (HMAC-SHA256)"
    )
    command: tuple[str, ...] = Field(
        default=(), description="program and its arguments; it gets the notice as JSON on stdin"
    )
    kinds: tuple[NoticeKind, ...] = Field(default=(), description="which notices; empty: all")
    only_requested: bool = Field(
        default=False, description="only notices of sweeps that name this target with --notify"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.webhook) == bool(self.command):
            raise ValueError("a target has either webhook or command")
        if self.webhook and not self.secret_file:
            raise ValueError("a webhook needs secret_file, which signs what is posted")
        return self


class NoticeSettings(WireModel):
    """[notices]"""

    away_after_s: float = Field(
        default=300,
        gt=0,
        le=1e7,
        description="seconds after which a missing phone or host is a notice",
    )
    disk_free_gb_min: float = Field(
        default=2,
        ge=0,
        le=1_000_000,
        description="free space of the lab folder below which there is a notice",
    )
    bell: bool = Field(default=True, description="whether the terminal of 'farm up' rings")
    targets: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")], NoticeTarget] = (
        Field(
            default={},
            description="who gets notices: [notices.targets.NAME] with webhook or command",
        )
    )
