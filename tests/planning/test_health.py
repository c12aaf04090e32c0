"""The health of a phone: what makes it suspect, and what brings it back."""

import pytest

from orchestrator.plan.health import (
    FLAPS_MAX,
    Health,
    Standing,
    after_check,
    after_flaps,
    after_report,
)
from tests.builders import a_faulty_report, a_phone, a_report, a_trial
from workloads.fault import FarmError, FarmTrouble, Refused, RunnerDied, SensorMissing, Unreachable
from workloads.measure import Standing as Run
from workloads.measure import Verdict
from workloads.messages import Job, Report, RunId

TRIAL = a_trial()
JOB = Job(
    run=RunId(trial=TRIAL.id, repeat=0, attempt=1),
    phone=a_phone().serial,
    fence=1,
    lease_s=30,
    case=TRIAL.case,
    condition=TRIAL.condition,
)


def faulty(error: FarmError) -> Report:
    return a_faulty_report(JOB, error)


def after(*reports: Report) -> Standing:
    standing = Standing()
    for report in reports:
        standing = after_report(standing, report)
    return standing


def test_three_faults_of_the_phone_in_a_row_make_it_suspect() -> None:
    gone = faulty(Unreachable("the cable"))
    assert after(gone, gone).health is Health.GOOD
    found = after(gone, gone, gone)
    assert found.health is Health.SUSPECT
    assert "3 times in a row" in found.why
    assert "the cable" in found.why


def test_a_sound_run_forgives() -> None:
    gone = faulty(Unreachable())
    assert after(gone, gone, a_report(JOB), gone, gone).health is Health.GOOD


@pytest.mark.parametrize("error", [FarmTrouble(), Refused(), RunnerDied()])
def test_what_is_not_the_phones_fault_neither_counts_nor_forgives(error: FarmError) -> None:
    gone = faulty(SensorMissing())
    assert after(gone, faulty(error), gone, faulty(error), gone).health is Health.SUSPECT
    assert after(*[faulty(error)] * 5) == Standing()


def test_a_broken_restore_is_enough() -> None:
    verdict = Verdict(standing=Run.VALID, reasons=("not put back: node x",))
    assert after(a_report(JOB, verdict=verdict)).health is Health.SUSPECT
    failed = faulty(RunnerDied("It died. (not put back: node x)"))
    assert after(failed).health is Health.SUSPECT


def test_drift_counts_as_a_strike() -> None:
    verdict = Verdict(standing=Run.VOID, reasons=("the phone itself drifted: +9.0%",))
    drifted = a_report(JOB, verdict=verdict)
    assert after(drifted, drifted, drifted).health is Health.SUSPECT


def test_a_phone_that_comes_and_goes_is_suspect() -> None:
    assert after_flaps(Standing(), FLAPS_MAX - 1).health is Health.GOOD
    assert after_flaps(Standing(), FLAPS_MAX).health is Health.SUSPECT


def test_only_a_check_decides_about_a_suspect() -> None:
    suspect = Standing(Health.SUSPECT, "why", 3)
    assert after_report(suspect, a_report(JOB)) == suspect
    assert after_check(True, "fine") == Standing()
    assert after_check(False, "no sensor") == Standing(Health.QUARANTINED, "no sensor")
