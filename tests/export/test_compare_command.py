"""`farm compare`, as somebody in a terminal or a script meets it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import farm
from orchestrator.commands.exit_codes import exit_code
from orchestrator.store.database import Database
from tests.analysis.builders import a_trial_of
from tests.stored_runs import store_runs
from workloads.protocol.faults import FarmError
from workloads.protocol.verdict import Validity


@pytest.fixture
def lab_of_two(store: Database, tmp_path: Path) -> Path:
    """A lab with two sweeps, of which the second is slower by a third."""
    store_runs(store, a_trial_of(10.0, 6, seed=1), "before")
    store_runs(store, a_trial_of(13.0, 6, seed=2), "after")
    store_runs(store, a_trial_of(13.0, 2, validity=Validity.SUSPECT), "doubtful")
    return tmp_path


def compare(folder: Path, *words: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(
        farm, ["compare", *words, "--lab", str(folder)], standalone_mode=False
    )


def test_two_sweeps_are_compared_in_one_table(lab_of_two: Path) -> None:
    found = compare(lab_of_two, "before", "after")
    headings, row = (line.split("\t") for line in found.stdout.splitlines())
    said = dict(zip(headings, row, strict=True))
    assert (said["VERDICT"], said["RUNS"], said["UNIT"]) == ("slower", "6+6", "ms")
    assert 1.25 < float(said["B/A"]) < 1.35
    assert "source: phone" in found.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("before", "after"), 0),
        (("before", "after", "--fail-on", "slower"), 9),
        (("before", "after", "--fail-on", "slower:50%"), 0),
        (("after", "before", "--fail-on", "slower"), 0),
        (("before", "--split-half"), 0),
    ],
)
def test_the_exit_code_serves_a_script(
    lab_of_two: Path, words: tuple[str, ...], expected: int
) -> None:
    assert (compare(lab_of_two, *words).return_value or 0) == expected


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("before", "nowhere"), 2, "there is no sweep 'nowhere'"),
        (
            ("before", "after:phone=none"),
            6,
            "no trial with metrics has phone=none; phone is one of",
        ),
        (("before", "doubtful"), 7, "nothing can be compared: 2 suspect runs"),
        (("before",), 2, "compare takes two sides"),
        (("before", "before"), 2, "both sides are the same"),
        (("freq=high", "freq=low"), 2, "neither side names a sweep"),
        (("before", "after", "--margin", "lots"), 2, "'lots' is no share"),
        (("before", "after", "--fail-on", "sadness"), 2, "--fail-on knows no 'sadness'"),
        (("before", "after", "--metric", "joy"), 2, "there is no metric 'joy'"),
    ],
)
def test_a_question_without_an_answer_is_refused_in_a_sentence(
    lab_of_two: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    found = compare(lab_of_two, *words)
    assert isinstance(found.exception, FarmError)
    assert sentence in str(found.exception)
    assert exit_code(found.exception) == code


def test_programs_get_json_with_everything_in_it(lab_of_two: Path) -> None:
    document = json.loads(compare(lab_of_two, "before", "after", "--json").stdout)
    (row,) = document["rows"]
    assert row["low"] < row["ratio"] < row["high"]
    assert row["provenance"]["source"] == "phone"
    assert document["sides"] == ["before", "after"]
