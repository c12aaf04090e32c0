"""Commissioning a phone: what is learned, what is kept when it fails, and what depends on it."""

from dataclasses import replace
from datetime import date

import pytest

from agent.commission import (
    canary_problem,
    commission_phone,
    conditions,
    is_commissioning_due,
    noise_text,
)
from agent.judge.verdict_rules import judge
from agent.phone.canary_reference import RUNS_LEARNED
from agent.phone.phone_memory import load_phone_memory
from agent.restore.fence import take_fence
from orchestrator.tui.phone_detail import commission_text
from tests.agent.lane_harness import QUICK, LaneHarness
from tests.agent.observations import PROBE, an_observation
from tests.builders import a_phone
from workloads.protocol.metrics import Provenance, Provenances, Source
from workloads.protocol.phone_facts import CanaryFacts, CanaryKind, Commission
from workloads.protocol.verdict import ReasonCode, Validity

COMMISSION = Commission(on=date(2026, 1, 2), quick=True, canaries=())


def test_a_phone_is_commissioned_quickly_and_again(lane_harness: LaneHarness) -> None:
    phone, context = lane_harness.phone, lane_harness.context
    context.canary = True
    take_fence(phone, 7, "host-a")
    for _ in range(2):
        succeeded, text = commission_phone(phone, context, quick=True)
        assert succeeded, text
    commission = phone.facts.commission
    assert commission is not None
    assert commission.quick
    assert [canary.kind for canary in commission.canaries] == list(CanaryKind)
    assert all(canary.detectable < 0.03 for canary in commission.canaries), commission
    assert all(canary.seconds <= 2 for canary in commission.canaries)
    assert phone.memory.gauge is not None
    saved = load_phone_memory(context.state_dir, phone.facts.serial)
    assert (saved.commission, len(saved.canaries)) == (commission, 3)
    assert "canaries detect changes: arithmetic from" in commission_text(phone.facts)
    # A disturbed series changes nothing of it, even if its runs are only suspect.
    lane_harness.inject("other_work", mask="0f")
    succeeded, text = commission_phone(phone, context, quick=True)
    assert not succeeded
    assert "a run was disturbed (other work" in text
    assert phone.memory.canaries == saved.canaries
    assert phone.facts.commission == commission


def test_a_phone_whose_canaries_vary_is_told_what_it_can_show() -> None:
    steady, unsteady = (
        [CanaryFacts(kind=kind, seconds=1.0, detectable=shown) for kind in CanaryKind]
        for shown in (0.02, 0.07)
    )
    assert canary_problem(steady) == canary_problem(unsteady) == ""
    assert noise_text(steady) == ""
    assert "only changes from 7% on" in noise_text(unsteady)
    assert "a canary failed" in canary_problem(steady[:1])


def test_a_run_that_is_disturbed_leaves_no_reference(lane_harness: LaneHarness) -> None:
    phone, lane_harness.context.canary = lane_harness.phone, True
    lane_harness.inject("other_work", mask="f0")
    disturbed = lane_harness.run_attempt(1, **QUICK)
    assert disturbed.verdict is not None
    assert disturbed.verdict.validity is Validity.SUSPECT
    assert phone.memory.canaries == {}


@pytest.mark.slow
def test_a_phone_is_commissioned_in_full(lane_harness: LaneHarness) -> None:
    phone, context = lane_harness.phone, lane_harness.context
    context.canary = True
    succeeded, text = commission_phone(phone, context, quick=False)
    assert succeeded, text
    memory = phone.memory
    assert memory.idle_w is not None
    assert memory.cooling.coolings
    assert memory.rest is not None
    assert memory.rest.waited
    assert len(memory.canaries) == 3
    assert memory.commission is not None
    assert not memory.commission.quick


def test_the_series_fits_the_phone() -> None:
    facts = a_phone()
    quick = list(conditions(facts, quick=True))
    assert [(item.cores, item.freq, item.start_temp_max_c) for item in quick] == [
        ("big4", "high", 60.0)
    ] * RUNS_LEARNED
    unrooted = facts.model_copy(update={"clocks_writable": False, "cpu_zones": ()})
    full = list(conditions(unrooted, quick=False))
    starts = [None] + ["rest"] * RUNS_LEARNED
    assert [(item.freq, item.start_temp_max_c) for item in full] == [("free", at) for at in starts]
    equal = facts.model_copy(update={"clusters": facts.clusters[:1]})
    assert next(conditions(equal, quick=True)).cores == "all4"


@pytest.mark.parametrize("source", [Source.PHONE, Source.HOST])
def test_only_a_physical_phone_has_to_be_commissioned(source: Source) -> None:
    time = Provenance(source=source)
    provenance = Provenances(time=time, clock=time, heat=time, energy=None)
    verdict = judge(an_observation(provenance=provenance))
    codes = {reason.code for reason in verdict.reasons}
    assert (ReasonCode.NOT_COMMISSIONED in codes) == (source is Source.PHONE)
    assert (verdict.validity is Validity.SUSPECT) == (source is Source.PHONE)
    facts = PROBE.facts.model_copy(update={"provenance": provenance})
    assert is_commissioning_due(facts) == (source is Source.PHONE)
    asked = "run 'farm phone commission" in commission_text(facts)
    assert asked == (source is Source.PHONE)
    probe = replace(PROBE, facts=facts.model_copy(update={"commission": COMMISSION}))
    assert judge(an_observation(probe=probe, provenance=provenance)).validity is Validity.VALID
