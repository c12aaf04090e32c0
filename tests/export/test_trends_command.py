"""`farm compare --over-time`: histories over all sweeps of a lab."""

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
    words = ("compare", "--over-time", *words, "--lab", str(folder))
    return CliRunner().invoke(farm, list(words), standalone_mode=False)


@pytest.fixture
def lab_with_history(store: Database, tmp_path: Path) -> Path:
    """A lab in which one phone became slower between two sweeps, and another did not."""
    for name, slow in (("spring", 10.0), ("autumn", 12.0)):
        runs = [*a_trial_of(slow, 6, serial="old"), *a_trial_of(8.0, 6, serial="young")]
        store_runs(store, runs, name)
    return tmp_path


def test_a_phone_that_becomes_slower_is_reported(lab_with_history: Path) -> None:
    result = trends(lab_with_history, "--fail-on", "slower")
    old, young = result.stdout.splitlines()[1:]
    assert "slower: +2" in old
    assert "steady" in young
    assert result.return_value == 9


def test_a_history_covers_all_sweeps(lab_with_history: Path) -> None:
    (history,) = json.loads(trends(lab_with_history, "phone=young", "--json").stdout)
    assert (history["sweeps"], len(history["values"])) == (2, 12)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (
            ("phone=unknown",),
            6,
            "no trial with metrics has phone=unknown; phone is one of old, young",
        ),
        (("spring",), 2, "is not KEY=VALUE"),
        (("--metric", "joy"), 2, "there is no metric 'joy'"),
        (("--metric", "energy_j"), 6, "this lab has no valid run with energy_j yet"),
    ],
)
def test_an_impossible_request_is_refused(
    lab_with_history: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    result = trends(lab_with_history, *words)
    assert isinstance(result.exception, FarmError)
    assert text in str(result.exception)
    assert exit_code(result.exception) == code
