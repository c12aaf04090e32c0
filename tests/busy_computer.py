"""Runs on this computer, which others use too: what may be objected to, and what never."""

import os
import platform

import pytest

from workloads.protocol.verdict import ReasonCode, Validity, Verdict

# Other work on this computer takes its cores, its memory or its time. None of these makes it void.
BUSY_COMPUTER = {
    *(ReasonCode.OTHER_CORES_BUSY, ReasonCode.OWN_CORES_SHARED, ReasonCode.CANARY_CHANGED),
    *(ReasonCode.CANARY_DRIFTED, ReasonCode.CANARY_FAILED, ReasonCode.SAMPLING_GAP),
    # Canaries that were disturbed throughout show too little of what the cores can do.
    ReasonCode.SPEED_IMPOSSIBLE,
    # A program that is stopped between two records does not account for that time.
    *(ReasonCode.TIME_MISMATCH, ReasonCode.POWER_CHANGED, ReasonCode.SWAPPED),
    *(ReasonCode.WORK_RATE_LOW, ReasonCode.WORK_RATE_HIGH, ReasonCode.WORK_RATE_CHANGED),
    *(code for code in ReasonCode if code.startswith(("step_times", "energy", "too_few"))),
}
# The runner and the agent alone decide where threads run.
CORE_REASONS = {
    *(ReasonCode.WRONG_CORES, ReasonCode.THREAD_ON_OTHER_CORES),
    *(ReasonCode.THREADS_MOVED, ReasonCode.CORE_OFFLINE),
}

needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the native runner is for x86_64"
)
needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="this computer has one core"
)


def assert_accepted(verdict: Verdict) -> None:
    """The run is valid, or suspect because of other work on this computer."""
    bad = {reason.code for reason in verdict.reasons if reason.validity is not Validity.VALID}
    assert bad <= BUSY_COMPUTER, verdict
    assert verdict.validity is not Validity.VOID, verdict
