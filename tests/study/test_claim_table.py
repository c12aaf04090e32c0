"""Claims held against small data whose answers can be told by hand."""

from typing import Any

import pytest

from orchestrator.nouns import RunOutcome, RunState
from orchestrator.study.answers import REPLAY, Line, answer, notes
from orchestrator.study.catalogue import Claim, Study
from orchestrator.study.evidence import Evidence, Observation, Outcome, evidence_of
from orchestrator.study.kernels import HERE, of_training
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, MEASURED, measured, phone
from workloads.catalogue import bind
from workloads.condition import Condition
from workloads.fit import Fit
from workloads.measure import Provenance, Standing

MEIZU, S8 = "Meizu 16T", "samsung Galaxy S8+"


def seen(
    model: str, metric: str, *values: float, made: Provenance = MEASURED, **at: Any
) -> Observation:
    """A figure of a phone that is called as its model is."""
    return Observation(model, at, metric, values, made)


def evidence(*observations: Observation, outcomes: tuple[Outcome, ...] = ()) -> Evidence:
    """Observations, and the phones that they are of."""
    phones = {each.phone: each.phone for each in (*observations, *outcomes)}
    return Evidence(phones, observations, outcomes)


def lines(found: Evidence, **claim: Any) -> list[Line]:
    """One claim, held against it."""
    given = {"text": "what they say", "seen_on": MEIZU, "ask": {"kind": "value"}} | claim
    return answer(a_study(Claim.model_validate(given)), found)


def a_study(*claims: Claim) -> Study:
    """A study of these claims."""
    return Study(
        name="one",
        title="One",
        question="What?",
        source="a paper, somewhere",
        covers=("E1",),
        claims=claims,
        caution="Mind the gap.",
    )


def step(batch: int, ms: float, model: str = MEIZU, **more: Any) -> Observation:
    """The time of a step."""
    return seen(model, "step_ms", ms, batch_size=batch, **more)


def test_a_value_stands_beside_theirs() -> None:
    found = evidence(seen(MEIZU, "step_ms", 19.0, 20.0, 21.0))
    (line,) = lines(found, value=10.0, unit="ms", ask={"kind": "value", "metric": "step_ms"})
    assert "2.00 × theirs" == line.reading
    assert line.ours.startswith("20 ms ±")
    assert (3, "phone") == (line.found and line.found.n, line.source)


def test_a_twin_that_was_fitted_to_a_claim_replays_it_and_only_there() -> None:
    ask = {"kind": "value", "metric": "step_ms"}
    claim = {"value": 10.0, "unit": "ms", "fitted": MEIZU, "ask": ask}
    for made, model, replayed in (
        (FITTED, MEIZU, True),
        (EXTRAPOLATED, MEIZU, True),  # it was fitted, whatever its error
        (MEASURED, MEIZU, False),
        (HOST, MEIZU, False),
        (FITTED, S8, False),
    ):
        found = evidence(seen(model, "step_ms", 10.0, made=made))
        (line,) = lines(found, **claim)
        assert replayed == line.reading.startswith(REPLAY), (made, model)
        assert "reproduced" not in line.reading
        assert replayed == any("fitted to this very claim" in s for s in notes_of(line))


def notes_of(line: Line) -> list[str]:
    """What stands under a table of one line."""
    return notes(a_study(line.claim), [line], kernels=False)


def test_an_absolute_claim_is_put_to_its_own_phone_alone_where_there_is_one() -> None:
    ask = {"kind": "value", "metric": "step_ms"}
    both = evidence(seen(S8, "step_ms", 30.0), seen(MEIZU, "step_ms", 10.0))
    assert [MEIZU] == [line.model for line in lines(both, value=10.0, absolute=True, ask=ask)]
    (line,) = lines(evidence(seen(S8, "step_ms", 30.0)), value=10.0, absolute=True, ask=ask)
    assert "another phone, 3.00 × theirs" == line.reading


def test_a_ratio_is_of_two_cells_and_its_error_of_both() -> None:
    found = evidence(
        seen(MEIZU, "step_ms", 40.0, made=FITTED, batch_size=64),
        seen(MEIZU, "step_ms", 10.0, made=FITTED, batch_size=4),
    )
    ask = {"kind": "ratio", "metric": "step_ms", "of": {"batch_size": 64}}
    (line,) = lines(found, value=2.0, ask=ask | {"over": {"batch_size": 4}})
    assert line.found is not None
    assert 4.0 == line.found.value
    assert 0.1414 == pytest.approx(line.found.half_rel, abs=1e-3), "10 % above and 10 % below"


