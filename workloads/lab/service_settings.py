"""The settings of lab.toml that every service has: log, health, and who gets notices."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from workloads.protocol.base import WireModel

# An IPv6 address is in brackets, as in a URL: [::1]:8400.
LISTEN_PATTERN = r"^(\[[0-9A-Fa-f:.]{2,45}\]|[^\s/@:]{1,200}):[0-9]{1,5}$"


class NoticeKind(StrEnum):
    """What is reported to people."""

    SWEEP_ENDED = "sweep_ended"
    SWEEP_STUCK = "sweep_stuck"
    PHONE_QUARANTINED = "phone_quarantined"
    HOST_TROUBLE = "host_trouble"
    SERVICE_DOWN = "service_down"
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


class NoticeSettings(WireModel):
    """[notices]"""

    webhook: str = Field(
        default="", pattern=r"^$|^https?://", description="URL to which notices are posted as JSON"
    )
    secret_file: str = Field(
        default="", description="file with the key that signs what is posted (HMAC-SHA256)"
    )
    command: tuple[str, ...] = Field(
        default=(), description="program and its arguments; it gets a notice as JSON on stdin"
    )
    away_after_s: float = Field(
        default=300,
        gt=0,
        le=1e7,
        description="seconds after which a missing host, store or broker is a notice, and a sweep "
        "without an available phone",
    )
    bell: bool = Field(default=True, description="whether the terminal of 'farm up' rings")

    @property
    def has_target(self) -> bool:
        """Whether notices leave the lab."""
        return bool(self.webhook or self.command)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.webhook and self.command:
            raise ValueError("notices have either webhook or command")
        if self.webhook and not self.secret_file:
            raise ValueError("a webhook needs secret_file, which signs what is posted")
        return self
