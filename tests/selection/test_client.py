"""Clients from reports: what is read, what is left out, and what is said to be missing."""

import pytest

from orchestrator.selection.client import take_census
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, measured
from tests.selection.fleets import a_census, both_ways
from workloads.fault import Refused
from workloads.measure import Standing


def test_a_client_is_read_from_cold_and_hot_runs() -> None:
    sprinter = next(client for client in a_census().clients if client.phone == "sprinter")
    assert pytest.approx(10.04 / 32) == sprinter.cold_ms.value
    assert sprinter.sustained_ms is not None
    assert pytest.approx(20.08 / 32) == sprinter.sustained_ms.value
    assert pytest.approx(2.0) == sprinter.slowdown
    assert 200.0 == sprinter.heating_s, "where the curve has done most of its rise"
    assert 64.0 == sprinter.battery_j
    assert 100.0 == sprinter.peak_mb
    assert 6 == len(sprinter.runs)


def test_the_setting_that_is_quickest_when_cool_is_taken_with_its_own_heat() -> None:
    big = {"condition": {"cores": "big4", "freq": "high"}}
    little = {"condition": {"cores": "little4", "freq": "high"}}
    runs = [measured(step_ms=10.0, **big), measured(step_ms=30.0, **little)]
    (client,) = take_census(runs).clients
    assert "big4 high" == client.setting


def test_a_phone_without_a_valid_run_is_left_out_with_the_reason() -> None:
    runs = [*both_ways("good", 10, 10), measured("bad", 9.0, standing=Standing.VOID)]
    census = take_census(runs)
    assert ["good"] == [client.phone for client in census.clients]
    assert (("bad", "none of its 1 runs is valid"),) == census.left_out


def test_a_sweep_of_several_cases_must_be_told_which_is_meant() -> None:
    runs = [measured(parameters={"batch_size": size}) for size in (32, 64)]
    with pytest.raises(Refused, match="one workload at a time"):
        take_census(runs)
    assert 64 == take_census(runs, batch=64).batch


def test_what_is_missing_is_said_with_what_to_do() -> None:
    census = take_census([measured(step_ms=10.0)])
    assert any("endurance" in what for what in census.missing)
    assert any("energy" in what for what in census.missing)
    assert any("repeat: 3" in what for what in census.missing)
    assert () == a_census().missing


def test_times_of_different_making_are_not_held_against_each_other() -> None:
    with pytest.raises(Refused, match="host and phone"):
        take_census([measured("a"), measured("b", provenance=HOST)])


@pytest.mark.parametrize(("provenance", "least"), [(FITTED, 0.10), (EXTRAPOLATED, 0.5)])
def test_a_simulated_time_is_no_surer_than_its_model(provenance: object, least: float) -> None:
    census = a_census(provenance=provenance)
    assert census.simulated
    assert all(client.cold_ms.high / client.cold_ms.value - 1 >= least for client in census.clients)


def test_a_sweep_without_a_run_is_one_sentence() -> None:
    with pytest.raises(Refused, match="no accepted run"):
        take_census([])
    with pytest.raises(Refused, match="there are mlp-4"):
        take_census([measured()], workload="lenet")
