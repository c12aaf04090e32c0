"""The catalogue of studies is complete: every claim has a citation and a valid query."""

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.virtual.profiles import load_profile, profile_ids
from orchestrator.study.claim_evaluators import (
    FLEET_EVALUATORS,
    PHONE_EVALUATORS,
    is_same_model,
)
from orchestrator.study.evidence import run_settings
from orchestrator.study.self_check import SelfCheck
from orchestrator.study.study_catalogue import (
    STUDIES_FOLDER,
    TOPICS,
    Claim,
    QueryKind,
    Study,
    all_studies,
    find_study,
)
from orchestrator.study.telemetry_metrics import OP_METRICS, TELEMETRY_METRICS
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from tests.farm.conftest import ROOT
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.metrics import metric_kind

NAMES = {
    *("cambridge-gemm", "cambridge-backprop", "cambridge-copy-share"),
    *("emdl-latency", "emdl-cpu-usage", "emdl-cpuconf", "emdl-thermal", "emdl-energy"),
    *("emdl-memory", "emdl-op-breakdown", "emdl-model-affinity", "emdl-cpu-vs-gpu"),
    *("emdl-library", "tx2-batch", "tx2-utilisation", "tx2-energy", "tx2-memory"),
    *("tx2-feasibility", "tx2-predictability", "tx2-daily", "tx2-power-modes", "tx2-person"),
    *("freqbench-knee", "freqbench-slow-steps"),
    *("termux-decoder", "lora-adapters", "adreno540-copies", "sustained-minutes"),
}
# computed by studies, in addition to the metrics of reports
COMPUTED = TELEMETRY_METRICS | {"energy_net_per_step_mj", "kernel_gflops", "compute_share"}
COMPUTED |= {"device_compute_share", "device_copy_share"}


def sweeps_of(study: Study, native: bool = False) -> list[Sweep]:
    """Return the sweeps of a study, without an external engine."""
    texts = study.sweeps(native)
    return [read_sweep(text.replace(', "external:engine"', "")) for text in texts]


def test_all_studies_and_no_other_files_exist() -> None:
    assert set(all_studies()) == NAMES
    for file in STUDIES_FOLDER.iterdir():
        assert file.name.partition(".")[0] in NAMES, file.name


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_queries_of_a_study_match_its_sweeps(name: str) -> None:
    study = find_study(name)
    on_phones = sweeps_of(study)
    for sweep in (*on_phones, *sweeps_of(study, native=True)):
        assert sweep.name.startswith(name), "its runs are found by this name"
        assert sweep.runs_per_phone <= 105
    for claim in study.claims:
        assert len(study.citation_of(claim)) > 10, claim.text
        assert bool(study.place_of(claim)) != claim.ours, claim.text
        assert not (claim.ours and claim.states_result), claim.text
        assert len(claim.text) > 8
        check_query(claim, on_phones)


def check_query(claim: Claim, sweeps: list[Sweep]) -> None:
    """Check that a query names a known metric, and cells that the sweeps have."""
    query = claim.query
    for metric in filter(None, (query.metric, query.second_metric)):
        assert metric in COMPUTED or metric_kind(metric), f"{claim.text}: {metric}"
    engines = (query.first.get("engine"), query.where.get("engine"))
    if query.kind is QueryKind.UNOBSERVABLE or "external" in engines:
        return
    cells = [run_settings(cell.case, cell.condition) for s in sweeps for cell in s.cells]
    sides = [query.larger, query.smaller] if query.larger else [{}]
    pairs = [(at, end) for at in sides for end in (query.first, query.second)]
    for wanted in (query.where | at | end for at, end in pairs):
        matching = [at for at in cells if wanted.items() <= at.items()]
        assert matching, f"{claim.text}: no cell of the sweeps has {wanted}"
        for axis in set(query.axis.split()) - {"op_kind"}:
            assert len({at[axis] for at in matching}) > 1, f"{claim.text}: there is no axis {axis}"


def test_every_topic_of_the_three_studies_is_covered() -> None:
    assert {row for study in all_studies().values() for row in study.covers} == set(TOPICS)
    assert list(TOPICS)[:26] == [*(f"{of}{n}" for of in "ME" for n in range(1, 14))]


def claims_of_phone(name: str) -> set[tuple[str, str]]:
    """Return the claims whose results are replays on the phone of this name."""
    return {
        (study.name, claim.text)
        for study in all_studies().values()
        for claim in study.claims
        if claim.states_result and any(is_same_model(on, name) for on in claim.replays_on)
    }


