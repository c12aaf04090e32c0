"""Decides about the health of a phone from its reports, checks and disconnects. Pure.

A phone is suspect after repeated failures or canary drift, after frequent disconnects, or when its
settings were not restored. A suspect phone gets no runs; a health check then returns it to service
or quarantines it until an operator releases it.
"""

from dataclasses import dataclass
from enum import StrEnum

from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.messages import Report
from workloads.protocol.verdict import ReasonCode

STRIKES_MAX = 3
FLAPS_MAX = 4
_DRIFT = frozenset({ReasonCode.CANARY_CHANGED, ReasonCode.CANARY_DRIFTED})


class Health(StrEnum):
    """Whether a phone gets runs."""

    GOOD = "good"
    SUSPECT = "suspect"
    QUARANTINED = "quarantined"
    RETIRED = "retired"  # permanently: neither runs nor trials of new sweeps


@dataclass(frozen=True)
class HealthState:
    """The health of a phone, the reason for it, and the number of consecutive strikes."""

    health: Health = Health.GOOD
    reason: str = ""
    strikes: int = 0


def health_after_report(state: HealthState, report: Report) -> HealthState:
    """Return the state after one more report; only a check brings a suspect phone back."""
    if state.health is not Health.GOOD:
        return state
    if report.restore_error is not None:
        reason = f"settings were not restored: {report.restore_error}"
        return HealthState(Health.SUSPECT, reason, state.strikes + 1)
    strike = _strike(report)
    if strike is None:
        # A fault that the phone is not to blame for proves nothing: the strikes stay.
        return HealthState() if report.fault is None else state
    strikes = state.strikes + 1
    if strikes < STRIKES_MAX:
        return HealthState(Health.GOOD, "", strikes)
    return HealthState(Health.SUSPECT, f"{strikes} failures in a row, the last: {strike}", strikes)


def health_after_flaps(state: HealthState, flaps: int) -> HealthState:
    """Return the state of a phone that was lost this often in the last ten minutes."""
    if state.health is not Health.GOOD or flaps < FLAPS_MAX:
        return state
    reason = f"disconnected {flaps} times in ten minutes"
    return HealthState(Health.SUSPECT, reason, state.strikes)


def health_after_check(passed: bool, text: str) -> HealthState:
    """Return a checked phone to service, or quarantine it with the reason."""
    return HealthState() if passed else HealthState(Health.QUARANTINED, text)


def _strike(report: Report) -> str | None:
    """Return the text of what counts against the phone in a report, or None."""
    fault = report.fault
    if fault is None:
        reasons = report.verdict.reasons if report.verdict is not None else ()
        return next((reason.text for reason in reasons if reason.code in _DRIFT), None)
    if fault.blame is Blame.PHONE or fault.kind is FaultKind.SENSOR_MISSING:
        return str(fault)
    return None
