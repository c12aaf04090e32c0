"""`farm trends`, through all sweeps of a lab."""

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


def trends(folder: Path, *words: str) -> Result:
    """Run the command in this process."""
    words = ("trends", *words, "--lab", str(folder))
    return CliRunner().invoke(farm, list(words), standalone_mode=False)


@pytest.fixture
def aged(store: Database, tmp_path: Path) -> Path:
    """A lab in which one phone became slower between two sweeps, and another did not."""
    for name, slow in (("spring", 10.0), ("autumn", 12.0)):
        runs = [*a_trial_of(slow, 6, serial="old"), *a_trial_of(8.0, 6, serial="young")]
        store_runs(store, runs, name)
    return tmp_path


def test_a_phone_that_ages_is_seen(aged: Path) -> None:
    found = trends(aged, "--fail-on", "slower")
    old, young = found.stdout.splitlines()[1:]
    assert "slower: +2" in old
    assert "steady" in young
    assert found.return_value == 9


def test_a_history_goes_through_all_sweeps(aged: Path) -> None:
    (found,) = json.loads(trends(aged, "phone=young", "--json").stdout)
    assert (found["sweeps"], len(found["values"])) == (2, 12)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ("phone=nobody",),
            6,
            "no trial with metrics has phone=nobody; phone is one of old, young",
        ),
        (("spring",), 2, "is not KEY=VALUE"),
        (("--metric", "joy"), 2, "there is no metric 'joy'"),
        (("--metric", "energy_j"), 6, "there is no valid run"),
    ],
)
def test_a_question_without_an_answer_is_refused_in_a_sentence(
    aged: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    found = trends(aged, *words)
    assert isinstance(found.exception, FarmError)
    assert sentence in str(found.exception)
    assert code == exit_code(found.exception)
