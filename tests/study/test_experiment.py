"""The experiment of each paper is held against the plans of its study, and against stored runs."""

import pytest

from orchestrator.study.experiment import (
    Experiment,
    PlannedCell,
    experiment_rows,
    unexplained,
)
from orchestrator.study.study_catalogue import Study, all_studies
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.agent.jobs import a_job
from workloads.catalogue import bind
from workloads.protocol.condition import Condition


def planned_cells(study: Study) -> list[PlannedCell]:
    """Return the cells of the sweeps that a study runs on phones."""
    texts = [text.replace(', "external:engine"', "") for text in study.sweeps()]
    return [
        PlannedCell(cell.case, cell.condition, sweep.policy.repeat)
        for sweep in map(read_sweep, texts)
        for cell in sweep.cells
    ]


@pytest.mark.parametrize("name", sorted(all_studies()))
def test_a_study_plans_the_experiment_of_its_paper_or_says_why_not(name: str) -> None:
    study = all_studies()[name]
    assert name == "sustained-minutes" or study.experiment != Experiment(), "it states something"
    assert unexplained(study.experiment, planned_cells(study)) == set()


@pytest.mark.parametrize("name", sorted(all_studies()))
def test_every_run_of_a_study_samples_as_often_as_its_sweep_asks(name: str) -> None:
    for cell in planned_cells(all_studies()[name]):
        asked = cell.condition.sample_hz
        if asked is not None:
            assert 1000 / cell.condition.sample_period_ms == pytest.approx(asked, rel=0.01)


def cell(image_size: int = 32, repeats: int = 3, **condition: object) -> PlannedCell:
    case = bind("resnet50", {"image_size": image_size, "batch_size": 4})
    return PlannedCell(case, Condition.model_validate(condition), repeats)


def test_a_deviation_needs_a_reason_and_a_reason_a_deviation() -> None:
    paper = Experiment(image_size=(32,), readings_per_s=(200,), backend=("cpu",))
    same = cell(sample_hz=200, steps_min=8)
    assert unexplained(paper, [same]) == set()
    assert unexplained(paper, [cell(224, sample_hz=200)]) == {"image_size"}
    assert unexplained(paper, [same, cell(sample_hz=50)]) == {"readings_per_s"}, (
        "the slowest counts"
    )
    explained = paper.model_copy(update={"deviations": {"image_size": "larger images"}})
    assert unexplained(explained, [cell(224, sample_hz=200)]) == set()
    assert unexplained(explained, [same]) == {"image_size"}, "nothing deviates"


def test_the_table_shows_both_sides_and_the_rate_that_was_measured() -> None:
    paper = Experiment(image_size=(32,), readings_per_s=(100,))
    rows = {row.name: row for row in experiment_rows(paper, [cell(sample_hz=100)], [98.0, 100.0])}
    assert rows["image size"][:3] == ("image size", "32", "32")
    assert rows["readings per second"].here == "100 (measured: 98 to 100)"
    assert (rows["batch size"].paper, rows["batch size"].here) == ("not stated", "4")


def test_the_launch_of_a_run_uses_the_rate_of_its_plan() -> None:
    job = a_job("phone", workload="resnet50", sample_hz=200, steps_min=8)
    assert job.condition.sample_period_ms == 5
