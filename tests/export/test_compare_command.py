"""`farm compare`: its table, its JSON, its exit codes and its errors."""

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
def lab_with_sweeps(store: Database, tmp_path: Path) -> Path:
    """A lab with two valid sweeps, the second slower by 30 %, and a suspect one."""
    store_runs(store, a_trial_of(10.0, 6, seed=1), "before")
    store_runs(store, a_trial_of(13.0, 6, seed=2), "after")
    store_runs(store, a_trial_of(13.0, 2, validity=Validity.SUSPECT), "doubtful")
    return tmp_path


def compare(folder: Path, *words: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(
        farm, ["compare", *words, "--lab", str(folder)], standalone_mode=False
    )


def test_a_build_that_crashes_more_often_is_a_regression(store: Database, tmp_path: Path) -> None:
    for name, crashed in (("good", 0), ("bad", 8)):
        store_runs(store, a_trial_of(10.0, 14, seed=len(name)), name, crashed=crashed)
    result = compare(tmp_path, "good", "bad", "--fail-on", "failing")
    assert result.return_value == 9
    assert "failed attempts: A 0 of 14, B 8 of 14: B fails more often (p 0.002)" in result.stderr
    result = compare(tmp_path, "bad", "good", "--fail-on", "failing")
    assert (result.return_value or 0, "B fails less often" in result.stderr) == (0, True)


def test_two_sweeps_are_compared_in_one_table(lab_with_sweeps: Path) -> None:
    result = compare(lab_with_sweeps, "before", "after")
    headings, cells = (line.split("\t") for line in result.stdout.splitlines())
    row = dict(zip(headings, cells, strict=True))
    assert (row["VERDICT"], row["RUNS"], row["UNIT"]) == ("slower", "6+6", "ms")
    assert 1.25 < float(row["B/A"]) < 1.35
    assert "source: phone" in result.stderr


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
def test_fail_on_decides_the_exit_code(
    lab_with_sweeps: Path, words: tuple[str, ...], expected: int
) -> None:
    assert (compare(lab_with_sweeps, *words).return_value or 0) == expected


@pytest.mark.parametrize(
    ("words", "code", "text"),
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
        (("before", "after", "--margin", "lots"), 2, "'lots' is not a share"),
        (("before", "after", "--fail-on", "sadness"), 2, "'sadness' is not a verdict"),
        (("before", "after", "--metric", "joy"), 2, "there is no metric 'joy'"),
    ],
)
def test_an_impossible_comparison_is_refused(
    lab_with_sweeps: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    result = compare(lab_with_sweeps, *words)
    assert isinstance(result.exception, FarmError)
    assert text in str(result.exception)
    assert exit_code(result.exception) == code


def test_json_has_rows_intervals_and_sources(lab_with_sweeps: Path) -> None:
    document = json.loads(compare(lab_with_sweeps, "before", "after", "--json").stdout)
    (row,) = document["rows"]
    assert row["low"] < row["ratio"] < row["high"]
    assert row["provenance"]["source"] == "phone"
    assert document["sides"] == ["before", "after"]