def test_ratios_along_an_axis_are_a_range() -> None:
    found = evidence(
        *(step(64, 64 * each, workload=name) for name, each in (("a", 2), ("b", 3))),
        *(step(4, 32, workload=name) for name in ("a", "b", "c")),
    )
    ask = {"kind": "ratio", "metric": "step_ms", "along": "workload"}
    ask |= {"of": {"batch_size": 64}, "over": {"batch_size": 4}}
    for within, reading in (
        ((2.2, 10.5), "within theirs"),
        ((5.0, 10.5), "partly within theirs"),
        ((7.0, 8.0), "below theirs"),
        ((1.0, 2.0), "above theirs"),
    ):
        (line,) = lines(found, within=within, unit="times", ask=ask)
        assert ("4 to 6 times (a to b, 2 of them)", reading) == (line.ours, line.reading)


def test_the_best_place_on_two_axes_is_named() -> None:
    cells = [("big4", "high", 2.0, 7.0), ("big1", "low", 10.0, 6.9), ("little1", "low", 57.0, 3.0)]
    cells += [("big4", "low", 8.0, 8.0)]
    found = evidence(
        *(seen(MEIZU, "step_ms", ms, cores=cores, freq=freq) for cores, freq, ms, _ in cells),
        *(seen(MEIZU, "energy_j", j, cores=cores, freq=freq) for cores, freq, _, j in cells),
    )
    ask = {"kind": "best", "metric": "step_ms", "along": "cores freq"}
    (line,) = lines(found, word="big4 high", ask=ask)
    assert "big4 high (4.00 times before big4 low, which may be chance)" == line.ours, "one run"
    assert "the same" == line.reading
    (line,) = lines(found, word="big4 high", ask=ask | {"metric": "energy_j"})
    assert "not the same" == line.reading
    both = ask | {"kind": "front", "over_metric": "energy_j"}
    (line,) = lines(found, ask=both)
    assert "big4 high, big1 low, little1 low" == line.ours, "big4 low is beaten in both"


def test_a_lead_is_more_than_chance_when_runs_and_model_say_so() -> None:
    ask = {"kind": "best", "metric": "step_ms", "along": "cores"}
    for made, second, words in (
        (MEASURED, 12.0, "1.20 times before big2"),
        (MEASURED, 10.01, "1.00 times before big2, which may be chance"),
        (FITTED, 11.0, "1.10 times before big2, which may be chance"),
        (EXTRAPOLATED, 90.0, "9.00 times before big2, which may be chance"),
    ):
        found = evidence(
            seen(MEIZU, "step_ms", *[10.0, 10.01, 9.99, 10.0], made=made, cores="big4"),
            seen(MEIZU, "step_ms", *[second] * 4, made=made, cores="big2"),
        )
        (line,) = lines(found, word="big4", ask=ask)
        assert f"big4 ({words})" == line.ours


def test_the_largest_batch_below_a_limit() -> None:
    found = evidence(*(seen(MEIZU, "peak_rss_mb", 250.0 * n, batch_size=n) for n in (1, 4, 8)))
    ask = {"kind": "largest", "metric": "peak_rss_mb", "along": "batch_size", "limit": 1024}
    (line,) = lines(found, value=4, ask=ask)
    assert ("4 (of 1, 4, 8)", "1.00 × theirs") == (line.ours, line.reading)
    (line,) = lines(found, value=4, ask=ask | {"limit": 100})
    assert "none of 1, 4, 8" == line.ours


def test_phones_are_held_against_each_other() -> None:
    found = evidence(
        step(4, 40, S8, workload="a"),
        step(4, 10, MEIZU, workload="a"),
        step(4, 20, S8, workload="b"),
        step(4, 30, MEIZU, workload="b"),
    )
    at: dict[str, Any] = {"metric": "step_ms", "at": {"workload": "a"}}
    (line,) = lines(found, value=4.0, ask={"kind": "between", "models": [S8, MEIZU]} | at)
    assert ("2 phones", "1.00 × theirs") == (line.model, line.reading)
    assert "samsung Galaxy S8+ over Meizu 16T" in line.ours
    (line,) = lines(found, word=MEIZU, ask={"kind": "winner"} | at)
    assert "the same" == line.reading
    (line,) = lines(found, ask={"kind": "agreement", "metric": "step_ms", "along": "workload"})
    assert line.found is not None
    assert -1.0 == line.found.value, "what is quick for one is slow for the other"


