"""What a sweep will take is told from the nearest past, and what is doubtful is said beforehand."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.plan.doubts import doubts
from orchestrator.plan.estimate import Basis, Expected, Past, PastRun, PhoneEstimate, Span, estimate
from orchestrator.plan.expand import expand
from orchestrator.plan.sweep import Sweep, read_sweep
from tests.analysis.builders import EXTRAPOLATED, phone
from workloads.measure import Provenances
from workloads.phone import ControlLevel

GOOD = "farm: 1\nname: demo\nworkload: mlp-4\nphones: all\n"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
PIXEL = phone("a", model="Pixel 6")


def past(
    sweep: Sweep, serial: str, model: str, cooled: list[float], cell: int = 0
) -> list[PastRun]:
    """Runs that measured for 10 s each, after cooling."""
    key = sweep.cells[cell].key
    return [PastRun(serial, model, key, "cold", 10 + each, each) for each in cooled]


def estimated(sweep: Sweep, runs: list[PastRun], twin: Expected | None = None) -> PhoneEstimate:
    return estimate(
        sweep, expand(sweep, [PIXEL]).trials, PIXEL, Past(runs), {"cold": twin} if twin else {}
    )


def test_the_nearest_past_is_asked_first_and_named() -> None:
    sweep = read_sweep(GOOD + "matrix: {batch_size: [32, 64]}\nrepeat: 4")
    own = past(sweep, "a", "Pixel 6", [20.0] * 3)
    sibling = past(sweep, "b", "Pixel 6", [90.0] * 3, cell=1)
    stranger = past(sweep, "c", "Mi 9", [500.0] * 3)
    found = estimated(sweep, stranger + sibling + own)
    assert {Basis.SAME: 1, Basis.SIBLINGS: 1} == found.bases
    assert (8, Span(80, 80), Span(440, 440)) == (found.runs, found.measuring, found.cooling)
    assert {Basis.SAME: 1, Basis.ALIKE: 1} == estimated(sweep, stranger + own).bases
    assert {Basis.SIBLINGS: 1, Basis.ALIKE_SIBLINGS: 1} == estimated(sweep, sibling).bases


def test_without_a_past_the_twin_is_asked_and_without_a_twin_nothing_is_made_up() -> None:
    sweep = read_sweep(GOOD + "repeat: 3")
    twin = Expected(Basis.TWIN, ((9.0, 30.0),))
    assert ({Basis.TWIN: 1}, Span(90, 90)) == (
        estimated(sweep, [], twin).bases,
        estimated(sweep, [], twin).cooling,
    )
    bare = estimated(sweep, [])
    assert ({Basis.LENGTH: 1}, None, Span(24, 24)) == (bare.bases, bare.cooling, bare.total)


def test_what_varied_before_is_told_as_a_span_that_is_the_same_each_time() -> None:
    sweep = read_sweep(GOOD + "repeat: 5")
    runs = past(sweep, "a", "Pixel 6", [10.0, 20.0, 30.0, 60.0, 200.0])
    found = estimated(sweep, runs)
    assert found.total.p50_s < found.total.p90_s
    assert found == estimated(sweep, runs)


def test_repeats_until_it_is_known_count_as_what_they_may_become() -> None:
    sweep = read_sweep(GOOD + "repeat: {until: 2%, max: 32}")
    found = estimated(sweep, past(sweep, "a", "Pixel 6", [0.0]))
    assert 32 == found.runs
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
        ("repeat: 1", ["repeat: 1 tells little of the spread"]),
        (
            "repeat: {until: 2%, max: 8}",
            ["repeat: with at most 8 runs ±2.0% is reached only where"],
        ),
        ("repeat: {until: 5%, max: 32}", []),
        ("conditions: {start_temp_max_c: 20}", ["start_temp_max_c: 20 is below where a phone at"]),
        ("conditions: {start_temp_max_c: any}", ["start_temp_max_c: any lets a run begin hot"]),
        ("conditions: {freq: free}", ["freq: free leaves the clocks to the phone"]),
        (f"matrix: {{batch_size: {list(range(1, 21))}}}", ["order: 20 cells and no baseline"]),
        ("exclude: [{batch_size: 7, why: x}]", ["line 5: exclude #1 removes nothing"]),
        ("include: [{batch_size: 32}]", ["line 5: include #1 adds nothing"]),
        ("budget: {wall: 12s}", ["budget: 12 s end at about 50% of the slowest phone's 24 s"]),
        ("deadline: 2026-10-31T00:00Z", ["deadline: it has passed; the slowest phone takes 24 s"]),
    ],
)
def test_what_is_doubtful_is_said(text: str, expected: list[str]) -> None:
    sweep = read_sweep(GOOD + text)
    found = doubts(sweep, [PIXEL], [estimated(sweep, [])], NOW)
    assert len(expected) == len(found)
    assert all(doubt.startswith(start) for doubt, start in zip(found, expected, strict=True))


def test_phones_that_will_not_be_compared_are_a_doubt() -> None:
    simulated = Provenances(time=EXTRAPOLATED, clock=None, heat=None, energy=None)
    others = [phone("b", control=ControlLevel.PARTIAL), phone("c", provenance=simulated)]
    found = doubts(read_sweep(GOOD), [PIXEL, *others], [], NOW + timedelta(days=1))
    assert [
        "phones of different control (controlled, partial): comparisons keep them apart",
        "figures of different kinds (phone, simulated): comparisons keep them apart",
    ] == found
