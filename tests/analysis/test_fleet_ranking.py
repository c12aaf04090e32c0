"""Phones are ranked within a cell, on valid runs of one making, and no claim outruns its data."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.analysis.claim import claim_of
from orchestrator.analysis.compare import Absent, compare_fleet
from orchestrator.analysis.validity import Reason, Validity, count_validity
from orchestrator.nouns import MeasuredRun
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, MEASURED, measured
from workloads.catalogue import bind_external
from workloads.external import ForeignFile, Manifest, StepRule
from workloads.fault import Refused
from workloads.measure import Model, Provenance, Source, Standing
from workloads.phone import ControlLevel


def repeated(serial: str, *values: float, **changes: Any) -> list[MeasuredRun]:
    return [measured(serial, value, repeat=at, **changes) for at, value in enumerate(values)]


SLOW = repeated("slow", 20.0, 20.2, 19.9, 20.1)
FAST = repeated("fast", 10.0, 10.2, 9.9, 10.1)


def test_phones_are_ranked_by_the_median_of_their_runs() -> None:
    (group,) = compare_fleet(SLOW + FAST).groups
    expected: list[Any] = [
        (1, "fast", 4, 10.05, 1.0),
        (2, "slow", 4, 20.05, pytest.approx(20.05 / 10.05)),
    ]
    assert expected == [
        (row.rank, row.phone, row.n, pytest.approx(row.median), row.ratio) for row in group.rows
    ]
    assert all(row.interval.low <= row.median <= row.interval.high for row in group.rows)


def test_a_metric_of_which_more_is_better_is_ranked_the_other_way() -> None:
    runs = [measured("a", None, gflops=5.0), measured("b", None, gflops=20.0)]
    (group,) = compare_fleet(runs, "gflops").groups
    assert [("b", 1.0), ("a", 4.0)] == [(row.phone, row.ratio) for row in group.rows]


def test_cells_are_compared_apart() -> None:
    small, large = {"batch_size": 32}, {"batch_size": 256}
    runs = [
        measured("a", 1.0, parameters=small),
        measured("b", 2.0, parameters=small),
        measured("b", 3.0, parameters=large),
        measured("b", 4.0, parameters=small, condition={"cores": "big2"}),
    ]
    expected = {
        "mlp-4 batch_size=32, cold big2 high": ["b"],
        "mlp-4 batch_size=32, cold big4 high": ["a", "b"],
        "mlp-4 batch_size=256, cold big4 high": ["b"],
    }
    groups = compare_fleet(runs).groups
    assert expected == {group.label: [row.phone for row in group.rows] for group in groups}


def test_two_foreign_programs_of_one_name_are_compared_apart() -> None:
    def manifest(digest: str) -> Manifest:
        return Manifest(
            name="tool",
            files=(ForeignFile(name="tool", sha256=digest),),
            command=("{tool}",),
            step=StepRule(json_path="ns", unit="ns"),
        )

    cases = [bind_external(manifest(digit * 64), {}) for digit in "01"]
    runs = [replace(FAST[0], case=case) for case in cases]
    groups = compare_fleet(runs).groups
    assert cases == [group.case for group in groups]
    assert ["tool", "tool"] == [group.case.label for group in groups]


def test_suspect_and_void_runs_are_counted_but_never_compared() -> None:
    runs = [
        *FAST,
        measured("fast", 1.0, standing=Standing.VOID),
        measured("fast", 1.0, standing=Standing.VOID),
        measured("fast", 1.0, standing=Standing.SUSPECT),
    ]
    (group,) = compare_fleet(runs).groups
    expected: Any = (4, 10.05, 1, 2)
    row = group.rows[0]
    assert expected == (row.n, pytest.approx(row.median), row.suspect, row.void)


def test_a_phone_without_a_run_that_counts_is_named() -> None:
    (group,) = compare_fleet([*FAST, measured("hot", 1.0, standing=Standing.VOID)]).groups
    expected = (Absent("hot", "Model hot", "sm8350", suspect=0, void=1),)
    assert expected == group.absent


def test_a_cell_that_knows_nothing_of_the_metric_is_not_in_its_table() -> None:
    assert compare_fleet([measured("a", 1.0)], "energy_j").groups == ()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            measured("b", provenance=HOST),
            "mlp-4 batch_size=32, cold big4 high: step_ms comes from host and phone; compare them "
            "apart, or say that the mixture is meant",
        ),
        (
            measured("b", control=ControlLevel.OBSERVED),
            "mlp-4 batch_size=32, cold big4 high: the control levels are controlled and observed; "
            "compare them apart, or say that the mixture is meant",
        ),
        (
            measured("b", control=None),
            "mlp-4 batch_size=32, cold big4 high: the control levels are controlled and unknown; "
            "compare them apart, or say that the mixture is meant",
        ),
    ],
)
def test_a_mixture_is_refused_unless_it_is_asked_for(other: MeasuredRun, sentence: str) -> None:
    with pytest.raises(Refused) as caught:
        compare_fleet([measured("a"), other])
    assert sentence == str(caught.value)
    (group,) = compare_fleet([measured("a"), other], mix=True).groups
    assert len(group.rows) == 2


def test_what_does_not_count_does_not_make_a_mixture() -> None:
    runs = [measured("a"), measured("b", provenance=HOST, standing=Standing.VOID)]
    assert len(compare_fleet(runs).groups[0].rows) == 1


def test_other_cells_do_not_make_a_mixture() -> None:
    runs = [measured("a"), measured("b", provenance=HOST, condition={"cores": "big2"})]
    assert len(compare_fleet(runs).groups) == 2


def test_two_kinds_of_simulation_may_stand_side_by_side_each_with_its_own_word() -> None:
    runs = repeated("a", 1, 1, 1, 1, provenance=FITTED)
    runs += repeated("b", 2, 2, 2, 2, provenance=EXTRAPOLATED)
    (group,) = compare_fleet(runs).groups
    expected = ["simulated ±10%: no claim: too little is known of the other"]
    assert [*expected, "simulated, error unknown"] == [row.claim for row in group.rows]


def test_a_simulated_interval_contains_its_models_error() -> None:
    (group,) = compare_fleet(repeated("a", 10.0, 10.0, 10.0, provenance=FITTED)).groups
    interval = group.rows[0].interval
    assert (9.0, 11.0) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # four runs each, far apart
        (FAST, SLOW, ["fastest", "slower"]),
        # intervals that touch
        (FAST, repeated("b", 10.1, 10.3, 10.0, 10.2), ["not told apart"] * 2),
        # three runs lie apart by luck too often
        (FAST[:3], SLOW[:3], ["too few runs (n = 3)"] * 2),
        (FAST, SLOW[:1], ["no claim: too little is known of the other", "too few runs (n = 1)"]),
        (FAST, [], ["the only phone"]),
        # noise far smaller than the model's error earns nothing
        (
            repeated("a", 10, 10, 10, 10, provenance=FITTED),
            repeated("b", 11, 11, 11, 11, provenance=FITTED),
            ["simulated ±10%: not told apart"] * 2,
        ),
        (
            repeated("a", 10, 10, 10, 10, provenance=FITTED),
            repeated("b", 20, 20, 20, 20, provenance=FITTED),
            ["simulated ±10%: fastest", "simulated ±10%: slower"],
        ),
        (
            repeated("a", 10, 10, 10, 10, provenance=EXTRAPOLATED),
            repeated("b", 99, 99, 99, 99, provenance=EXTRAPOLATED),
            ["simulated, error unknown"] * 2,
        ),
        (
            repeated("a", 10, 10, 10, 10, provenance=HOST),
            repeated("b", 99, 99, 99, 99, provenance=HOST),
            ["on a computer: fastest", "on a computer: slower"],
        ),
    ],
)
def test_a_claim_never_outruns_its_data(
    first: list[MeasuredRun], second: list[MeasuredRun], expected: list[str]
) -> None:
    (group,) = compare_fleet(first + second).groups
    assert expected == [row.claim for row in group.rows]


def test_a_metric_that_is_no_time_has_words_of_its_own() -> None:
    runs = [measured("a", None, energy_j=value) for value in (1.0, 1.0, 1.0, 1.0)]
    runs += [measured("b", None, energy_j=value) for value in (2.0, 2.0, 2.0, 2.0)]
    rows = compare_fleet(runs, "energy_j").groups[0].rows
    assert ["best", "behind"] == [claim_of(row, rows, "energy_j") for row in rows]


def test_a_number_of_several_runs_claims_the_provenance_of_the_weakest() -> None:
    worse = Provenance(source=Source.SIMULATED, model=Model.FITTED, error_rel=0.3)
    runs = [measured("a", provenance=each) for each in (FITTED, worse, MEASURED)]
    assert worse == compare_fleet(runs, mix=True).groups[0].rows[0].provenance


def test_an_unknown_metric_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="there is no metric 'speed'"):
        compare_fleet(FAST, "speed")


def test_verdicts_and_their_reasons_are_counted() -> None:
    runs = [
        *FAST,
        measured("a", standing=Standing.VOID, reasons=("clock fell", "too hot")),
        measured("a", standing=Standing.VOID, reasons=("too hot",)),
        measured("a", standing=Standing.SUSPECT),
    ]
    expected = Validity(
        valid=4,
        suspect=1,
        void=2,
        reasons=(
            Reason(Standing.VOID, "too hot", 2),
            Reason(Standing.SUSPECT, "no reason given", 1),
            Reason(Standing.VOID, "clock fell", 1),
        ),
    )
    assert expected == count_validity(runs)
    assert expected.total == 7


def test_an_energy_of_a_slow_gauge_ranks_nobody() -> None:
    """A gauge that speaks every eight seconds makes a hot phone frugal in a run of eight."""
    energy = "energy_per_sample_mj"
    frugal = measured("a", energy_per_sample_mj=0.02, grade="coarse")
    known = measured("b", energy_per_sample_mj=0.06, grade="gauge")
    (group,) = compare_fleet([frugal, known], energy).groups
    assert [("b", 1)] == [(row.phone, row.rank) for row in group.rows]
    assert [("a", "gauge too coarse")] == [(one.phone, one.why) for one in group.absent]
    (meant,) = compare_fleet([frugal, known], energy, mix=True).groups
    assert ["a", "b"] == [row.phone for row in meant.rows]


def test_reasons_that_differ_in_numbers_alone_are_one_and_remarks_are_none() -> None:
    remark = "the port gave all it could"
    runs = [
        measured("a", reasons=(remark,)),
        measured(
            "a", standing=Standing.SUSPECT, reasons=("5 steps were made, asked were 20", remark)
        ),
        measured("a", standing=Standing.SUSPECT, reasons=("12 steps were made, asked were 20",)),
    ]
    (reason,) = count_validity(runs).reasons
    assert Reason(Standing.SUSPECT, "5 to 12 steps were made, asked were 20", 2) == reason
