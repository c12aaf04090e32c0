"""The verdict: every way in which a run may fail to count."""

import math
from dataclasses import replace
from typing import Any

import pytest

from agent.collect.cpu_usage import CYCLES
from agent.collect.readings import NodeValue, Readings
from agent.collect.runner_output import CheckpointRecord, DoneRecord, ResumeRecord
from agent.judge.observe_disturbances import Disturbances
from agent.judge.run_observation import RunObservation, SamplingGap
from agent.judge.verdict_rules import judge
from agent.judge.work_rules import ClaimedWork
from agent.phone.canary_reference import CanaryReference, CanaryTimes
from tests.agent.observations import (
    BEFORE,
    CLAIMED,
    CLOCKS,
    COST,
    DONE,
    PROBE,
    SECOND_NS,
    UNPINNED,
    a_window,
    an_observation,
    output_of,
)
from workloads.catalogue import bind, cost_of
from workloads.protocol.condition import Condition, Protocol
from workloads.protocol.metrics import Provenance, Provenances, Source
from workloads.protocol.phone_facts import CanaryKind, ChargingSwitch
from workloads.protocol.verdict import ReasonCode, Validity
from workloads.step_cost import StepCost

ENDURANCE = Condition(protocol=Protocol.ENDURANCE)
PRODUCT = cost_of(bind("sgemm", {}))
WITHOUT_RESULTS = DoneRecord(steps=100, ns=1, t_ns=1, parameters_changed=True)
SWITCH = ChargingSwitch(path="/sys/charging", off="0", on="1")
WITH_SWITCH = replace(PROBE, facts=PROBE.facts.model_copy(update={"charging": SWITCH}))
CAPPED = {4: 1804800}
THROTTLED = ("thermal-cpufreq-0",)


def canary(
    before_ms: float, after_ms: float, slower: float = 0.0, is_held: bool = True
) -> dict[str, Any]:
    """Build the observation of a canary whose reference is 1 ms."""
    reference = CanaryReference(ms=1.0, spread=0.005, count=6, slower=slower)
    times = CanaryTimes(before_ms, after_ms, reference, is_held=is_held)
    return {"canaries": {CanaryKind.MEMORY: times}}


def test_a_run_as_requested_is_valid() -> None:
    verdict = judge(an_observation())
    assert (verdict.validity, verdict.reasons) == (Validity.VALID, ())


