"""The statistics checked on noise like that of phones: coverage, false alarms, power."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.coverage import all_figures
from orchestrator.analysis.log_ratio import RunPair, UnitLevel, estimate_log_ratio
from orchestrator.analysis.stats import Instability, holm_correction
from tests.analysis.step_noise import LOOSE, PINNED, UNPINNED, USUAL, Noise, run_medians

MARGIN = 0.02


def draw_comparisons(
    count: int,
    noise: Noise,
    runs: int,
    phones: int = 1,
    effect: float = 1.0,
    phone_spread: float = 0.0,
    seed: int = 7,
) -> Iterator[list[RunPair]]:
    """Draw a comparison `count` times; phones differ in their effect by `phone_spread`."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        effects = effect * np.exp(rng.normal(0, phone_spread, phones))
        yield [
            RunPair(
                str(phone),
                list(run_medians(rng, noise, runs, 10.0)),
                list(run_medians(rng, noise, runs, 10.0 * effects[phone])),
            )
            for phone in range(phones)
        ]


def coverage(count: int, noise: Noise, runs: int, phones: int, phone_spread: float = 0.0) -> float:
    """Return how often the interval contains the true effect of 5 %."""
    covered = 0
    for pairs in draw_comparisons(count, noise, runs, phones, 1.05, phone_spread):
        estimate = estimate_log_ratio(pairs)
        assert estimate is not None
        covered += abs(estimate.log_ratio - math.log(1.05)) <= estimate.half_width(0.05)
    return covered / count


def alarm_rate(count: int, noise: Noise, runs: int, effect: float) -> float:
    """Return how often a difference is reported between a phone and itself with an effect."""
    alarms = 0
    for pairs in draw_comparisons(count, noise, runs, effect=effect):
        estimate = estimate_log_ratio(pairs)
        assert estimate is not None
        significant = abs(estimate.log_ratio) > estimate.half_width(0.05)
        alarms += significant and abs(math.exp(estimate.log_ratio) - 1) > MARGIN
    return alarms / count


CASES = [
    (PINNED, 8, 1, 0.0),
    (USUAL, 6, 1, 0.0),
    (UNPINNED, 12, 1, 0.0),
    (USUAL, 4, 6, 0.0),
    (LOOSE, 4, 6, 0.03),
]


@pytest.mark.parametrize(("noise", "runs", "phones", "phone_spread"), CASES)
def test_the_interval_has_its_nominal_coverage(
    noise: Noise, runs: int, phones: int, phone_spread: float
) -> None:
    # 300 comparisons give the share to ±1.2 %; the slow test to ±0.4 %
    assert 0.93 <= coverage(300, noise, runs, phones, phone_spread) <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "runs", "phones", "phone_spread"), [*CASES, (LOOSE, 20, 1, 0.0)])
def test_the_interval_covers_the_truth_in_93_to_97_percent(
    noise: Noise, runs: int, phones: int, phone_spread: float
) -> None:
    assert 0.93 <= coverage(4000, noise, runs, phones, phone_spread) <= 0.97


@pytest.mark.parametrize("noise", [PINNED, LOOSE])
def test_a_phone_rarely_differs_from_itself(noise: Noise) -> None:
    assert alarm_rate(300, noise, 6, effect=1.0) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("runs", [2, 3, 4, 5, 8, 12, 20])
@pytest.mark.parametrize("noise", [PINNED, USUAL, LOOSE, UNPINNED])
def test_fewer_than_5_percent_of_comparisons_are_false_alarms(noise: Noise, runs: int) -> None:
    assert alarm_rate(3000, noise, runs, effect=1.0) <= 0.05


def test_power_grows_with_the_effect_and_with_the_runs() -> None:
    small, large = (alarm_rate(150, USUAL, 6, effect) for effect in (1.03, 1.10))
    few, many = (alarm_rate(150, USUAL, runs, 1.05) for runs in (4, 12))
    assert small < large
    assert few < many
    assert large > 0.95


def test_fewer_than_5_percent_of_tables_have_a_false_alarm() -> None:
    families = 100
    alarms = 0
    for family in range(families):
        rows = [estimate_log_ratio(pairs) for pairs in draw_comparisons(8, LOOSE, 6, seed=family)]
        estimate = [row for row in rows if row]
        corrected = holm_correction([row.p_value() for row in estimate])
        alarms += any(
            p <= 0.05 and abs(math.exp(row.log_ratio) - 1) > MARGIN
            for row, p in zip(estimate, corrected, strict=True)
        )
    assert alarms / families <= 0.05


