"""The client table: values read from reports, phones left out, and missing data."""

import pytest

from orchestrator.analysis.measurements import IncompatibleSources
from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import ClientExclusion, DataGap, ExcludedClient
from orchestrator.selection.round_fleet import build_round_fleet
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, measured
from tests.selection.fleets import a_client_table, phone_runs
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import ControlLevel
from workloads.protocol.verdict import Reason, ReasonCode, Validity


def test_a_client_has_values_of_cold_and_hot_runs() -> None:
    sprinter = next(client for client in a_client_table().clients if client.phone == "sprinter")
    assert sprinter.cold_ms.value == pytest.approx(10.04 / 32)
    assert sprinter.sustained_ms is not None
    assert sprinter.sustained_ms.value == pytest.approx(20.08 / 32)
    assert sprinter.slowdown == pytest.approx(2.0)
    assert sprinter.heating_s == 200.0, "the time of most of the rise"
    assert sprinter.battery_j == 64.0
    assert sprinter.peak_mb == 100.0
    assert len(sprinter.runs) == 6


def test_the_setting_that_is_fastest_when_cold_is_used() -> None:
    big = {"condition": {"cores": "big4", "freq": "high"}}
    little = {"condition": {"cores": "little4", "freq": "high"}}
    runs = [measured(step_ms=10.0, **big), measured(step_ms=30.0, **little)]
    (client,) = build_client_table(runs).clients
    assert client.setting == "big4 high"


def test_a_phone_without_a_valid_run_is_left_out_with_the_reason() -> None:
    reason = Reason.void(ReasonCode.CLOCKS_NOT_PINNED, share=0.5)
    void = measured("bad", 9.0, validity=Validity.VOID, reasons=(reason,))
    runs = [*phone_runs("good", 10, 10), void]
    table = build_client_table(runs)
    assert [client.phone for client in table.clients] == ["good"]
    text = f"none of its 1 runs is valid ({reason.text})"
    assert table.left_out == (ExcludedClient("bad", ClientExclusion.NO_VALID_RUN, text),)


def test_a_sweep_of_several_cases_needs_a_choice() -> None:
    runs = [measured(parameters={"batch_size": size}) for size in (32, 64)]
    with pytest.raises(InvalidRequest, match="several workloads; choose one"):
        build_client_table(runs)
    assert build_client_table(runs, batch=64).batch == 64


def test_missing_data_is_listed_with_what_to_do() -> None:
    table = build_client_table([measured(step_ms=10.0)])
    assert [item.gap for item in table.missing] == list(DataGap)
    assert "add 'protocol: [cold, endurance]'" in table.missing[0].text
    assert a_client_table().missing == ()
    many = build_client_table([measured(f"p{number:02}") for number in range(20)]).missing
    assert all("p07 and 12 more" in item.text and "p08" not in item.text for item in many)


def test_a_phone_with_one_run_is_uncertain() -> None:
    runs = [*phone_runs("often", 10.0, 10.0), *phone_runs("once", 10.0, 10.0, runs=1)]
    times = {client.phone: client.cold_ms for client in build_client_table(runs).clients}
    often, once = times["often"], times["once"]
    assert once.uncertainty > often.uncertainty > 0, "the spread of all runs of the sweep"
    (alone,) = build_client_table(phone_runs("once", 10.0, 10.0, runs=1)).clients
    assert alone.cold_ms.uncertainty == 0.5, "the default for one run"


def test_a_phone_without_hot_runs_may_slow_down_like_the_worst() -> None:
    runs = [*phone_runs("both", 10.0, 20.0), *phone_runs("cold", 10.0, 10.0)[:3]]
    both, cold = build_round_fleet(build_client_table(runs).clients).uncertainty
    assert cold > 1.0 > both


def test_figures_of_different_sources_are_not_compared() -> None:
    with pytest.raises(IncompatibleSources, match="sources differ"):
        build_client_table([measured("a"), measured("b", provenance=HOST)])
    cold, hot = (
        phone_runs("a", 10, 10)[:3],
        phone_runs("a", 10, 10, provenance=FITTED)[3:],
    )
    with pytest.raises(IncompatibleSources, match="sources differ"):
        build_client_table([*cold, *hot])


def test_control_levels_are_mixed_only_on_request() -> None:
    runs = [measured("a"), measured("b", control=ControlLevel.OBSERVED)]
    with pytest.raises(IncompatibleSources, match="--allow-mixed"):
        build_client_table(runs)
    assert len(build_client_table(runs, mix=True).clients) == 2


def test_energy_comes_from_long_runs_if_there_are_any() -> None:
    hot = [
        measured(
            condition={"protocol": "endurance"}, last_minute_step_ms=10.0, energy_per_sample_mj=5.0
        )
    ]
    cold = measured(energy_per_sample_mj=3.0)
    rejected = measured(energy_per_sample_mj=3.0, grade="rejected")
    for runs, value in (([cold, *hot], 5.0), ([cold], 3.0), ([rejected], None)):
        ((client,), energy) = build_client_table(runs).clients, value
        assert (client.energy_mj.value if client.energy_mj else None) == energy


@pytest.mark.parametrize(("provenance", "low"), [(FITTED, 0.10), (EXTRAPOLATED, 0.5)])
def test_a_simulated_time_is_as_uncertain_as_its_model(provenance: object, low: float) -> None:
    table = a_client_table(provenance=provenance)
    assert table.simulated
    assert all(client.cold_ms.high / client.cold_ms.value - 1 >= low for client in table.clients)


def test_a_sweep_without_a_matching_run_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no report yet"):
        build_client_table([])
    with pytest.raises(InvalidRequest, match="choose from mlp-4"):
        build_client_table([measured()], workload="lenet")