@pytest.mark.parametrize(
    ("changes", "validity", "code"),
    [
        ({"after": replace(BEFORE, boot_id="b")}, Validity.VOID, ReasonCode.PHONE_RESTARTED),
        ({"found_mask": 0xFF}, Validity.VOID, ReasonCode.WRONG_CORES),
        ({"before": replace(BEFORE, temp_c=36.0)}, Validity.VOID, ReasonCode.START_TOO_WARM),
        ({"before": replace(BEFORE, temp_c=None)}, Validity.VOID, ReasonCode.START_TEMP_UNKNOWN),
        (
            {"clocks": replace(CLOCKS, pinned_share=0.83)},
            Validity.VOID,
            ReasonCode.CLOCKS_NOT_PINNED,
        ),
        (
            {"clocks": replace(CLOCKS, pinned_share=None)},
            Validity.SUSPECT,
            ReasonCode.CLOCKS_UNVERIFIED,
        ),
        (
            {"clocks": replace(CLOCKS, counted=False)},
            Validity.SUSPECT,
            ReasonCode.CLOCKS_ONLY_SAMPLED,
        ),
        (
            {"clocks": replace(CLOCKS, capped_khz=CAPPED)},
            Validity.VALID,  # for a moment: the counted clock was held
            ReasonCode.CLOCK_CAPPED,
        ),
        (
            {"clocks": replace(CLOCKS, capped_khz=CAPPED, counted=False)},
            Validity.SUSPECT,
            ReasonCode.CLOCK_CAPPED,
        ),
        (
            {"clocks": replace(CLOCKS, capped_khz=CAPPED, pinned_share=None)},
            Validity.VOID,
            ReasonCode.CLOCK_CAPPED,
        ),
        (
            {"clocks": replace(CLOCKS, active_coolers=THROTTLED)},
            Validity.VALID,  # of another cluster, or for a moment
            ReasonCode.COOLING_DEVICE_ACTIVE,
        ),
        (
            {"clocks": replace(CLOCKS, active_coolers=THROTTLED, counted=False)},
            Validity.SUSPECT,
            ReasonCode.COOLING_DEVICE_ACTIVE,
        ),
        (
            {"clocks": replace(CLOCKS, active_coolers=THROTTLED), "probe": UNPINNED},
            Validity.SUSPECT,
            ReasonCode.COOLING_DEVICE_ACTIVE,
        ),
        (
            {"clocks": replace(CLOCKS, above_share=0.1), "condition": ENDURANCE, "span_s": 600.0},
            Validity.VOID,
            ReasonCode.CLOCK_ABOVE_REQUEST,
        ),
        (
            {"clocks": replace(CLOCKS, lowered_share=0.2), "condition": ENDURANCE, "span_s": 600.0},
            Validity.SUSPECT,
            ReasonCode.CLOCK_LOWERED,
        ),
        ({"span_s": 2.0}, Validity.VOID, ReasonCode.TOO_SHORT),
        ({"sampled_temps_c": ()}, Validity.SUSPECT, ReasonCode.NO_TEMP_READINGS),
        (
            {"sampled_temps_c": (30.0,) * 40, "span_s": 90.0},
            Validity.SUSPECT,
            ReasonCode.SENSOR_FROZEN,
        ),
        ({"sampled_temps_c": (38.4,) * 40}, Validity.SUSPECT, ReasonCode.SENSOR_FROZEN),
        (
            {"sampled_temps_c": (38.0,) * 40, "before": replace(BEFORE, temp_c=30.3)},
            Validity.SUSPECT,
            ReasonCode.SENSOR_FROZEN,
        ),
        (
            {"sampled_temps_c": (*(30 + n / 10 for n in range(60)), *(36.1,) * 40)},
            Validity.SUSPECT,
            ReasonCode.SENSOR_FROZEN,
        ),
        ({"sampling_gap": SamplingGap(5.0, 1.0)}, Validity.SUSPECT, ReasonCode.SAMPLING_GAP),
        ({"strays": {77: 0xFF}}, Validity.VOID, ReasonCode.THREAD_ON_OTHER_CORES),
        (
            {"disturbances": Disturbances(suspended_s=2.0)},
            Validity.VOID,
            ReasonCode.PHONE_SLEPT,
        ),
        (
            {"disturbances": Disturbances(other_cores_busy_pct=60.0)},
            Validity.SUSPECT,
            ReasonCode.OTHER_CORES_BUSY,
        ),
        (
            {"disturbances": Disturbances(25.0, other_cores_total_pct=60.0)},
            Validity.SUSPECT,
            ReasonCode.OTHER_CORES_BUSY,
        ),
        (
            {"disturbances": Disturbances(own_cores_shared_pct=20.0)},
            Validity.SUSPECT,
            ReasonCode.OWN_CORES_SHARED,
        ),
        (
            {"disturbances": Disturbances(body_rise_c=4.0)},
            Validity.SUSPECT,
            ReasonCode.BODY_WARMED,
        ),
        (
            {"disturbances": Disturbances(charging_share=0.5), "probe": WITH_SWITCH},
            Validity.SUSPECT,
            ReasonCode.CHARGED,
        ),
        ({"disturbances": Disturbances(charging_share=0.5)}, Validity.VALID, ReasonCode.CHARGED),
        (
            {
                "disturbances": Disturbances(steady_clock_share=0.7),
                "condition": Condition(freq="fixed"),
                "probe": UNPINNED,
            },
            Validity.SUSPECT,
            ReasonCode.FIXED_CLOCK_UNSTEADY,
        ),
        (canary(1.0, 1.1), Validity.VOID, ReasonCode.CANARY_CHANGED),
        (canary(1.1, 1.1), Validity.SUSPECT, ReasonCode.CANARY_DRIFTED),
        (canary(1.02, 1.02, slower=0.06), Validity.SUSPECT, ReasonCode.CANARY_DRIFTED),
        ({"swapped_mb": 300.0}, Validity.SUSPECT, ReasonCode.SWAPPED),
        (
            {"probe": replace(PROBE, wireless=True)},
            Validity.VALID,
            ReasonCode.CONNECTED_BY_WIFI,
        ),
    ],
)
def test_every_reason_has_its_validity(
    changes: dict[str, Any], validity: Validity, code: ReasonCode
) -> None:
    verdict = judge(an_observation(**changes))
    assert verdict.validity is validity
    assert code in {reason.code for reason in verdict.reasons}
    assert not verdict.deterministic  # the next run may do better


