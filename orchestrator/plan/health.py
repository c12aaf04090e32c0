"""The health of a phone: a pure decision from what its reports say.

A phone that fails again and again, drifts, comes and goes, or could not be put back is suspect: it
gets no runs, is checked, and then works again or is quarantined until somebody releases it.
"""

from dataclasses import dataclass
from enum import StrEnum

from workloads.fault import Blame
from workloads.messages import Report

STRIKES_MAX = 3
FLAPS_MAX = 4
NOT_PUT_BACK = "not put back"
DRIFTED = "the phone itself drifted"
_SENSOR = "SensorMissing"


class Health(StrEnum):
    """Whether a phone gets runs."""

    GOOD = "good"
    SUSPECT = "suspect"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class Standing:
    """Where a phone stands: its health, why, and how many strikes it has in a row."""

    health: Health = Health.GOOD
    why: str = ""
    strikes: int = 0


def after_report(now: Standing, report: Report) -> Standing:
    """How a phone stands after one more report; only a check brings a suspect one back."""
    if now.health is not Health.GOOD:
        return now
    broken = _broken_restore(report)
    if broken is not None:
        return Standing(Health.SUSPECT, broken, now.strikes + 1)
    strike = _strike(report)
    if strike is None:
        return Standing()
    if strike == "":
        return now
    strikes = now.strikes + 1
    if strikes < STRIKES_MAX:
        return Standing(Health.GOOD, "", strikes)
    return Standing(Health.SUSPECT, f"{strikes} times in a row, at last: {strike}", strikes)


def after_flaps(now: Standing, flaps: int) -> Standing:
    """How a phone stands that was lost so often in the last minutes."""
    if now.health is not Health.GOOD or flaps < FLAPS_MAX:
        return now
    return Standing(Health.SUSPECT, f"it was lost {flaps} times in ten minutes", now.strikes)


def after_check(good: bool, text: str) -> Standing:
    """A check decides: back to work, or out of it with the reason."""
    return Standing() if good else Standing(Health.QUARANTINED, text)


def _broken_restore(report: Report) -> str | None:
    """What a report says of a phone that could not be put back, beside its verdict or fault."""
    told = list(report.verdict.reasons) if report.verdict is not None else []
    told += [report.fault.text] if report.fault is not None else []
    return next((text for text in told if NOT_PUT_BACK in text), None)


def _strike(report: Report) -> str | None:
    """What a report has against its phone; None for a sound run, empty where nothing is known."""
    fault = report.fault
    if fault is None:
        reasons = report.verdict.reasons if report.verdict is not None else ()
        return next((reason for reason in reasons if reason.startswith(DRIFTED)), None)
    if fault.blame is Blame.PHONE or fault.kind == _SENSOR:
        return f"{fault.kind} while {fault.stage}: {fault.text}"
    return ""
