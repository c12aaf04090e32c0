"""Time estimates use the closest history, and a plan warns of what may disappoint."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.planning.estimate import (
    DurationRange,
    EstimateBasis,
    PhoneEstimate,
    RunEstimate,
    RunTiming,
    TimingHistory,
    estimate_phone,
)
from orchestrator.planning.expand import expand_sweep
from orchestrator.planning.plan_warnings import plan_warnings
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from tests.analysis.builders import EXTRAPOLATED, phone
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import ControlLevel

GOOD = "farm: 1\nname: demo\nworkload: mlp-4\nphones: all\n"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
PIXEL = phone("a", model="Pixel 6")
MODELS: dict[str, str] = {}


def past(
    sweep: Sweep, serial: str, model: str, cooled: list[float], cell: int = 0
) -> list[RunTiming]:
    """Runs that measured for 10 s each, after cooling."""
    key = sweep.cells[cell].key
    MODELS[serial] = model
    return [
        RunTiming(at, sweep.id, serial, *key, 0.0, 10 + cooldown_s, cooldown_s, None)
        for at, cooldown_s in enumerate(cooled)
    ]


def estimated(
    sweep: Sweep, runs: list[RunTiming], twin: RunEstimate | None = None
) -> PhoneEstimate:
    return estimate_phone(
        sweep,
        expand_sweep(sweep, [PIXEL]).trials,
        PIXEL,
        TimingHistory(runs, MODELS, {cell.condition_digest: "cold" for cell in sweep.cells}),
        {"cold": twin} if twin else {},
    )


def test_the_closest_history_is_used_first_and_named() -> None:
    sweep = read_sweep(GOOD + "matrix: {batch_size: [32, 64]}\nrepeat: 4")
    own = past(sweep, "a", "Pixel 6", [20.0] * 3)
    sibling = past(sweep, "b", "Pixel 6", [90.0] * 3, cell=1)
    stranger = past(sweep, "c", "Mi 9", [500.0] * 3)
    found = estimated(sweep, stranger + sibling + own)
    assert found.bases == {EstimateBasis.SAME_PHONE: 1, EstimateBasis.SAME_MODEL: 1}
    assert found.runs == 8
    assert found.measuring == DurationRange(80, 80)
    assert found.cooling == DurationRange(440, 440)
    assert estimated(sweep, stranger + own).bases == {
        EstimateBasis.SAME_PHONE: 1,
        EstimateBasis.OTHER_CELLS: 1,
    }
    assert estimated(sweep, sibling).bases == {
        EstimateBasis.SAME_MODEL: 1,
        EstimateBasis.OTHER_CELLS_SAME_MODEL: 1,
    }


def test_without_history_the_twin_is_asked_and_without_a_twin_only_the_length_is_known() -> None:
    sweep = read_sweep(GOOD + "repeat: 3")
    twin = RunEstimate(EstimateBasis.TWIN, ((9.0, 30.0),))
    with_twin = estimated(sweep, [], twin)
    assert with_twin.bases == {EstimateBasis.TWIN: 1}
    assert with_twin.cooling == DurationRange(90, 90)
    bare = estimated(sweep, [])
    assert bare.bases == {EstimateBasis.PROTOCOL_LENGTH: 1}
    assert (bare.cooling, bare.total) == (None, DurationRange(24, 24))


def test_past_variation_gives_a_range_that_is_the_same_each_time() -> None:
    sweep = read_sweep(GOOD + "repeat: 5")
    runs = past(sweep, "a", "Pixel 6", [10.0, 20.0, 30.0, 60.0, 200.0])
    found = estimated(sweep, runs)
    assert found.total.p50_s < found.total.p90_s
    assert found == estimated(sweep, runs)


def test_repeats_until_precise_are_estimated_over_all_looks() -> None:
    sweep = read_sweep(GOOD + "repeat: {until: 2%, max: 32}")
    found = estimated(sweep, past(sweep, "a", "Pixel 6", [0.0]))
    assert found.runs == 32
    assert 60 <= found.measuring.p50_s <= 320 == found.measuring.p90_s


def test_a_baseline_counts_as_often_as_it_runs() -> None:
    sizes = list(range(1, 18))
    text = f"matrix: {{batch_size: {sizes}}}\norder: {{baseline: {{batch_size: 1}}}}\nrepeat: 2"
    sweep = read_sweep(GOOD + text)
    assert sweep.runs_per_phone == estimated(sweep, []).runs == 36


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
        ("budget: {wall: 12s}", ["budget: 12 s is enough for about 50% of the 24 s"]),
        ("deadline: 2026-10-31T00:00Z", ["deadline: it has passed; the slowest phone needs 24 s"]),
    ],
)
def test_a_plan_warns(text: str, expected: list[str]) -> None:
    sweep = read_sweep(GOOD + text)
    found = plan_warnings(sweep, [PIXEL], [estimated(sweep, [])], NOW)
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_a_plan_warns_of_phones_that_will_not_be_compared() -> None:
    simulated = Provenances(time=EXTRAPOLATED, clock=None, heat=None, energy=None)
    others = [phone("b", control=ControlLevel.PARTIAL), phone("c", provenance=simulated)]
    found = plan_warnings(read_sweep(GOOD), [PIXEL, *others], [], NOW + timedelta(days=1))
    assert found == [
        "phones have different control levels (controlled, partial); not compared by default",
        "results will have different sources (phone, simulated); not compared by default",
    ]
