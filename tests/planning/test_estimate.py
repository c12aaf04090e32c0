"""Time estimates use the closest history, and a plan has warnings."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.planning.estimate import (
    CalculatedRun,
    DurationRange,
    PhoneEstimate,
    ProfiledStep,
    TimingHistory,
    estimate_phone,
)
from orchestrator.planning.expand import expand_sweep
from orchestrator.planning.plan_warnings import plan_warnings
from orchestrator.planning.run_durations import Durations, EstimateBasis, RunTiming, phone_speed
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from tests.analysis.builders import EXTRAPOLATED, phone
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import ControlLevel

GOOD = "farm: 1\nname: demo\nworkload: mlp-4\nphones: all\n"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
PIXEL = phone("a", model="Pixel 6")
MODELS: dict[str, str] = {}


def past_runs(
    sweep: Sweep, serial: str, model: str, cooldowns_s: list[float], cell: int = 0
) -> list[RunTiming]:
    """Build the timings of runs that measured for 10 s each, after cooling."""
    key = sweep.cells[cell].key
    MODELS[serial] = model
    return [
        RunTiming(serial, *key, 0.0, 10 + cooldown_s, sweep.id, cooldown_s)
        for cooldown_s in cooldowns_s
    ]


def estimate_on_pixel(
    sweep: Sweep, runs: list[RunTiming], twin: CalculatedRun | None = None, speed: float = 1.0
) -> PhoneEstimate:
    """Estimate the time of a sweep on one phone."""
    models = {**MODELS, "a": "Pixel 6"}
    durations = Durations(runs, models, {cell.condition_digest: "cold" for cell in sweep.cells})
    return estimate_phone(
        sweep,
        expand_sweep(sweep, [PIXEL]).trials,
        PIXEL,
        TimingHistory(durations, models, speeds={"a": speed}),
        {"cold": twin} if twin else {},
    )


def test_the_closest_history_is_used_and_named() -> None:
    sweep = read_sweep(GOOD + "matrix: {batch_size: [32, 64]}\nrepeat: 4")
    own = past_runs(sweep, "a", "Pixel 6", [20.0] * 3)
    sibling = past_runs(sweep, "b", "Pixel 6", [90.0] * 3, cell=1)
    other_model = past_runs(sweep, "c", "Mi 9", [500.0] * 3)
    estimate = estimate_on_pixel(sweep, other_model + sibling + own)
    assert estimate.bases == {EstimateBasis.SAME_PHONE: 1, EstimateBasis.SAME_MODEL: 1}
    assert estimate.runs == 8
    assert estimate.cooling is not None
    assert estimate.measuring.p50_s == pytest.approx(80, rel=0.3)
    assert estimate.cooling.p50_s == pytest.approx(440, rel=0.3)
    assert estimate.cooling.p90_s < 2 * 440
    assert estimate_on_pixel(sweep, other_model + own).bases == {
        EstimateBasis.SAME_PHONE: 1,
        EstimateBasis.OTHER_CELLS: 1,
    }
    assert estimate_on_pixel(sweep, other_model).bases == {EstimateBasis.LAB: 2}
    assert estimate_on_pixel(sweep, sibling).bases == {
        EstimateBasis.SAME_MODEL: 1,
        EstimateBasis.OTHER_CELLS_SAME_MODEL: 1,
    }


def test_without_history_the_twin_is_used_and_without_a_twin_the_protocol_length() -> None:
    sweep = read_sweep(GOOD + "repeat: 3")
    twin = CalculatedRun(9.0, 30.0)
    with_twin = estimate_on_pixel(sweep, [], twin)
    assert with_twin.bases == {EstimateBasis.TWIN: 1}
    assert with_twin.cooling == DurationRange(90, 90)
    without_twin = estimate_on_pixel(sweep, [])
    assert without_twin.bases == {EstimateBasis.PROTOCOL_LENGTH: 1}
    assert (without_twin.cooling, without_twin.total) == (None, DurationRange(24, 24))


def test_only_what_the_phone_clock_counts_is_converted_to_wall_time() -> None:
    assert phone_speed([300.0, 700.0], host_s=5.0) == 200.0
    assert phone_speed([300.0, 690.0], host_s=1000.0) == 1.0  # a real phone; between the stages
    assert phone_speed([], host_s=0.0) == 1.0
    sweep = read_sweep(GOOD + "repeat: 3")
    assert estimate_on_pixel(sweep, [], speed=200.0).total.p50_s == pytest.approx(24 / 200)
    runs = past_runs(sweep, "a", "Pixel 6", [20.0])
    assert estimate_on_pixel(sweep, runs, speed=200.0) == estimate_on_pixel(sweep, runs)


def test_past_variation_gives_a_reproducible_range() -> None:
    sweep = read_sweep(GOOD + "repeat: 5")
    runs = past_runs(sweep, "a", "Pixel 6", [10.0, 20.0, 30.0, 60.0, 200.0])
    estimate = estimate_on_pixel(sweep, runs)
    assert estimate.total.p50_s < estimate.total.p90_s
    assert estimate == estimate_on_pixel(sweep, runs)


def test_repeats_until_precise_are_estimated_over_all_looks() -> None:
    sweep = read_sweep(GOOD + "repeat: {until: 2%, max: 32}")
    estimate = estimate_on_pixel(sweep, past_runs(sweep, "a", "Pixel 6", [0.0]))
    assert estimate.runs == 32
    assert 60 <= estimate.measuring.p50_s <= 320
    fixed = read_sweep(GOOD + "repeat: 32")
    assert (
        estimate.total.p50_s
        < estimate_on_pixel(fixed, past_runs(fixed, "a", "Pixel 6", [0.0])).total.p50_s
    )


def test_a_baseline_is_counted_per_recurrence() -> None:
    sizes = list(range(1, 18))
    text = f"matrix: {{batch_size: {sizes}}}\norder: {{baseline: {{batch_size: 1}}}}\nrepeat: 2"
    sweep = read_sweep(GOOD + text)
    assert sweep.runs_per_phone == estimate_on_pixel(sweep, []).runs == 36


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repeat: 3", []),
        ("repeat: 1", ["repeat: 1 gives no estimate of variance"]),
        (
            "repeat: {until: 2%, max: 8}",
            ["repeat: 8 runs reach ±2.0% only where runs vary by"],
        ),
        ("repeat: {until: 5%, max: 32}", []),
        ("conditions: {start_temp_max_c: 20}", ["start_temp_max_c: 20 is below the usual"]),
        ("conditions: {start_temp_max_c: any}", ["start_temp_max_c: any lets runs start hot"]),
        ("conditions: {freq: free}", ["freq: free leaves the clocks to the phone"]),
        (f"matrix: {{batch_size: {list(range(1, 21))}}}", ["order: 20 cells without a baseline"]),
        ("exclude: [{batch_size: 7, why: x}]", ["line 5: exclude #1 removes nothing"]),
        ("include: [{batch_size: 32}]", ["line 5: include #1 adds nothing"]),
        ("budget: {wall: 12s}", ["budget: 12 s is enough for about 30% of the 40 s"]),
        ("deadline: 2026-10-31T00:00Z", ["deadline: it has passed; the slowest phone needs 40 s"]),
    ],
)
def test_a_plan_warns(text: str, expected: list[str]) -> None:
    sweep = read_sweep(GOOD + text)
    warnings = plan_warnings(sweep, [PIXEL], [estimate_on_pixel(sweep, [])], NOW)
    assert len(warnings) == len(expected)
    assert all(text.startswith(start) for text, start in zip(warnings, expected, strict=True))


def test_a_plan_warns_of_phones_that_will_not_be_compared() -> None:
    simulated = Provenances(time=EXTRAPOLATED, clock=None, heat=None, energy=None)
    others = [phone("b", control=ControlLevel.PARTIAL), phone("c", provenance=simulated)]
    warnings = plan_warnings(read_sweep(GOOD), [PIXEL, *others], [], NOW + timedelta(days=1))
    assert warnings == [
        "phones have different control levels (controlled, partial); not compared by default",
        "results will have different sources (phone, simulated); not compared by default",
    ]


def test_the_step_time_of_the_same_case_predicts_a_run_under_another_condition() -> None:
    cold = read_sweep(GOOD + "conditions: {cores: big4}\nrepeat: 2")
    longer = read_sweep(GOOD + "conditions: {cores: big4, steps_min: 4000}\nrepeat: 2")
    cell = cold.cells[0]
    profile = ProfiledStep("a", cell.case_digest, "big4", cell.condition.freq, step_ms=20.0)
    MODELS["a"] = "Pixel 6"
    history = TimingHistory(Durations([], MODELS), MODELS, [profile])
    estimate = estimate_phone(longer, expand_sweep(longer, [PIXEL]).trials, PIXEL, history)
    assert estimate.bases == {EstimateBasis.PROFILE: 1}
    warmup = longer.cells[0].condition.launch.warmup
    assert estimate.measuring.p50_s == pytest.approx(2 * (80 + warmup * 0.02))
    other_cores = read_sweep(GOOD + "conditions: {cores: big2}\nrepeat: 2")
    trials = expand_sweep(other_cores, [PIXEL]).trials
    unknown = estimate_phone(other_cores, trials, PIXEL, history)
    assert unknown.bases == {EstimateBasis.PROTOCOL_LENGTH: 1}, "other cores have another speed"
