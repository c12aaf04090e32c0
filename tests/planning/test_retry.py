"""The retry decision by blame."""

import pytest

from orchestrator.store.retry import RetryAction, decide_retry
from orchestrator.sweepfile.policy import RetryLimits
from tests.builders import a_faulty_report, a_report, a_run, a_void_report
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.faults import (
    BadOutput,
    Blame,
    BrokerDown,
    FarmError,
    Hung,
    Interrupted,
    InvalidRequest,
    RunnerDied,
    TooHot,
    Unreachable,
)
from workloads.protocol.messages import Job
from workloads.protocol.verdict import Reason, ReasonCode, Validity, Verdict

JOB = Job(
    run=a_run(),
    phone="PH1",
    fence=1,
    lease_timeout_s=30,
    case=bind("noop", {}),
    condition=Condition(),
)


@pytest.mark.parametrize(
    ("error", "earlier", "following"),
    [
        (InvalidRequest("no"), {}, RetryAction.GIVE_UP),  # the request is wrong
        (RunnerDied(), {}, RetryAction.GIVE_UP),  # a finding
        (BadOutput(), {}, RetryAction.GIVE_UP),  # a finding too
        (Unreachable(), {}, RetryAction.RETRY),  # the cable, first time
        (Hung(), {Blame.PHONE: 1}, RetryAction.RETRY),  # second time
        (Hung(), {Blame.PHONE: 2}, RetryAction.GIVE_UP),  # third time
        (Hung(), {Blame.CONDITION: 2}, RetryAction.RETRY),  # other blames do not count
        (TooHot(), {}, RetryAction.RETRY),  # healthy, but the condition is not met
        (TooHot(), {Blame.CONDITION: 2}, RetryAction.GIVE_UP),
        (BrokerDown(), {Blame.FARM: 50}, RetryAction.RETRY),  # the farm's own faults never count
        (Interrupted(), {Blame.PHONE: 2}, RetryAction.RETRY),
    ],
)
def test_the_blame_decides_the_retry(
    error: FarmError, earlier: dict[str, int], following: RetryAction
) -> None:
    assert decide_retry(a_faulty_report(JOB, error), earlier).action == following


def a_suspect_verdict(*codes: ReasonCode) -> Verdict:
    return Verdict(validity=Validity.SUSPECT, reasons=tuple(Reason.suspect(code) for code in codes))


def test_valid_and_suspect_runs_are_accepted_and_void_ones_are_retried() -> None:
    assert decide_retry(a_report(JOB), {}).action == RetryAction.ACCEPT
    suspect = a_suspect_verdict(ReasonCode.NOT_COMMISSIONED, ReasonCode.OTHER_CORES_BUSY)
    assert decide_retry(a_report(JOB, verdict=suspect), {}).action == RetryAction.ACCEPT
    assert decide_retry(a_void_report(JOB), {}).action == RetryAction.RETRY
    assert decide_retry(a_void_report(JOB), {Blame.CONDITION: 2}).action == RetryAction.GIVE_UP


def test_a_run_that_something_passing_disturbed_is_repeated_and_the_last_one_is_kept() -> None:
    report = a_report(JOB, verdict=a_suspect_verdict(ReasonCode.OTHER_CORES_BUSY))
    limits = RetryLimits(condition=3)
    actions = [decide_retry(report, {Blame.CONDITION: n}, limits).action for n in range(3)]
    assert actions == [RetryAction.RETRY, RetryAction.RETRY, RetryAction.ACCEPT]


def test_a_run_that_only_did_not_learn_is_accepted_for_its_times_on_request() -> None:
    reasons = (Reason.void(ReasonCode.LOSS_NOT_FINITE), Reason.remark(ReasonCode.NEW_REFERENCE))
    diverged = Verdict(validity=Validity.VOID, reasons=reasons, deterministic=True)
    slow = diverged.model_copy(update={"reasons": (*reasons, Reason.void(ReasonCode.TOO_SHORT))})
    assert decide_retry(a_report(JOB, verdict=diverged), {}).action == RetryAction.GIVE_UP
    assert decide_retry(a_report(JOB, verdict=slow), {}, accept_timing=True).action != (
        RetryAction.ACCEPT
    )
    accepted = decide_retry(a_report(JOB, verdict=diverged), {}, accept_timing=True)
    assert accepted.action == RetryAction.ACCEPT


def test_a_run_that_did_other_work_is_a_finding() -> None:
    reason = Reason.void(ReasonCode.BACKEND_FALLBACK, count=2)
    other = Verdict(validity=Validity.VOID, reasons=(reason,), deterministic=True)
    decision = decide_retry(a_report(JOB, verdict=other), {})
    assert (decision.action, decision.blame) == (RetryAction.GIVE_UP, Blame.RUNNER)
    assert decision.reason == reason.text


@pytest.mark.parametrize(
    ("error", "after_runs"),
    [(Unreachable(), [1, 4]), (TooHot(), [4, 16]), (BrokerDown(), [0, 1, 2, 4, 8, 16, 16])],
)
def test_each_retry_stands_further_back_in_the_order(
    error: FarmError, after_runs: list[int]
) -> None:
    limits = RetryLimits(phone=3, condition=3)
    places = [
        decide_retry(a_faulty_report(JOB, error), {error.blame: earlier}, limits).place
        for earlier in range(len(after_runs))
    ]
    assert [place.after_runs for place in places] == after_runs
    has_pause = [place.pause_s > 0 for place in places]
    assert has_pause == [error.blame is Blame.FARM and place.after_runs > 0 for place in places]