def test_blocks_that_share_noise_are_compared_within_blocks() -> None:
    rng = np.random.default_rng(4)
    widths: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(40):
        shared = rng.normal(0, 0.04, 8)
        base, candidate = np.exp(shared + rng.normal(0, 0.004, (2, 8)))
        for paired, halves in widths.items():
            blocks = (range(8), range(8)) if paired else None
            estimate = estimate_log_ratio([RunPair("p", list(base), list(candidate), blocks)])
            assert estimate is not None
            assert estimate.level is (UnitLevel.BLOCKS if paired else UnitLevel.RUNS)
            halves.append(estimate.half_width(0.05))
    assert np.median(widths[True]) * 4 < np.median(widths[False])


def test_runs_without_a_partner_in_their_block_do_not_prevent_the_pairing() -> None:
    base, candidate = [1.0, 2.0, 4.0, 8.0], [2.0, 4.0, 8.0, 30.0]
    pair = RunPair("p", base, candidate, ((0, 1, 2, 3), (0, 1, 2, 7)))
    estimate = estimate_log_ratio([pair])
    assert estimate is not None
    assert estimate.log_ratio == pytest.approx(math.log(2))
    assert estimate.standard_error == pytest.approx(0)
    # most of the runs would be left out, or there are too few blocks
    for blocks in (((0, 1, 2, 3), (2, 3, 4, 5)), ((0, 0, 1, 1), (0, 0, 1, 1))):
        estimate = estimate_log_ratio([RunPair("p", base, candidate, blocks)])
        assert estimate is not None
        assert estimate.level is UnitLevel.RUNS


def test_another_occasion_widens_the_interval() -> None:
    base, candidate = [1.0, 1.001, 0.999, 1.0002, 1.0001], [1.02, 1.021, 1.0195, 1.0203, 1.0202]
    same, other = (
        estimate_log_ratio([RunPair("p", base, candidate, same_occasion=same)])
        for same in (True, False)
    )
    assert same is not None
    assert other is not None
    assert same.p_value() < 0.001
    assert other.p_value() > 0.05, "1 % per occasion explains a difference of 2 %"
    assert other.half_width(0.05) == pytest.approx(1.96 * math.sqrt(2) * 0.01, rel=0.05)


def test_a_drift_is_part_of_the_interval() -> None:
    drift = [1.0, 1.01, 1.021, 1.029, 1.04, 1.05]
    estimate = estimate_log_ratio([RunPair("p", [1.0, 1.001, 0.999, 1.0], drift)])
    assert estimate is not None
    assert estimate.unclear is Instability.DRIFT
    assert estimate.half_width(0.05) > abs(estimate.log_ratio)
    # a drift that both sides share disappears within blocks
    faster = [0.8 * value for value in drift]
    blocks = (range(6), range(6))
    estimate = estimate_log_ratio([RunPair("p", drift, faster, blocks)])
    assert estimate is not None
    assert estimate.half_width(0.05) < 1e-9


@pytest.mark.slow
def test_the_coverage_benchmark_keeps_its_limits() -> None:
    # 1500 draws give a share to ±1.5 %; with four to seven runs, dependence cannot be seen
    for figure in all_figures(1500, seed=3):
        assert figure.low - 0.03 <= figure.value <= figure.high + 0.03, figure.line


def test_few_phones_are_not_treated_as_a_sample() -> None:
    (three,) = draw_comparisons(1, USUAL, 5, phones=3)
    (four,) = draw_comparisons(1, USUAL, 5, phones=4)
    levels = [estimate_log_ratio(pairs) for pairs in (three, four)]
    assert [estimate.level for estimate in levels if estimate] == [
        UnitLevel.RUNS,
        UnitLevel.PHONES,
    ]


def test_a_side_with_one_run_has_no_estimate() -> None:
    assert estimate_log_ratio([RunPair("p", [1.0], [1.0, 1.1])]) is None


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([], []),
        ([0.04], [0.04]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.5, 0.9], [1.0, 1.0]),
    ],
)
def test_p_values_are_corrected_for_their_number(
    p_values: list[float], expected: list[float]
) -> None:
    assert holm_correction(p_values) == pytest.approx(expected)