def test_a_run_that_asked_to_try_an_oversize_model_may_swap() -> None:
    allowed = an_observation(condition=Condition(too_large="try"), swapped_mb=300.0)
    assert judge(allowed).validity is Validity.VALID
    little = an_observation(swapped_mb=2.0)  # may be another process
    assert judge(little).validity is Validity.VALID


def with_done(
    cost: StepCost = COST, source: Source | None = Source.PHONE, **changes: Any
) -> RunObservation:
    """Build a valid run with another final record."""
    done = DONE.model_copy(update=changes)
    return an_observation(claimed=ClaimedWork(cost, done, warmup=5, source=source))


def test_what_was_measured_before_a_resume_counts_for_the_length() -> None:
    for measured_s, total_s, expected in (
        (5.0, 8.1, Validity.VALID),
        (2.0, 2.5, Validity.VOID),
        (2.0, 8.1, Validity.SUSPECT),  # too little of it was measured after the resume
    ):
        run = with_done(ns=int(total_s * 1e9))
        output = output_of([a_window(measured_s)])
        output.resume = ResumeRecord(step=9, t_ns=0, same_cores=False, lost_ns=0)
        verdict = judge(replace(run, output=output))
        assert verdict.validity is expected
        reasons = {reason.code: reason for reason in verdict.reasons}
        text = f"of step 9; times, heat and energy are of the {measured_s:.0f} s since then"
        assert text in reasons[ReasonCode.CONTINUED].text
        assert reasons[ReasonCode.CONTINUED_ON_OTHER_CORES].validity is Validity.VALID
        long = replace(run, output=output, condition=Condition(protocol="endurance", time_min_s=0))
        (found,) = (each for each in judge(long).reasons if each.code is ReasonCode.CONTINUED)
        assert found.validity is Validity.SUSPECT, "it may not have become hot again"


def test_the_time_of_checkpoints_between_windows_is_accounted_for() -> None:
    second = 10**9
    first = a_window(5.0)
    output = output_of([first, first.model_copy(update={"first": 100, "t_ns": 6 * second})])
    output.checkpoints = [
        CheckpointRecord(step=100, t_ns=5 * second, ns=second),
        CheckpointRecord(step=200, t_ns=11 * second, ns=9 * second),  # after the last window
    ]
    assert ReasonCode.TIME_MISMATCH not in codes_of(an_observation(output=output))
    output.checkpoints.pop(0)
    short = an_observation(output=output)
    assert ReasonCode.TIME_MISMATCH in codes_of(short)
    # A computer's other work may stop a good program; it is never void for that.
    computer = replace(short, claimed=replace(short.claimed, source=Source.HOST))
    found = {each.code: each.validity for run in (short, computer) for each in judge(run).reasons}
    assert found[ReasonCode.TIME_MISMATCH] is Validity.SUSPECT
    assert judge(short).validity is Validity.VOID


def codes_of(run: RunObservation) -> set[ReasonCode]:
    """Judge a run and return the codes of its reasons."""
    return {reason.code for reason in judge(run).reasons}