@pytest.mark.parametrize("profile_id", profile_ids())
def test_a_profile_lists_exactly_the_claims_that_it_was_chosen_by(profile_id: str) -> None:
    profile = load_profile(profile_id)
    listed: set[tuple[str, str]] = set()
    for entry in profile.chosen_by:
        name, _, pattern = entry.partition(": ")
        found = {
            (name, claim.text)
            for claim in find_study(name).claims
            if claim.states_result and fnmatchcase(claim.text, pattern)
        }
        assert found, f"{profile_id}: no claim matches '{entry}'"
        listed |= found
    assert listed == claims_of_phone(profile.name)


def test_claims_that_the_twin_was_fitted_to_are_those_of_its_measurements() -> None:
    # A calibration replay must be marked as one.
    folder = ROOT / "benchmarks" / "phone_fits" / "measurements"
    fitted = {float(n) for n in re.findall(r"[\d.]+", _text(folder)) if n.strip(".")}
    for name, minimum in (("emdl-latency", 8), ("emdl-memory", 8)):
        marked = 0
        for claim in find_study(name).claims:
            if not claim.only_this_phone or claim.value is None:
                continue
            if claim.value in fitted:
                assert claim.replays_on, f"{name}: {claim.text}: the twin was fitted to this"
                marked += 1
        assert marked >= minimum, name
    meizu = tomllib.loads((folder / "meizu-16t.toml").read_text())
    cells = {f"{row['cores']} {row['freq']}" for row in meizu["core_set"]}
    replayed = {
        claim.text.split(": ")[1].split(" (")[0]
        for claim in find_study("emdl-cpuconf").claims
        if claim.only_this_phone and claim.replays_on
    }
    assert replayed == cells


def _text(folder: Path) -> str:
    return " ".join(file.read_text() for file in sorted(folder.glob("*.toml")))


def test_nothing_about_phones_gpus_is_refuted_by_a_processor() -> None:
    for name in ("cambridge-gemm", "cambridge-backprop", "cambridge-copy-share"):
        for claim in find_study(name).claims:
            is_value = claim.value is not None and claim.only_this_phone
            assert claim.only_gpu or is_value or not claim.states_result, claim.text


def test_claims_that_contradict_themselves_are_found_by_arithmetic() -> None:
    claims = {claim.text: claim for study in all_studies().values() for claim in study.claims}
    checked = [claim for claim in claims.values() if claim.self_check]
    contradictory = [claim for claim in checked if claim.contradicts_itself]
    assert (len(checked), len(contradictory)) == (11, 8)
    iphone = next(claim for claim in contradictory if claim.answer == "5.22 tokens/s")
    assert iphone.self_check is not None
    assert iphone.self_check.result.endswith("128 / 5.22 = 24.5 s, stated 19 s")


@pytest.mark.parametrize(
    ("product", "divisor", "stated", "agrees"),
    [
        (["128"], ["0.22"], "570", True),  # 569 to 596 s, because 0.22 has two digits
        (["128"], ["0.220"], "570", False),
        (["2.5", "4"], [], "10", True),
        (["2.5", "4"], [], "12", False),
        (["3.64e6"], [], "2.35e6", False),
    ],
)
def test_only_what_rounding_does_not_explain_is_a_contradiction(
    product: list[str], divisor: list[str], stated: str, agrees: bool
) -> None:
    check = SelfCheck(product_of=tuple(product), divided_by=tuple(divisor), stated=stated)
    assert check.agrees == agrees


@pytest.mark.parametrize("number", ["0", "-1", "many", "nan"])
def test_a_number_that_cannot_be_checked_is_refused(number: str) -> None:
    with pytest.raises(ValidationError, match="is not a positive number"):
        SelfCheck(product_of=(number,), stated="1")


def test_an_unknown_study_is_refused_with_the_closest_name() -> None:
    with pytest.raises(InvalidRequest, match="unknown study 'emdl-cpu-conf'; did you mean"):
        find_study("emdl-cpu-conf")


def test_a_contradictory_claim_is_refused() -> None:
    claim = {"text": "twice", "published_on": "x", "value": 1.0, "answer": "one"}
    claim["query"] = {"kind": "value"}
    with pytest.raises(ValueError, match="a claim has at most one of value"):
        Claim.model_validate(claim)
    with pytest.raises(ValueError, match="'reason' is required for unobservable"):
        Claim.model_validate(claim | {"answer": "", "query": {"kind": "unobservable"}})


def test_every_kind_of_query_has_one_evaluator() -> None:
    kinds = [*PHONE_EVALUATORS, *FLEET_EVALUATORS, QueryKind.UNOBSERVABLE]
    assert sorted(kinds) == sorted(QueryKind)


def test_operations_are_joined_with_readings_only_where_a_study_asks_for_them() -> None:
    """Joining takes a second per run, and a study has up to two hundred."""
    asking = {name for name, study in all_studies().items() if study.metrics & OP_METRICS}
    assert asking == {"emdl-op-breakdown"}
