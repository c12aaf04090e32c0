"""A population drawn from measured phones: shares, units, links and availability."""

import numpy as np
import pytest

from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.population import (
    DAY_S,
    LINKS,
    PopulationPlan,
    draw_population,
    read_availability,
    sibling_spread,
)
from tests.analysis.builders import phone
from tests.selection.fleets import a_client_table, phone_runs
from workloads.protocol.faults import InvalidRequest

PHONES = a_client_table().clients


@pytest.mark.parametrize("n", [1, 6, 7, 1000])
def test_counts_are_within_one_client_of_their_shares(n: int) -> None:
    shares = {"Model slow": 0.13, "Model steady": 0.61, "Model tiny": 0.26}
    population = draw_population(PHONES, PopulationPlan(n, 3, shares))
    assert len(population) == n
    for index, client in enumerate(PHONES):
        count = int((population.phone_of == index).sum())
        assert abs(count - shares.get(client.model, 0.0) * n) < 1


def test_a_population_is_determined_by_its_seed() -> None:
    plans = [PopulationPlan(50, seed, links=LINKS["flash-wifi"], rhythm=True) for seed in (1, 1, 2)]
    first, again, other = (draw_population(PHONES, plan) for plan in plans)
    assert first.link_kbps is not None
    assert again.link_kbps is not None
    for one, two in zip(
        (*first.link_kbps, first.phone_of, first.availability.start_s),
        (*again.link_kbps, again.phone_of, again.availability.start_s),
        strict=True,
    ):
        assert np.array_equal(one, two, equal_nan=True)
    assert not np.array_equal(first.phone_of, other.phone_of)


def test_units_differ_as_much_as_measured_siblings() -> None:
    siblings = build_client_table(
        [
            *phone_runs("a", 10.0, 10.0, facts=phone("a", model="M")),
            *phone_runs("b", 11.0, 11.0, facts=phone("b", model="M")),
        ]
    ).clients
    assert sibling_spread(siblings) == pytest.approx(np.log(1.1) / np.sqrt(2))
    assert sibling_spread(PHONES) is None
    population = draw_population(siblings, PopulationPlan(4000))
    assert np.log(population.speed_factor).std() == pytest.approx(np.log(1.1) / np.sqrt(2), rel=0.1)
    assert (draw_population(PHONES, PopulationPlan(50)).speed_factor == 1).all()
    spread = draw_population(PHONES, PopulationPlan(4000, unit_spread=0.2)).speed_factor
    assert np.log(spread).std() == pytest.approx(0.2, rel=0.1)


def test_links_follow_their_distribution() -> None:
    population = draw_population(PHONES, PopulationPlan(5000, links=LINKS["flash-wifi"]))
    assert population.link_kbps is not None
    down, up = population.link_kbps
    assert np.median(down) == pytest.approx(41_400, rel=0.05)
    assert np.median(up) == pytest.approx(24_800, rel=0.05)
    assert np.corrcoef(np.log(down), np.log(up))[0, 1] == pytest.approx(0.448, abs=0.05)


def test_most_clients_are_available_at_night_and_few_by_day() -> None:
    available = draw_population(PHONES, PopulationPlan(2000, rhythm=True)).availability
    share = [available.present(hour * 3600.0)[0].mean() for hour in range(24)]
    assert share[2] > 0.9
    assert share[15] < 0.15
    assert available.present(DAY_S + 7200)[0].mean() == share[2], "days repeat"
    ordered = available.start_s[:, 1:] >= available.end_s[:, :-1]
    assert (ordered | np.isnan(available.start_s[:, 1:] + available.end_s[:, :-1])).all()
    online, charging = available.present(2 * 3600.0)
    assert (charging <= online).all()


def test_a_trace_is_read_from_a_plain_table() -> None:
    lines = ["client,start_s,end_s,charging", "a,100,200,1", "b,0,50,0", "a,0,60,0"]
    trace = read_availability(lines)
    assert trace.present(150.0)[0].tolist() == [True, False]
    assert trace.present(150.0)[1].tolist() == [True, False]
    assert trace.present(30.0)[1].tolist() == [False, False]
    population = draw_population(PHONES, PopulationPlan(5, trace=trace))
    assert len(population.availability) == 5
    assert trace.period_s == DAY_S


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "lacks a column"),
        (["client,start_s"], "lacks a column"),
        (["client,start_s,end_s"], "no window"),
        (["client,start_s,end_s", "a,5,4"], "line 2 of the trace is not a window"),
        (["client,start_s,end_s,charging", "a,4,5,maybe"], "no valid charging; write 0 or 1"),
        (["client,start_s,end_s", "a,0,inf"], "line 2"),
        (["client,start_s,end_s", "a,x"], "line 2"),
    ],
)
def test_a_damaged_trace_is_refused(lines: list[str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read_availability(lines)


@pytest.mark.parametrize(
    ("shares", "text"),
    [({"Nokia": 1.0}, "no phone of model 'Nokia'"), ({"Model slow": 0.5}, "add up to 0.5")],
)
def test_impossible_shares_are_refused(shares: dict[str, float], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        draw_population(PHONES, PopulationPlan(10, model_shares=shares))