def test_what_was_not_observed_says_why() -> None:
    at = {"workload": "resnet50", "batch_size": 64}
    killed = Outcome(MEIZU, at, "killed", False, "out of memory", EXTRAPOLATED)
    done = Outcome(S8, at, "fits", True)
    found = evidence(outcomes=(killed, done))
    ask = {"kind": "value", "metric": "power_w", "at": at}
    assert ["unavailable: killed: out of memory", "unavailable: it offers no energy"] == [
        line.reading for line in lines(found, value=1.0, ask=ask)
    ]
    (line, _) = lines(found, word="killed", ask={"kind": "outcome", "at": at})
    assert ("killed", "the same", "simulated (extrapolated)") == (
        *(line.ours, line.reading),
        line.source,
    )
    missing = evidence(outcomes=(killed, Outcome(S8, at, "killed", False, "out of memory")))
    (line,) = lines(missing, value=1.0, ask=ask)
    assert f"{MEIZU}, {S8}" == line.model, "what two phones lack for one reason is one line"
    (line,) = lines(found, value=1.0, ask={"kind": "never", "why": "there is no such meter"})
    assert "unavailable: there is no such meter" == line.reading
    ask = {"kind": "value", "metric": "step_ms", "at": {"engine": "external"}}
    hint = ask | {"without": "say --external"}
    assert {"unavailable: say --external"} == {x.reading for x in lines(found, value=1.0, ask=hint)}


def test_runs_become_observations_and_void_ones_reasons() -> None:
    facts = phone("a", model=MEIZU)
    runs = [
        measured("a", 10.0, facts=facts, energy_net_j=5.0, energy_j=10.0, energy_per_step_mj=8.0),
        measured("a", 12.0, facts=facts, repeat=1),
        measured("b", 99.0, standing=Standing.VOID, reasons=("it was too warm",)),
    ]
    outcomes = [
        RunOutcome(
            *(run.trial, run.repeat, 0, 0, run.phone, run.case, run.condition, RunState.DONE),
            *(run.verdict.standing, Fit.FITS, None, ""),
        )
        for run in runs
    ]
    found = evidence_of(runs, outcomes)
    at = {"workload": "mlp-4", "cores": "big4", "batch_size": 32}
    (steps,) = found.of("a", "step_ms", at)
    assert (10.0, 12.0) == steps.values
    assert (4.0,) == found.of("a", "energy_net_per_step_mj", at)[0].values
    assert not found.of("b", "step_ms", at)
    assert "void: it was too warm" == found.why_not("b", "step_ms", at)
    assert "it offers no clock" == found.why_not("a", "clock_held_share", at)


def test_a_rejected_energy_is_no_observation() -> None:
    run = measured("a", None, grade="rejected", energy_j=5.0)
    assert not evidence_of([run], []).observations
    case, condition = bind("mlp-4", {}), Condition()
    refused = RunOutcome(
        *("t", 0, 0, 0, "a", case, condition, RunState.FAILED, None, Fit.TOO_LARGE),
        *(None, "TooLarge while prepare: It needs 9 GB. Use a smaller batch."),
    )
    assert "predicted too large: It needs 9 GB" == evidence_of([], [refused]).why_not("a", "", {})


def test_kernels_that_did_not_train_are_no_evidence() -> None:
    from kernels.harness.train import ModelRow, Trained

    right = Trained(1, 1, 0.0, 2.0, 1.0, [0.002, 0.004, 0.003], 0.001, 0.003)
    wrong = Trained(1, 1, 0.5, 2.0, 1.0, [0.001], 0.001, 0.001)
    row = ModelRow("mlp-1", (16, 16), {"copied": right, "mapped": wrong}, {1: [0.001]})
    seen = list(of_training([row], []))
    assert {"copied", None} == {each.at.get("way") for each in seen}
    shares = {each.metric: each.values for each in seen if each.metric.endswith("share")}
    assert {"compute_share": (0.25,), "copy_share": (0.75,)} == shares
    assert [(0.5,)] == [each.values for each in seen if each.metric == "kernels_of_step"]
    assert {HERE} == {each.phone for each in seen}
    assert {"host"} == {str(each.provenance) for each in seen}