@pytest.mark.parametrize(
    ("changes", "validity", "code"),
    [
        ({"steps": 3}, Validity.SUSPECT, ReasonCode.TOO_FEW_STEPS),
        ({"steps": 2}, Validity.SUSPECT, ReasonCode.LOSS_TOO_FEW_STEPS),
        ({"loss_last": None}, Validity.VOID, ReasonCode.LOSS_MISSING),
        ({"loss_last": float("nan")}, Validity.VOID, ReasonCode.LOSS_NOT_FINITE),
        ({"loss_first": float("inf")}, Validity.VOID, ReasonCode.LOSS_NOT_FINITE),
        ({"loss_last": 2.3}, Validity.VOID, ReasonCode.LOSS_DID_NOT_FALL),
        ({"parameters_changed": False}, Validity.VOID, ReasonCode.NO_PARAMETER_CHANGED),
        ({"moved": 5}, Validity.VOID, ReasonCode.TENSORS_UNCHANGED),
        ({"learned": None}, Validity.VOID, ReasonCode.TENSOR_CHANGES_MISSING),
        ({"parameters": 16}, Validity.VOID, ReasonCode.COUNT_MISMATCH),
        ({"macs": 16}, Validity.VOID, ReasonCode.COUNT_MISMATCH),
        ({"macs": None}, Validity.VOID, ReasonCode.COUNT_MISSING),
        ({"fallbacks": 2}, Validity.VOID, ReasonCode.BACKEND_FALLBACK),
        ({"answer_error": 0.01}, Validity.VOID, ReasonCode.ANSWER_WRONG),
        ({"note": "wrong\x1b"}, Validity.VALID, ReasonCode.COMMAND_BUFFERS_UNUSED),
    ],
)
def test_a_run_that_did_other_work_is_void(
    changes: dict[str, Any], validity: Validity, code: ReasonCode
) -> None:
    verdict = judge(with_done(**changes))
    assert verdict.validity is validity
    assert code in {reason.code for reason in verdict.reasons}
    assert verdict.deterministic is (validity is Validity.VOID)  # deterministic: not retried


def test_a_run_that_saw_no_sample_twice_cannot_show_a_falling_loss() -> None:
    large = replace(COST, batches=1000)
    assert judge(with_done(large, loss_last=2.4)).validity is Validity.VALID
    assert judge(with_done(large, loss_last=float("nan"))).validity is Validity.VOID


@pytest.mark.parametrize(
    ("error", "validity"),
    [(1e-6, Validity.VALID), (2e-5, Validity.VOID), (float("nan"), Validity.VOID)],
)
def test_a_wrong_matrix_product_is_void(error: float, validity: Validity) -> None:
    counts = {"parameters": None, "macs": PRODUCT.macs, "answer_error": error}
    assert judge(with_done(PRODUCT, **counts)).validity is validity


def test_a_product_that_does_not_report_its_error_is_void() -> None:
    verdict = judge(with_done(PRODUCT, parameters=None, macs=PRODUCT.macs))
    assert (verdict.validity, len(verdict.reasons)) == (Validity.VOID, 1)


@pytest.mark.parametrize("cost", [COST, PRODUCT])
def test_unknown_values_of_a_simulation_are_not_errors(cost: StepCost) -> None:
    simulated = ClaimedWork(cost, WITHOUT_RESULTS, 5, Source.SIMULATED)
    assert judge(an_observation(claimed=simulated)).validity is Validity.VALID
    for source in (Source.PHONE, Source.HOST, None):
        real = ClaimedWork(cost, WITHOUT_RESULTS, 5, source)
        assert judge(an_observation(claimed=real)).validity is Validity.VOID


