"""The statistics checked on noise like that of phones: coverage, false alarms, power."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from orchestrator.analysis.bootstrap import ResampledLevel, RunPair, estimate_log_ratio
from orchestrator.analysis.stats import holm_correction
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
    assert 0.93 <= coverage(300, noise, runs, phones, phone_spread) <= 0.975


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


def test_few_phones_are_not_treated_as_a_sample() -> None:
    (three,) = draw_comparisons(1, USUAL, 5, phones=3)
    (four,) = draw_comparisons(1, USUAL, 5, phones=4)
    levels = [estimate_log_ratio(pairs) for pairs in (three, four)]
    assert [estimate.level for estimate in levels if estimate] == [
        ResampledLevel.RUNS,
        ResampledLevel.PHONES,
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
