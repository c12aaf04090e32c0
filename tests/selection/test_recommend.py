"""A recommendation for one round: reasons, intervals, and what to measure next."""

import numpy as np
import pytest

from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import ClientExclusion
from orchestrator.selection.ranking_agreement import ranking_agreement
from orchestrator.selection.recommend import (
    ClientState,
    LocalWork,
    MeasurementReason,
    MeasurementSuggestion,
    expected_gain,
    recommend_clients,
)
from orchestrator.selection.round_state import RoundRequest
from tests.analysis.builders import FITTED
from tests.selection.fleets import a_client_table, phone_runs

WORK = LocalWork(samples=1000)


def test_a_cohort_comes_with_reasons_and_intervals() -> None:
    advice = recommend_clients(a_client_table(), "frugal", RoundRequest(k=2), WORK)
    assert len(advice.chosen) == 2
    assert all(chosen.reason for chosen in advice.chosen)
    assert [(item.phone, item.code) for item in advice.excluded] == [
        ("tiny", ClientExclusion.TOO_LITTLE_MEMORY)
    ]
    assert advice.round_s is not None
    assert advice.round_s.low <= advice.round_s.value <= advice.round_s.high
    assert advice.energy_j is not None
    assert advice.energy_j.value == pytest.approx(4.0, rel=0.05), "two phones, 2 mJ, 1000 samples"


def test_heat_and_link_lengthen_a_round() -> None:
    table = build_client_table(
        [*phone_runs("sprinter", 10.0, 20.0), *phone_runs("steady", 12.0, 12.0)]
    )
    cool, hot, distant = (
        recommend_clients(
            table,
            "frugal",
            RoundRequest(k=1),
            LocalWork(1e5, heated_for_s=after_s, link_s=link_s),
        )
        for after_s, link_s in ((0.0, 0.0), (1e5, 0.0), (0.0, 7.0))
    )
    assert [chosen.client.phone for chosen in cool.chosen] == ["sprinter"]
    assert [chosen.client.phone for chosen in hot.chosen] == ["steady"], "the faster one when hot"
    assert cool.round_s is not None
    assert distant.round_s is not None
    assert distant.round_s.value - cool.round_s.value == pytest.approx(7.0, rel=1e-6)


def test_the_current_state_of_phones_decides_availability_and_time() -> None:
    runs = [
        *phone_runs("warm", 10.0, 20.0, start_temp_c=30.0, peak_temp_c=70.0),
        *phone_runs("away", 10.0, 10.0),
        *phone_runs("empty", 10.0, 10.0),
        *phone_runs("unheard", 10.0, 10.0),
    ]
    now = {
        "warm": ClientState(temp_c=50.0, charge=0.9),
        "away": ClientState(offline=True),
        "empty": ClientState(charge=0.1),
    }
    advice = recommend_clients(
        build_client_table(runs), "frugal", RoundRequest(k=4), LocalWork(1.0, client_states=now)
    )
    (chosen,) = advice.chosen
    excluded = {item.phone: item.code for item in advice.excluded}
    assert "50% hot" in chosen.reason
    assert chosen.seconds == pytest.approx(10.04 / 32 / 1000 * 1.5, rel=1e-3)
    assert excluded == {
        "empty": ClientExclusion.BATTERY_LOW,
        "away": ClientExclusion.OFFLINE,
        "unheard": ClientExclusion.OFFLINE,
    }


def test_the_default_round_takes_30_s_on_the_median_phone() -> None:
    advice = recommend_clients(a_client_table(), "fastest", RoundRequest(k=1), LocalWork())
    assert advice.samples == pytest.approx(
        30.0 / np.median([40.16, 10.04, 12.048, 11.044]) * 32_000, abs=1
    )


def test_phones_that_rest_too_little_start_warm() -> None:
    table = build_client_table([*phone_runs("sprinter", 10.0, 20.0)])
    times = [
        recommend_clients(
            table, "fastest", RoundRequest(k=1), LocalWork(round_s=100.0, rest_s=rest_s)
        )
        .chosen[0]
        .seconds
        for rest_s in (None, 1e6, 100.0, 0.0)
    ]
    assert times[0] == pytest.approx(times[1]), "a long pause is a cool start"
    assert times[0] < times[2] < times[3]
    assert times[3] == pytest.approx(200.0, rel=1e-3), "without a pause, the sustained time"


def test_a_phone_without_a_hot_run_is_measured_next() -> None:
    table = build_client_table([*phone_runs("a", 10, 10), *phone_runs("b", 10, 10)[:3]])
    suggestion = recommend_clients(table, "frugal", RoundRequest(k=1), WORK).measure_next
    assert suggestion == MeasurementSuggestion("b", MeasurementReason.NO_HOT_RUN)


def test_the_expected_gain_agrees_with_a_simulation() -> None:
    medians, sigma = np.array([1.0, 2.0, 2.2, 3.0]), np.array([0.1, 0.4, 0.3, 0.5])
    noise = np.random.default_rng(0).standard_normal(200_000)
    for index in range(4):
        times = np.tile(medians, (len(noise), 1))
        times[:, index] = medians[index] * np.exp(noise * sigma[index])
        informed = np.sort(times, axis=1)[:, 1]
        assert expected_gain(medians, sigma, 2)[index] == pytest.approx(
            (times[:, :2].max(axis=1) - informed).mean(), abs=0.003
        )


def test_no_measurement_is_suggested_if_it_cannot_change_the_choice() -> None:
    runs = [*phone_runs("quick", 10.0, 10.0), *phone_runs("slow", 90.0, 90.0)]
    table = build_client_table(runs)
    for k in (1, 2):
        assert recommend_clients(table, "frugal", RoundRequest(k=k), WORK).measure_next is None


def test_the_phone_that_saves_most_time_is_measured_next() -> None:
    times = {"a": 10.0, "b": 10.2, "c": 90.0}
    runs = [
        run for name, ms in times.items() for run in phone_runs(name, ms, ms, provenance=FITTED)
    ]
    suggestion = recommend_clients(
        build_client_table(runs), "frugal", RoundRequest(k=1), WORK
    ).measure_next
    assert suggestion is not None
    assert suggestion.phone in {"a", "b"}, "c is too slow to matter"
    assert suggestion.reason is MeasurementReason.SAVES_TIME
    assert "longer than estimated; measuring it would save " in suggestion.text


def test_choosing_by_cold_figures_costs_hot_rounds() -> None:
    rankings = ranking_agreement(a_client_table().clients)
    assert rankings is not None
    assert rankings.tau < 1
    assert rankings.extra_time[0] == pytest.approx(20.08 / 11.044 - 1, rel=1e-3), (
        "the sprinter is chosen and slows down"
    )
    assert rankings.worst == (1, rankings.extra_time[0])
    assert rankings.extra_time[2] == pytest.approx(0.0, abs=1e-9), (
        "a cohort of three contains the sprinter in both rankings"
    )
    assert ranking_agreement(a_client_table().clients[:1]) is None
