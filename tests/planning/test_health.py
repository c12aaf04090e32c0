"""The health of a phone: what makes a lab hold it, and what ends that."""

import pytest

from orchestrator.planning.states import Health
from orchestrator.store.phone_health import (
    FLAPS_MAX,
    HealthState,
    health_after_check,
    health_after_flaps,
    health_after_report,
)
from tests.builders import a_faulty_report, a_phone, a_report, a_trial
from workloads.protocol.faults import (
    FarmError,
    FarmTrouble,
    InvalidRequest,
    RunnerDied,
    SensorMissing,
    Unreachable,
)
from workloads.protocol.messages import Job, Report, RunId
from workloads.protocol.verdict import Reason, ReasonCode, Verdict
from workloads.protocol.verdict import Validity as Run

TRIAL = a_trial()
JOB = Job(
    run=RunId(trial=TRIAL.id, repeat=0, attempt=1),
    phone=a_phone().serial,
    fence=1,
    lease_timeout_s=30,
    case=TRIAL.case,
    condition=TRIAL.condition,
)


def faulty(error: FarmError) -> Report:
    return a_faulty_report(JOB, error)


def after(*reports: Report) -> HealthState:
    state = HealthState()
    for report in reports:
        state = health_after_report(state, report)
    return state


def test_three_faults_of_the_phone_in_a_row_hold_it() -> None:
    fault = faulty(Unreachable("the cable"))
    assert after(fault, fault).health is Health.GOOD
    held = after(fault, fault, fault)
    assert held.health is Health.HELD
    assert held.strikes == 3
    assert "the cable" in held.reason


def test_a_valid_run_resets_the_strikes() -> None:
    fault = faulty(Unreachable())
    assert after(fault, fault, a_report(JOB), fault, fault).health is Health.GOOD


@pytest.mark.parametrize("error", [FarmTrouble(), InvalidRequest(), RunnerDied()])
def test_faults_of_others_neither_count_nor_reset(error: FarmError) -> None:
    fault = faulty(SensorMissing())
    assert after(fault, faulty(error), fault, faulty(error), fault).health is Health.HELD
    assert after(*[faulty(error)] * 5) == HealthState()


def test_a_failed_restore_holds_a_phone() -> None:
    measured = a_report(JOB, restore_error="node x")
    assert after(measured).health is Health.HELD
    failed = faulty(RunnerDied()).model_copy(update={"restore_error": "node x"})
    assert after(failed).health is Health.HELD


@pytest.mark.parametrize("text", ["adb: file was not put back into cache", "not restored: all"])
def test_the_text_of_a_fault_has_no_effect(text: str) -> None:
    assert after(faulty(FarmTrouble(text))) == HealthState()


def test_drift_counts_as_a_strike() -> None:
    reason = Reason.void(ReasonCode.CANARY_CHANGED, change=0.09)
    verdict = Verdict(validity=Run.VOID, reasons=(reason,))
    drifted = a_report(JOB, verdict=verdict)
    assert after(drifted, drifted, drifted).health is Health.HELD


def test_a_phone_that_disconnects_repeatedly_is_held() -> None:
    assert health_after_flaps(HealthState(), FLAPS_MAX - 1).health is Health.GOOD
    assert health_after_flaps(HealthState(), FLAPS_MAX).health is Health.HELD


def test_only_a_check_ends_the_suspicion() -> None:
    state = HealthState(Health.HELD, "why", 3)
    assert health_after_report(state, a_report(JOB)) == state
    assert health_after_check(True, "fine") == HealthState()
    assert health_after_check(False, "no sensor") == HealthState(Health.QUARANTINED, "no sensor")
