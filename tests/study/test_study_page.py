"""The page of a study: answers, the paper's figures, all claims, the experiment, no script."""

from orchestrator.export.study_page import render_study_page
from orchestrator.study.claim_table import ClaimRow, evaluate_claims
from orchestrator.study.evidence import Observation, StudyEvidence, with_trade_name
from orchestrator.study.experiment import experiment_rows
from orchestrator.study.figure_panels import figure_panels
from orchestrator.study.group_answers import group_answers
from orchestrator.study.study_catalogue import Study, all_studies, find_study
from tests.analysis.builders import EXTRAPOLATED, MEASURED
from tests.study.test_experiment import planned_cells
from workloads.protocol.metrics import Provenance

BYTES_MAX = 1_000_000
PRO = "OnePlus 8 Pro (IN2023)"


def products(made: Provenance = MEASURED) -> StudyEvidence:
    """Return the speed of matrix products on one phone, at all sizes of the paper's figure."""
    observations = []
    for n in range(32, 513, 32):
        for kernel, gflops in (("naive", 15.0), ("tiled_vector", 70.0)):
            at = {"backend": "opencl", "kernel": kernel, "n": n}
            values = tuple(gflops * n / 512 for _ in range(4))
            observations.append(Observation("p", at, "kernel_gflops", values, made))
        for cores in ("all1", "all4"):
            at = {"backend": "cpu", "cores": cores, "n": n}
            observations.append(Observation("p", at, "gflops", (30.0,) * 4, made))
    return StudyEvidence({"p": PRO}, tuple(observations))


def page_of(study: Study, evidence: StudyEvidence, simulated: bool = False) -> str:
    rows = evaluate_claims(study, evidence)
    figures = [(figure, figure_panels(figure, evidence)) for figure in study.figures]
    table = experiment_rows(study.experiment, planned_cells(study))
    return render_study_page(study, rows, figures, table, ["sw-1"], simulated)


def test_the_page_answers_first_and_redraws_the_papers_figure() -> None:
    study = find_study("cambridge-gemm")
    page = page_of(study, products())
    order = ("Claimed:", "Fig. 3", "published: GPU, optimised", "Experiment of the paper")
    found = [page.find(text) for text in order]
    assert found == sorted(found)
    assert found[0] > 0
    assert page.count("<polyline") == 4, "naive, optimised, one core, four cores"
    assert "OnePlus 8 Pro (IN2023)" in page, "the name that the paper uses"
    assert "in steps of 32" in page
    assert "<script" not in page
    assert len(page.encode()) < BYTES_MAX


def test_a_simulated_page_says_so_and_text_of_phones_is_escaped() -> None:
    evidence = StudyEvidence({"p": "<script>x"}, products(EXTRAPOLATED).observations)
    page = page_of(find_study("cambridge-gemm"), evidence, simulated=True)
    assert "they are not measurements of any phone" in page
    assert "<script>x" not in page


def answers(made: Provenance) -> dict[str, str]:
    study = find_study("cambridge-gemm")
    rows: list[ClaimRow] = evaluate_claims(study, products(made))
    return {answer.topic: answer.text for answer in group_answers(study, rows)}


def test_each_group_of_claims_has_one_sentence_about_what_may_be_compared() -> None:
    measured = answers(MEASURED)["G1"]
    assert "Claimed: naive kernel, GPU, n = 512, Adreno 650: 15 GFLOP/s" in measured
    assert f"Seen: 15 GFLOP/s on {PRO}, phone." in measured
    assert "They may be compared, and agree: 1.00 × published." in measured
    assert "because the virtual phone was fitted to the claim" in answers(EXTRAPOLATED)["G1"]
    assert "Seen: nothing" in answers(MEASURED)["G5"]


def test_every_figure_has_lines_or_a_trace_and_titles() -> None:
    figures = [figure for study in all_studies().values() for figure in study.figures]
    assert len(figures) >= 9
    for figure in figures:
        assert all((figure.lines, figure.x_title, figure.y_title)), figure.title
        names = {line.name for line in figure.lines if not line.each}
        free = any(line.each for line in figure.lines)
        assert all(free or point.line in names for point in figure.points), figure.title


def test_a_code_is_shown_with_the_name_it_was_sold_under() -> None:
    assert with_trade_name("OnePlus AC2003") == "OnePlus Nord (AC2003)"
    assert with_trade_name("OnePlus ONEPLUS A6003") == "OnePlus 6 (A6003)"
    assert with_trade_name("Meizu 16T") == "Meizu 16T"