def test_the_processor_that_the_runner_reports_limits_the_claimed_arithmetic() -> None:
    """Four big cores of a Snapdragon 855 at 48 FLOP per cycle: 485 GFLOP/s."""

    def claims(gflops: float, source: Source = Source.PHONE, **facts: Any) -> bool:
        span_s = 100 * COST.flops / (gflops * 1e9)
        origin = Provenance(source=source)
        everything = Provenances(time=origin, clock=origin, heat=origin, energy=origin)
        known = PROBE.facts.model_copy(update={"provenance": everything, **facts})
        run = an_observation(span_s, probe=replace(PROBE, facts=known))
        codes = {reason.code for reason in judge(run).reasons}
        return ReasonCode.SPEED_IMPOSSIBLE not in codes

    assert claims(450, features=("asimd", "fp16"))
    assert not claims(520, features=("asimd", "fp16"))
    assert claims(520)  # an unknown processor
    assert claims(520, Source.HOST, features=("avx2",))  # clocks of another processor do not count
    assert not claims(900, Source.HOST, features=("avx2",))


@pytest.mark.parametrize("core_flops", [None, 1e9, 20e9, 50e9, 1e12])
def test_no_canary_voids_a_run_that_its_cores_can_do(core_flops: float | None) -> None:
    """Canaries may have been disturbed from the first to the last; a processor stays what it is."""

    def objections(gflops: float) -> set[Validity]:
        span_s = 100 * COST.flops / (gflops * 1e9)
        slowed = {CanaryKind.ARITHMETIC: CanaryTimes(10.0, 10.0)}
        reasons = judge(an_observation(span_s, canaries=slowed, core_flops=core_flops)).reasons
        return {each.validity for each in reasons if each.code is ReasonCode.SPEED_IMPOSSIBLE}

    shown_gflops = math.inf if core_flops is None else 4 * 2 * core_flops / 1e9
    for gflops in (7, 150, 390, 420):
        assert objections(gflops) == ({Validity.SUSPECT} if gflops > shown_gflops else set())
    assert objections(900) == {Validity.VOID}


def test_a_phone_without_a_sensor_cannot_meet_a_start_temperature() -> None:
    unknown = {"before": replace(BEFORE, temp_c=None), "sampled_temps_c": (), "probe": UNPINNED}
    assert judge(an_observation(**unknown)).validity is Validity.VOID
    without_limit = Condition(freq="free", start_temp_max_c=None)
    verdict = judge(an_observation(condition=without_limit, **unknown))
    assert verdict.validity is Validity.VALID


def test_a_sensor_of_whole_degrees_may_stay_on_a_new_value() -> None:
    assert judge(an_observation(sampled_temps_c=(38.0,) * 40)).validity is Validity.VALID


def test_throttling_is_allowed_in_endurance_runs() -> None:
    clocks = replace(CLOCKS, pinned_share=0.3, capped_khz=CAPPED, active_coolers=THROTTLED)
    throttled = an_observation(condition=ENDURANCE, span_s=600.0, clocks=clocks)
    assert judge(throttled).validity is Validity.VALID


def test_an_unpinned_clock_is_not_judged() -> None:
    free = an_observation(probe=UNPINNED, clocks=replace(CLOCKS, pinned_share=None))
    assert judge(free).validity is Validity.VALID


@pytest.mark.parametrize(
    ("shared_pct", "lost_share", "found"),
    [(3.0, 0.0, 0), (3.0, 0.015, 1), (0.8, 0.019, 0), (4.5, 0.0, 1)],
)
def test_losses_of_different_kinds_add_up(shared_pct: float, lost_share: float, found: int) -> None:
    run = an_observation(
        disturbances=Disturbances(own_cores_shared_pct=shared_pct),
        clocks=replace(CLOCKS, lost_share=lost_share),
    )
    codes = [reason.code for reason in judge(run).reasons]
    assert codes == [ReasonCode.OWN_CORES_SHARED] * found


