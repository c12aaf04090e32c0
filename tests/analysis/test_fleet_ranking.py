"""Ranking: phones are ranked within a cell, on valid runs of one kind, with justified claims."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.analysis.fleet_ranking import UnrankedPhone, UnrankedReason, compare_fleet
from orchestrator.analysis.measurements import IncompatibleSources, MeasuredRun
from orchestrator.analysis.rank_statement import RankClaim
from orchestrator.analysis.verdict_counts import (
    NO_REASON,
    ReasonCount,
    VerdictCounts,
    count_verdicts,
)
from orchestrator.commands.exit_codes import exit_code
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, MEASURED, measured
from workloads.catalogue import bind_external
from workloads.external_program import Manifest, ProgramFile, StepRule
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.metrics import Provenance, SimulationModel, Source
from workloads.protocol.phone_facts import ControlLevel
from workloads.protocol.verdict import Reason, ReasonCode, Validity


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
    assert [
        (row.rank, row.phone, row.n, pytest.approx(row.median), row.ratio) for row in group.rows
    ] == expected
    assert all(row.interval.low <= row.median <= row.interval.high for row in group.rows)


def test_a_metric_where_more_is_better_is_ranked_descending() -> None:
    runs = [measured("a", None, gflops=5.0), measured("b", None, gflops=20.0)]
    (group,) = compare_fleet(runs, "gflops").groups
    assert [(row.phone, row.ratio) for row in group.rows] == [("b", 1.0), ("a", 4.0)]


def test_every_cell_has_its_own_ranking() -> None:
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
    assert {group.label: [row.phone for row in group.rows] for group in groups} == expected


def test_external_programs_of_one_name_have_separate_rankings() -> None:
    def manifest(digest: str) -> Manifest:
        return Manifest(
            name="tool",
            files=(ProgramFile(name="tool", sha256=digest),),
            command=("{tool}",),
            step=StepRule(json_path="ns", unit="ns"),
        )

    cases = [bind_external(manifest(digit * 64), {}) for digit in "01"]
    runs = [replace(FAST[0], case=case) for case in cases]
    groups = compare_fleet(runs).groups
    assert [group.case for group in groups] == cases
    assert [group.case.label for group in groups] == ["tool", "tool"]


def test_suspect_and_void_runs_are_counted_but_not_ranked() -> None:
    runs = [
        *FAST,
        measured("fast", 1.0, validity=Validity.VOID),
        measured("fast", 1.0, validity=Validity.VOID),
        measured("fast", 1.0, validity=Validity.SUSPECT),
    ]
    (group,) = compare_fleet(runs).groups
    expected: Any = (4, 10.05, 1, 2)
    row = group.rows[0]
    assert (row.n, pytest.approx(row.median), row.suspect, row.void) == expected


def test_a_phone_without_a_valid_run_is_listed() -> None:
    hot = measured("hot", 1.0, validity=Validity.VOID)
    (group,) = compare_fleet([*FAST, hot]).groups
    unranked = UnrankedPhone("hot", "Model hot", "sm8350", suspect=0, void=1, applied=hot.applied)
    expected = (unranked,)
    assert group.unranked == expected


def test_a_phone_that_does_not_report_the_metric_is_listed_with_this_reason() -> None:
    runs = [measured("a", 1.0, energy_j=3.0), measured("b", 1.0)]
    (group,) = compare_fleet(runs, "energy_j").groups
    (phone,) = group.unranked
    assert (phone.phone, phone.reason) == ("b", UnrankedReason.NOT_REPORTED)


def test_a_cell_without_the_metric_is_not_listed() -> None:
    assert compare_fleet([measured("a", 1.0)], "energy_j").groups == ()


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (measured("b", provenance=HOST), "sources differ (host, phone)"),
        (
            measured("b", control=ControlLevel.OBSERVED),
            "control levels differ (controlled, observed)",
        ),
        (measured("b", control=None), "control levels differ (controlled, unknown)"),
    ],
)
def test_mixed_kinds_are_refused_unless_requested(other: MeasuredRun, differs: str) -> None:
    with pytest.raises(IncompatibleSources) as caught:
        compare_fleet([measured("a"), other])
    assert differs in str(caught.value)
    assert exit_code(caught.value) == 7
    (group,) = compare_fleet([measured("a"), other], mix=True).groups
    assert len(group.rows) == 2


def test_void_runs_do_not_count_as_a_mixture() -> None:
    runs = [measured("a"), measured("b", provenance=HOST, validity=Validity.VOID)]
    assert len(compare_fleet(runs).groups[0].rows) == 1


def test_other_cells_do_not_count_as_a_mixture() -> None:
    runs = [measured("a"), measured("b", provenance=HOST, condition={"cores": "big2"})]
    assert len(compare_fleet(runs).groups) == 2


def test_two_simulation_models_are_ranked_together_and_marked() -> None:
    runs = repeated("a", 1, 1, 1, 1, provenance=FITTED)
    runs += repeated("b", 2, 2, 2, 2, provenance=EXTRAPOLATED)
    (group,) = compare_fleet(runs).groups
    expected = [RankClaim.RIVAL_UNKNOWN, RankClaim.ERROR_UNKNOWN]
    assert [row.statement.claim for row in group.rows] == expected


def test_a_simulated_interval_contains_its_models_error() -> None:
    (group,) = compare_fleet(repeated("a", 10.0, 10.0, 10.0, provenance=FITTED)).groups
    interval = group.rows[0].interval
    # an error of 10 % on average is a factor of exp(0.28) in one of twenty cases
    assert (interval.low, interval.high) == pytest.approx((7.56, 13.22), abs=0.01)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # four runs per phone, far apart
        (FAST, SLOW, [RankClaim.LEADS, RankClaim.BEHIND]),
        # overlapping intervals
        (FAST, repeated("b", 10.1, 10.3, 10.0, 10.2), [RankClaim.NOT_DISTINGUISHABLE] * 2),
        # three runs are too few to exclude chance
        (FAST[:3], SLOW[:3], [RankClaim.TOO_FEW_RUNS] * 2),
        (FAST, SLOW[:1], [RankClaim.RIVAL_UNKNOWN, RankClaim.TOO_FEW_RUNS]),
        (FAST, [], [RankClaim.ONLY_PHONE]),
        # noise is far smaller than the model's error
        (
            repeated("a", 10, 10, 10, 10, provenance=FITTED),
            repeated("b", 11, 11, 11, 11, provenance=FITTED),
            [RankClaim.NOT_DISTINGUISHABLE] * 2,
        ),
        (
            repeated("a", 10, 10, 10, 10, provenance=FITTED),
            repeated("b", 20, 20, 20, 20, provenance=FITTED),
            [RankClaim.LEADS, RankClaim.BEHIND],
        ),
        (
            repeated("a", 10, 10, 10, 10, provenance=EXTRAPOLATED),
            repeated("b", 99, 99, 99, 99, provenance=EXTRAPOLATED),
            [RankClaim.ERROR_UNKNOWN] * 2,
        ),
        (
            repeated("a", 10, 10, 10, 10, provenance=HOST),
            repeated("b", 99, 99, 99, 99, provenance=HOST),
            [RankClaim.LEADS, RankClaim.BEHIND],
        ),
    ],
)
def test_a_claim_is_justified_by_its_data(
    first: list[MeasuredRun], second: list[MeasuredRun], expected: list[RankClaim]
) -> None:
    (group,) = compare_fleet(first + second).groups
    assert [row.statement.claim for row in group.rows] == expected


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (FAST + SLOW, ["fastest", "slower"]),
        (FAST[:3], ["too few runs (n = 3)"]),
        (repeated("a", 10, 10, 10, 10, provenance=FITTED), ["simulated ±10%: the only phone"]),
        (repeated("a", 10, 10, provenance=EXTRAPOLATED), ["simulated, error unknown"]),
        (repeated("a", 10, 10, 10, 10, provenance=HOST), ["on a computer: the only phone"]),
    ],
)
def test_a_claim_starts_with_its_source(runs: list[MeasuredRun], expected: list[str]) -> None:
    (group,) = compare_fleet(runs).groups
    assert [row.statement.text for row in group.rows] == expected


def test_a_rank_of_drifting_runs_is_unclear_unless_the_difference_is_larger() -> None:
    drift = repeated("a", 10.0, 10.6, 11.1, 11.7, 12.2, 12.8)
    for others, expected in (
        ((12.0, 12.3, 11.9, 12.2, 12.0, 12.1), ["unclear: runs drift"] * 2),
        ((22.0, 22.3, 21.9, 22.2, 22.0, 22.1), ["fastest", "slower"]),
    ):
        (group,) = compare_fleet(drift + repeated("b", *others)).groups
        assert [row.statement.text for row in group.rows] == expected


def test_the_best_phone_of_other_metrics_is_called_best() -> None:
    runs = [measured("a", None, energy_j=value) for value in (1.0, 1.0, 1.0, 1.0)]
    runs += [measured("b", None, energy_j=value) for value in (2.0, 2.0, 2.0, 2.0)]
    rows = compare_fleet(runs, "energy_j").groups[0].rows
    assert [row.statement.text for row in rows] == ["best", "behind"]


def test_a_median_has_the_weakest_provenance_of_its_runs() -> None:
    worse = Provenance(source=Source.SIMULATED, model=SimulationModel.FITTED, error_rel=0.3)
    runs = [measured("a", provenance=each) for each in (FITTED, worse, MEASURED)]
    assert compare_fleet(runs, mix=True).groups[0].rows[0].provenance == worse


def test_an_unknown_metric_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="unknown metric 'speed'"):
        compare_fleet(FAST, "speed")


def test_verdicts_and_their_reasons_are_counted() -> None:
    warm = Reason.void(ReasonCode.START_TEMP_UNKNOWN)
    capped = Reason.void(ReasonCode.CLOCKS_NOT_PINNED, share=0.5)
    runs = [
        *FAST,
        measured("a", validity=Validity.VOID, reasons=(capped, warm)),
        measured("a", validity=Validity.VOID, reasons=(warm,)),
        measured("a", validity=Validity.SUSPECT),
    ]
    expected = VerdictCounts(
        valid=4,
        suspect=1,
        void=2,
        reasons=(
            ReasonCount(Validity.VOID, warm.code, warm.text, 2),
            ReasonCount(Validity.SUSPECT, None, NO_REASON, 1),
            ReasonCount(Validity.VOID, capped.code, capped.text, 1),
        ),
    )
    assert count_verdicts(runs) == expected
    assert expected.total == 7


def test_an_energy_of_a_slow_gauge_is_not_ranked() -> None:
    # A gauge that updates every 8 s is too slow for a run of 8 s.
    energy = "energy_per_sample_mj"
    frugal = measured("a", energy_per_sample_mj=0.02, grade="coarse")
    known = measured("b", energy_per_sample_mj=0.06, grade="gauge")
    (group,) = compare_fleet([frugal, known], energy).groups
    assert [(row.phone, row.rank) for row in group.rows] == [("b", 1)]
    assert [(one.phone, one.reason) for one in group.unranked] == [
        ("a", UnrankedReason.COARSE_GAUGE)
    ]
    (meant,) = compare_fleet([frugal, known], energy, mix=True).groups
    assert [row.phone for row in meant.rows] == ["a", "b"]


def test_reasons_are_counted_per_code_and_remarks_are_not() -> None:
    remark = Reason.remark(ReasonCode.USB_PORT_SATURATED)
    few, fewer = (
        Reason.suspect(ReasonCode.TOO_FEW_STEPS, steps=steps, requested=20) for steps in (12, 5)
    )
    runs = [
        measured("a", reasons=(remark,)),
        measured("a", validity=Validity.SUSPECT, reasons=(fewer, remark)),
        measured("a", validity=Validity.SUSPECT, reasons=(few,)),
    ]
    (counted,) = count_verdicts(runs).reasons
    assert (counted.code, counted.runs) == (few.code, 2)
    assert counted.text == "5 to 12 steps were measured; 20 were requested"
