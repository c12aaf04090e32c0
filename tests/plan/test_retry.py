"""What follows a report: the blame table, row by row."""

import pytest

from orchestrator.plan.retry import Next, decide
from tests.builders import a_faulty_report, a_report, a_run, a_void_report
from workloads.catalogue import bind
from workloads.condition import Condition
from workloads.fault import (
    BadOutput,
    Blame,
    BrokerDown,
    FarmError,
    Hung,
    Interrupted,
    Refused,
    RunnerDied,
    TooHot,
    Unreachable,
)
from workloads.measure import Standing, Verdict
from workloads.messages import Job

JOB = Job(
    run=a_run(), phone="PH1", fence=1, lease_s=30, case=bind("noop", {}), condition=Condition()
)


@pytest.mark.parametrize(
    ("error", "earlier", "following"),
    [
        (Refused("no"), {}, Next.NEVER),  # the question is wrong
        (RunnerDied(), {}, Next.NEVER),  # a finding
        (BadOutput(), {}, Next.NEVER),  # a finding too
        (Unreachable(), {}, Next.AGAIN),  # the cable, first time
        (Hung(), {Blame.PHONE: 1}, Next.AGAIN),  # second time
        (Hung(), {Blame.PHONE: 2}, Next.NEVER),  # third time
        (Hung(), {Blame.CONDITION: 2}, Next.AGAIN),  # other blames do not count
        (TooHot(), {}, Next.LATER),  # healthy, but not as asked
        (TooHot(), {Blame.CONDITION: 2}, Next.NEVER),
        (BrokerDown(), {Blame.FARM: 50}, Next.AGAIN),  # our own trouble never counts
        (Interrupted(), {Blame.PHONE: 2}, Next.AGAIN),
    ],
)
def test_blame_decides(error: FarmError, earlier: dict[str, int], following: Next) -> None:
    assert following == decide(a_faulty_report(JOB, error), earlier).next


def test_valid_and_suspect_runs_are_done_and_void_ones_come_again_later() -> None:
    assert Next.DONE == decide(a_report(JOB), {}).next
    suspect = Verdict(standing=Standing.SUSPECT, reasons=("other load",))
    assert Next.DONE == decide(a_report(JOB, verdict=suspect), {}).next
    assert Next.LATER == decide(a_void_report(JOB), {}).next
    assert Next.NEVER == decide(a_void_report(JOB), {Blame.CONDITION: 2}).next


def test_a_run_that_did_other_work_is_a_finding() -> None:
    other = Verdict(standing=Standing.VOID, reasons=("the loss did not fall",), finding=True)
    decision = decide(a_report(JOB, verdict=other), {})
    assert (Next.NEVER, Blame.RUNNER, "the loss did not fall") == (
        decision.next,
        decision.blame,
        decision.why,
    )


def test_the_farms_own_trouble_is_waited_out_longer_each_time() -> None:
    pauses = [decide(a_faulty_report(JOB, BrokerDown()), {Blame.FARM: n}).pause_s for n in range(9)]
    assert pauses == sorted(pauses)
    assert (0.0, 30.0) == (pauses[0], pauses[-1])
