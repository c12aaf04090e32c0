"""CheckFinding: the result of one check of `farm doctor`, with its remedy."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


@dataclass(frozen=True)
class CheckFinding:
    """The result of one check, and what to do about it."""

    subject: str
    level: Severity
    text: str
    fix: str = ""
