"""Predictability metrics: similarity over the run, prediction from the first steps, correlation."""

import pytest

from tests.agent.test_run_metrics import S, a_run, output_of, values, windows
from workloads.protocol.telemetry import (
    BUSY,
    ENERGY,
    GPU_BUSY,
    MEMORY,
    CumulativeSeries,
    part_rates,
    sampled,
    similarity,
)

TENTHS = [row * S // 10 for row in range(101)]


def test_a_run_that_repeats_has_similarities_of_one() -> None:
    series = {
        BUSY: CumulativeSeries(TENTHS, [0.2 * t / S for t in TENTHS]),
        ENERGY: sampled([(t, 2.0) for t in TENTHS]),
        MEMORY: sampled([(t, 900.0) for t in TENTHS]),
    }
    metrics = values(a_run(series=series))
    assert metrics["util_similarity"] == pytest.approx(1.0)
    assert metrics["power_similarity"] == pytest.approx(1.0)
    assert metrics["memory_similarity"] == pytest.approx(1.0)


def test_a_run_whose_power_doubles_half_way_is_less_similar() -> None:
    series = {ENERGY: sampled([(t, 2.0 if t < 5 * S else 4.0) for t in TENTHS])}
    metrics = values(a_run(series=series))
    assert 0.6 < metrics["power_similarity"] < 0.9
    assert "util_similarity" not in metrics


def test_the_first_steps_predict_the_whole_run() -> None:
    steady = values(a_run())
    assert steady["time_prediction_error"] == pytest.approx(0.0)
    slower = output_of(windows(*[10.0] * 2, *[12.0] * 198))  # the first ten steps are faster
    metrics = values(a_run(output=slower))
    assert metrics["time_prediction_error"] == pytest.approx(1 - 10 / 11.98, rel=0.01)
    assert "time_prediction_error" not in values(a_run(output=output_of(windows(*[10.0] * 6))))


def test_a_processor_that_feeds_the_gpu_correlates_with_it() -> None:
    load = [(t, 1.0 if (t // S) % 2 else 0.0) for t in TENTHS]
    with_gpu, against_gpu = [0.0], [0.0]
    for t in TENTHS[1:]:
        on = (t // S) % 2
        with_gpu.append(with_gpu[-1] + 0.1 * on)
        against_gpu.append(against_gpu[-1] + 0.1 * (1 - on))
    for busy, expected in ((with_gpu, 1.0), (against_gpu, -1.0)):
        series = {BUSY: CumulativeSeries(TENTHS, busy), GPU_BUSY: sampled(load)}
        metrics = values(a_run(series=series))
        assert metrics["cpu_gpu_correlation"] == pytest.approx(expected, abs=0.2)
    constant = {
        BUSY: CumulativeSeries(TENTHS, with_gpu),
        GPU_BUSY: sampled([(0, 1.0), (10 * S, 1.0)]),
    }
    assert "cpu_gpu_correlation" not in values(a_run(series=constant))


def test_the_share_of_a_step_that_waits_for_data() -> None:
    phases = {"phases_ns": (10_000_000, 30_000_000, 0, 0)}
    output = output_of([window.model_copy(update=phases) for window in windows(*[10.0] * 200)])
    assert values(a_run(output=output))["load_share"] == pytest.approx(0.2)


def test_parts_and_similarities_have_limits() -> None:
    series = sampled([(0, 1.0), (10 * S, 1.0)])
    assert part_rates(series, (0, 10 * S), S) == pytest.approx([1.0] * 10)
    assert part_rates(series, (0, 10 * S), 20 * S) == []
    assert similarity([1.0]) is None
    assert similarity([0.0, 0.0]) is None
    assert similarity([1.0, 1.0, 2.0]) == pytest.approx((1 + 1 + 0.5) / 3)
