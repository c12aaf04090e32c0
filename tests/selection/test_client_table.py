"""Clients from reports: what is read, what is left out, and what is said to be missing."""

import pytest

from orchestrator.analysis.refusals import Mixture
from orchestrator.selection.census import take_census
from orchestrator.selection.fleet import line_up
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, measured
from tests.selection.fleets import a_census, both_ways
from workloads.fault import Refused
from workloads.measure import Standing
from workloads.phone import ControlLevel


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
    void = measured("bad", 9.0, standing=Standing.VOID, reasons=("the clock slipped",))
    runs = [*both_ways("good", 10, 10), void]
    census = take_census(runs)
    assert ["good"] == [client.phone for client in census.clients]
    assert (("bad", "none of its 1 runs is valid (the clock slipped)"),) == census.left_out


def test_a_sweep_of_several_cases_must_be_told_which_is_meant() -> None:
    runs = [measured(parameters={"batch_size": size}) for size in (32, 64)]
    with pytest.raises(Refused, match="one workload at a time"):
        take_census(runs)
    assert 64 == take_census(runs, batch=64).batch


def test_what_is_missing_is_said_with_what_to_do() -> None:
    census = take_census([measured(step_ms=10.0)])
    assert any("endurance" in what for what in census.missing)
    assert any("energy" in what for what in census.missing)
    assert any("memory" in what for what in census.missing)
    assert any("repeat: 3" in what for what in census.missing)
    assert () == a_census().missing
    many = take_census([measured(f"p{number:02}") for number in range(20)]).missing
    assert all("p07 and 12 more" in what and "p08" not in what for what in many)


def test_a_phone_that_was_measured_once_is_not_taken_for_known_exactly() -> None:
    runs = [*both_ways("often", 10.0, 10.0), *both_ways("once", 10.0, 10.0, runs=1)]
    often, once = (client.cold_ms for client in reversed(take_census(runs).clients))
    assert once.doubt > often.doubt > 0, "as far apart as all runs of the sweep lie"
    (alone,) = take_census(both_ways("once", 10.0, 10.0, runs=1)).clients
    assert 0.5 == alone.cold_ms.doubt, "nobody knows"


def test_a_phone_that_was_never_heated_may_do_the_worst_that_was_seen() -> None:
    runs = [*both_ways("both", 10.0, 20.0), *both_ways("cold", 10.0, 10.0)[:3]]
    both, cold = line_up(take_census(runs).clients).doubt
    assert cold > 1.0 > both


def test_figures_of_different_making_are_not_held_against_each_other() -> None:
    with pytest.raises(Mixture, match="host and phone"):
        take_census([measured("a"), measured("b", provenance=HOST)])
    cold, hot = both_ways("a", 10, 10)[:3], both_ways("a", 10, 10, provenance=FITTED)[3:]
    with pytest.raises(Mixture, match="phone and simulated"):
        take_census([*cold, *hot])


def test_clocks_that_were_held_unlike_are_mixed_only_when_that_is_meant() -> None:
    runs = [measured("a"), measured("b", control=ControlLevel.OBSERVED)]
    with pytest.raises(Mixture, match="--mix"):
        take_census(runs)
    assert 2 == len(take_census(runs, mix=True).clients)


def test_energy_is_that_of_long_runs_where_there_are_some() -> None:
    hot = [
        measured(
            condition={"protocol": "endurance"}, last_minute_step_ms=10.0, energy_per_sample_mj=5.0
        )
    ]
    cold = measured(energy_per_sample_mj=3.0)
    rejected = measured(energy_per_sample_mj=3.0, grade="rejected")
    for runs, value in (([cold, *hot], 5.0), ([cold], 3.0), ([rejected], None)):
        ((client,), energy) = take_census(runs).clients, value
        assert energy == (client.energy_mj.value if client.energy_mj else None)


@pytest.mark.parametrize(("provenance", "least"), [(FITTED, 0.10), (EXTRAPOLATED, 0.5)])
def test_a_simulated_time_is_no_surer_than_its_model(provenance: object, least: float) -> None:
    census = a_census(provenance=provenance)
    assert census.simulated
    assert all(client.cold_ms.high / client.cold_ms.value - 1 >= least for client in census.clients)


def test_a_sweep_without_a_run_is_one_sentence() -> None:
    with pytest.raises(Refused, match="no report yet"):
        take_census([])
    with pytest.raises(Refused, match="there are mlp-4"):
        take_census([measured()], workload="lenet")
