"""The catalogue of studies is whole: every claim can be asked, and says where it stands written."""

import re
from pathlib import Path

import pytest

from orchestrator.plan.sweep import Sweep, read_sweep
from orchestrator.study.catalogue import HERE, ROWS, Claim, Study, coverage, find_study, studies
from orchestrator.study.evidence import circumstances_of
from orchestrator.study.kinds import EACH, FLEET
from tests.farm.conftest import ROOT
from workloads.fault import BadFile, Refused
from workloads.measure import kind_of

NAMES = {
    *("cambridge-gemm", "cambridge-backprop", "cambridge-copy-share"),
    *("emdl-latency", "emdl-cpu-usage", "emdl-cpuconf", "emdl-thermal", "emdl-energy"),
    *("emdl-memory", "emdl-op-breakdown", "emdl-model-affinity", "emdl-cpu-vs-gpu"),
    *("emdl-library", "tx2-batch", "tx2-utilisation", "tx2-energy", "tx2-memory"),
    *("tx2-feasibility", "tx2-predictability", "tx2-daily"),
}
# what telemetry adds to the figures of a report
TOLD = {"op_share", "op_energy_share", "first_step_ratio", "settled_clock_share", "body_rise_c"}
TOLD |= {"energy_net_per_step_mj"}


def sweeps_of(study: Study, native: bool = False) -> list[Sweep]:
    """The sweeps of a study, without a foreign engine."""
    texts = study.sweeps(native)
    return [read_sweep(text.replace(', "external:engine"', "")) for text in texts]


def test_all_twenty_are_there_and_nothing_else_lies_around() -> None:
    assert NAMES == set(studies())
    for file in HERE.iterdir():
        assert file.name.partition(".")[0] in NAMES, file.name


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_study_can_be_asked(name: str) -> None:
    study = find_study(name)
    plain = sweeps_of(study)
    for sweep in (*plain, *sweeps_of(study, native=True)):
        assert sweep.name.startswith(name), "its runs are found by that name"
        assert sweep.runs_per_phone <= 63
    for claim in study.claims:
        assert len(study.source_of(claim)) > 10, claim.text
        assert len(claim.text) > 8
        ask_is_sound(claim, plain)


def ask_is_sound(claim: Claim, sweeps: list[Sweep]) -> None:
    """A claim asks for a figure that there is, of cells that its sweeps have."""
    ask = claim.ask
    assert ask.kind == "never" or ask.kind in EACH or ask.kind in FLEET
    for metric in filter(None, (ask.metric, ask.over_metric)):
        assert metric in TOLD or kind_of(metric), f"{claim.text}: {metric}"
    if ask.kind == "never" or "external" in (ask.of.get("engine"), ask.at.get("engine")):
        return
    cells = [circumstances_of(cell.case, cell.condition) for s in sweeps for cell in s.cells]
    for wanted in (ask.at | ask.of, ask.at | ask.over):
        seen = [at for at in cells if wanted.items() <= at.items()]
        assert seen, f"{claim.text}: no cell of the sweeps is at {wanted}"
        for axis in set(ask.along.split()) - {"op_kind"}:
            assert len({at[axis] for at in seen}) > 1, (
                f"{claim.text}: there is no {axis} to go along"
            )


def test_every_row_of_the_three_studies_is_covered_and_the_documents_say_by_what() -> None:
    assert set(ROWS) == {row for study in studies().values() for row in study.covers}
    assert [*(f"M{n}" for n in range(1, 13)), *(f"E{n}" for n in range(1, 14))] == list(ROWS)[:25]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert coverage() in text, "copy what orchestrator.study.catalogue.coverage() says"


def test_claims_that_the_twin_was_fitted_to_are_those_of_its_measurements() -> None:
    """A calibration replay is called so: whatever the twin's data hold is marked as fitted."""
    folder = ROOT / "agent" / "virtual" / "twin" / "measured"
    fitted = {float(n) for n in re.findall(r"[\d.]+", _text(folder)) if n.strip(".")}
    for name, least in (("emdl-latency", 8), ("emdl-cpuconf", 6), ("emdl-memory", 8)):
        marked = 0
        for claim in find_study(name).claims:
            if not claim.absolute or claim.value is None:
                continue
            seconds = round(claim.value / 1000, 4)
            if claim.value in fitted or seconds in fitted:
                assert claim.fitted, f"{name}: {claim.text}: the twin was fitted to this"
                marked += 1
        assert marked >= least, name


def _text(folder: Path) -> str:
    return " ".join(file.read_text() for file in sorted(folder.glob("*.toml")))


def test_an_unknown_study_is_one_sentence_with_the_nearest() -> None:
    with pytest.raises(Refused, match="there is no study 'emdl-cpu-conf'; did you mean"):
        find_study("emdl-cpu-conf")


def test_a_study_that_contradicts_itself_is_refused() -> None:
    claim = {"text": "twice", "seen_on": "x", "value": 1.0, "word": "one", "ask": {"kind": "value"}}
    with pytest.raises(ValueError, match="a claim is a value, a range"):
        Claim.model_validate(claim)
    with pytest.raises(ValueError, match="'why' is for what can never be observed"):
        Claim.model_validate(claim | {"word": "", "ask": {"kind": "never"}})
    assert issubclass(BadFile, Refused)