def test_the_canary_shows_a_slow_phone_with_free_clocks_and_in_long_runs() -> None:
    free = canary(1.0, 1.05, is_held=False)
    changed = judge(an_observation(**free, probe=UNPINNED))
    assert [reason.code for reason in changed.reasons] == [ReasonCode.CANARY_CHANGED]
    for before_ms, code in ((1.05, ReasonCode.WORK_RATE_LOW), (0.95, ReasonCode.WORK_RATE_HIGH)):
        free = canary(before_ms, before_ms, is_held=False)
        (reason,) = judge(an_observation(**free, probe=UNPINNED)).reasons
        assert (reason.code, reason.validity) == (code, Validity.SUSPECT)
    long: dict[str, Any] = {**canary(1.0, 1.5), "condition": ENDURANCE, "span_s": 600.0}
    assert judge(an_observation(**long)).validity is Validity.VOID
    throttled = replace(CLOCKS, active_coolers=THROTTLED)  # the second canary only shows that
    assert judge(an_observation(**long, clocks=throttled)).validity is Validity.VALID


@pytest.mark.parametrize(
    ("phone_s", "host_s", "source", "is_wrong"),
    [
        (10.0, (9.9, 10.2), Source.PHONE, False),
        (10.2, (9.9, 10.0), Source.PHONE, True),  # 2 % fast
        (9.7, (9.9, 10.0), Source.PHONE, True),
        (9.7, (9.9, 10.0), Source.HOST, True),
        (1000.0, (9.9, 10.0), Source.SIMULATED, False),  # such a clock may have any speed
    ],
)
def test_a_phone_clock_with_another_speed(
    phone_s: float, host_s: tuple[float, float], source: Source, is_wrong: bool
) -> None:
    before, after = (replace(BEFORE, uptime_s=uptime_s) for uptime_s in (50.0, 50.0 + phone_s))
    claimed = replace(CLAIMED, source=source)
    run = an_observation(before=before, after=after, host_s=host_s, claimed=claimed)
    codes = {reason.code for reason in judge(run).reasons}
    assert (ReasonCode.PHONE_CLOCK_WRONG in codes) == is_wrong


@pytest.mark.parametrize(
    ("temps_c", "known_step_c", "is_frozen"),
    [
        ((31.0,) * 20, None, False),  # may be a coarse sensor
        ((31.0,) * 20, 1.0, False),
        ((31.0,) * 20, 0.1, True),
        ((31.0, *(34.0,) * 30), 0.1, True),
        ((31.0, *(34.0,) * 30), None, False),
        ((31.0, 31.1, 31.3, 31.2, 31.4, 31.6, 31.5, 31.8, 31.7, 32.0), 0.1, False),
    ],
)
def test_a_sensor_frozen_at_whole_degrees_is_known_by_earlier_runs(
    temps_c: tuple[float, ...], known_step_c: float | None, is_frozen: bool
) -> None:
    run = an_observation(sampled_temps_c=temps_c, temp_step_c=known_step_c)
    codes = {reason.code for reason in judge(run).reasons}
    assert (ReasonCode.SENSOR_FROZEN in codes) == is_frozen


def test_windows_that_claim_more_time_than_passed() -> None:
    window = a_window(8.1)
    later = window.model_copy(update={"first": 100, "t_ns": round(7.0 * SECOND_NS)})
    verdict = judge(an_observation(output=output_of([window, later])))
    assert ReasonCode.TIME_MISMATCH in {reason.code for reason in verdict.reasons}


@pytest.mark.parametrize(
    ("counted_khz", "code"),
    [(2419200, None), (2841600, None), (2600000, None), (2200000, ReasonCode.CLOCK_NOT_COUNTED)],
)
def test_counted_cycles_are_compared_with_the_shown_clocks(
    counted_khz: int, code: ReasonCode | None
) -> None:
    rows = range(10)
    columns: dict[str, list[NodeValue]] = {
        node: [khz] * len(rows)
        for node, khz in zip(PROBE.clock_nodes, PROBE.requested_khz.values(), strict=True)
    }
    columns[CYCLES] = [f"{row * counted_khz * 1000}/{row * SECOND_NS}" for row in rows]
    readings = Readings(tuple(columns), [row * SECOND_NS // 2 for row in rows], columns)
    found = [reason.code for reason in judge(an_observation(readings=readings)).reasons]
    assert (code in found) if code else (ReasonCode.CLOCK_NOT_COUNTED not in found)
