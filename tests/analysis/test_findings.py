"""Findings: three sentences that claim no more than the runs show."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.analysis.findings import fleet_findings
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.rank_statement import RankClaim
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, endurance, measured
from workloads.protocol.metrics import Source
from workloads.protocol.verdict import Validity

# serial -> (cold, after ten minutes): first when cold, last when hot
FLEET = {"a": (10.0, 40.0), "b": (20.0, 22.0), "c": (30.0, 31.0), "d": (36.0, 36.5)}


def fleet(times: dict[str, tuple[float, float]], n: int = 4, **changes: Any) -> list[MeasuredRun]:
    return [
        run
        for serial, (cold, hot) in times.items()
        for repeat in range(n)
        for run in (
            measured(serial, cold, repeat=repeat, **changes),
            endurance(serial, hot, repeat=repeat, **changes),
        )
    ]


def sentences(runs: Iterable[MeasuredRun]) -> list[str]:
    return [finding.sentence for finding in fleet_findings(list(runs))]


def test_measured_runs_give_three_findings() -> None:
    expected = [
        "When cold, Model a is fastest with 10.0 ms per step, 2.00 times as fast as Model b "
        "(20.0 ms).",
        "After ten minutes of heat, Model b is fastest with 22.0 ms per step, 1.41 times as fast "
        "as Model c (31.0 ms); Model a, first when cold, is now number 4 with 40.0 ms, 4.00 "
        "times its cold time.",
        "Take Model b, Model c and Model d: after ten minutes they need 22.0 ms, 31.0 ms "
        "and 36.5 ms per step, and a round lasts as long as its slowest phone, 36.5 ms per step; "
        "with Model a it would be 40.0 ms.",
    ]
    assert sentences(fleet(FLEET)) == expected


def test_a_phone_that_stays_fastest_is_named() -> None:
    times = {"a": (10.0, 15.0), "b": (20.0, 60.0)}
    expected = "; it was also first when cold and now takes 1.50 times its cold time."
    assert sentences(fleet(times))[1].endswith(expected)


@pytest.mark.parametrize(
    ("changes", "prefix"),
    [
        ({"provenance": FITTED}, "Simulated ±10%: "),
        ({"provenance": EXTRAPOLATED}, "Simulated, error unknown: "),
        ({"provenance": HOST}, "On a computer: "),
    ],
)
def test_simulated_and_host_numbers_are_marked_at_the_start(
    changes: dict[str, Any], prefix: str
) -> None:
    found = fleet_findings(fleet(FLEET, **changes))
    assert [finding.sentence.startswith(prefix) for finding in found] == [True] * 3
    sources = {finding.provenance.source for finding in found if finding.provenance}
    assert (sources == {Source.SIMULATED}) is prefix.startswith("Simulated")


@pytest.mark.parametrize(
    ("runs", "reason", "text"),
    [
        # extrapolated numbers are never called fastest
        (
            fleet(FLEET, provenance=EXTRAPOLATED),
            RankClaim.ERROR_UNKNOWN,
            "; this is not proven, because the numbers come from a model of unknown error",
        ),
        (fleet(FLEET, n=2), RankClaim.TOO_FEW_RUNS, "; this is not proven with 2 runs per"),
        (fleet(FLEET, n=1), RankClaim.TOO_FEW_RUNS, "; this is not proven with one run per"),
        # a difference within the model's error
        (
            fleet({"a": (10.0, 10.0), "b": (11.0, 11.0)}, provenance=FITTED),
            RankClaim.NOT_DISTINGUISHABLE,
            "; the difference to one phone is not significant",
        ),
    ],
)
def test_an_unproven_lead_is_marked(runs: list[MeasuredRun], reason: RankClaim, text: str) -> None:
    for finding in fleet_findings(runs)[:2]:
        assert finding.unproven is reason
        assert finding.answer.endswith(" (not proven)")
        assert " leads with " in finding.sentence
        assert text in finding.sentence
        assert "fastest" not in finding.sentence


def test_a_lead_of_drifting_runs_is_not_proven() -> None:
    drift = [10.0, 10.6, 11.1, 11.7, 12.2, 12.8]
    steady = [12.0, 12.3, 11.9, 12.2, 12.0, 12.1]
    runs = [
        measured(serial, value, repeat=repeat)
        for serial, values in (("a", drift), ("b", steady))
        for repeat, value in enumerate(values)
    ]
    finding = fleet_findings(runs)[0]
    assert finding.unproven is RankClaim.UNSTABLE
    assert "; this is not proven: runs drift" in finding.sentence


def test_several_cells_are_combined_by_the_geometric_mean() -> None:
    times = {("a", 32): 2.0, ("a", 256): 8.0, ("b", 32): 10.0, ("b", 256): 40.0}
    runs = [
        measured(serial, value, parameters={"batch_size": size}, repeat=repeat)
        for (serial, size), value in times.items()
        for repeat in range(4)
    ]
    expected = "When cold, Model a is fastest with 4.00 ms per step, 5.00 times as fast as Model b "
    assert sentences(runs)[0] == expected + "(20.0 ms) (geometric mean of 2 cells)."


def test_only_cells_of_all_phones_count() -> None:
    small, large = {"batch_size": 32}, {"batch_size": 256}
    runs = [measured("a", 10.0, parameters=small, repeat=repeat) for repeat in range(4)]
    runs += [measured("b", 20.0, parameters=small, repeat=repeat) for repeat in range(4)]
    # only b has a fast run of another cell, which must not count
    runs += [measured("b", 0.1, parameters=large, repeat=repeat) for repeat in range(4)]
    assert "(in the one of 2 cells that every phone has)" in sentences(runs)[0]
    assert sentences(runs)[0].startswith("When cold, Model a is fastest with 10.0 ms")


def test_workloads_without_phone_work_are_ignored() -> None:
    runs = [*fleet(FLEET), *(measured(serial, 0.001, workload="noop") for serial in FLEET)]
    assert sentences(runs) == sentences(fleet(FLEET))


def test_missing_data_is_named() -> None:
    expected = [
        "No phone can be ranked first: there is no valid cold run yet.",
        "No phone can be ranked first: there is no valid endurance run yet.",
        "Three phones cannot be chosen: there is no valid endurance run yet.",
    ]
    assert sentences([measured("a", validity=Validity.VOID)]) == expected
    assert [finding.provenance for finding in fleet_findings([])] == [None] * 3


def test_without_cold_runs_the_difference_stays_open() -> None:
    hot = [run for run in fleet(FLEET) if run.condition.protocol == "endurance"]
    assert "the cold ranking is unknown: there is no valid cold run" in sentences(hot)[1]


def test_a_fleet_of_three_takes_all_three() -> None:
    expected = "Three phones cannot be chosen: only 2 phones have a valid ten-minute run."
    assert sentences(fleet({"a": (1.0, 1.0), "b": (2.0, 2.0)}))[2] == expected


def test_mixed_sources_give_no_finding() -> None:
    runs = [*fleet(FLEET), *fleet({"z": (1.0, 1.0)}, provenance=HOST)]
    for sentence in sentences(runs):
        assert ": mlp-4 batch_size=32, " in sentence


def with_energy(needs: dict[str, tuple[float, float]]) -> list[MeasuredRun]:
    return [
        endurance(serial, time, repeat=repeat, energy_per_step_mj=energy)
        for serial, (time, energy) in needs.items()
        for repeat in range(4)
    ]


@pytest.mark.parametrize(
    ("needs", "chosen", "reason"),
    [
        # c and d are equally fast within 2 %: energy decides
        (
            {"a": (10, 1), "b": (11, 1), "c": (20.0, 9), "d": (20.2, 5)},
            "Take Model a, Model b and Model d",
            "Model c would be as fast, but needs more energy per step",
        ),
        # 3 % slower is slower, at any energy
        (
            {"a": (10, 1), "b": (11, 1), "c": (20.0, 9), "d": (20.7, 5)},
            "Take Model a, Model b and Model c",
            "with Model d it would be 20.7 ms",
        ),
    ],
)
def test_equally_fast_phones_are_chosen_by_energy(
    needs: dict[str, tuple[float, float]], chosen: str, reason: str
) -> None:
    sentence = sentences(with_energy(needs))[2]
    assert sentence.startswith(chosen)
    assert reason in sentence


def test_without_energy_the_faster_phone_is_chosen() -> None:
    times = {"a": (1.0, 10.0), "b": (1.0, 11.0), "c": (1.0, 20.0), "d": (1.0, 20.2)}
    assert sentences(fleet(times))[2].startswith("Take Model a, Model b and Model c")


def test_a_hostile_name_is_escaped() -> None:
    hostile = measured("a").facts.model_copy(update={"model": "Pi\x1b[2Jxel\u202e"})
    assert "Pi[2Jxel needs" in sentences([measured("a", facts=hostile)])[0]


def test_energy_of_another_source_is_ignored() -> None:
    needs = {"a": (10.0, 1.0), "b": (11.0, 1.0), "c": (20.0, 9.0), "d": (20.2, 5.0)}
    runs = []
    for run in with_energy(needs):
        energy = run.metrics["energy_per_step_mj"].model_copy(update={"provenance": FITTED})
        runs.append(replace(run, metrics=run.metrics | {"energy_per_step_mj": energy}))
    assert sentences(runs)[2].startswith("Take Model a, Model b and Model c")


def test_phones_of_one_model_are_named_with_their_serials() -> None:
    twin = measured("b").facts.model_copy(update={"model": "Model a"})
    first = sentences([measured("a", 10.0), measured("b", 20.0, facts=twin)])[0]
    assert "Model a (a)" in first
    assert "Model a (b)" in first


def test_a_short_answer_marks_an_unproven_lead() -> None:
    assert [found.answer for found in fleet_findings(fleet(FLEET))[:2]] == ["Model a", "Model b"]
    unsure = fleet_findings(fleet(FLEET, provenance=EXTRAPOLATED))
    assert unsure[0].answer == "Model a (not proven)"
