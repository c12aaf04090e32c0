"""`farm sweep show` says every reason once."""

from orchestrator.commands.sweep import failure_lines
from orchestrator.store.sweep_queries import RunNote


def test_a_reason_is_given_once_with_the_number_of_its_runs() -> None:
    notes = [RunNote(f"tr-{index}", 0, f"PH{index % 3}", "needs 2,832 MB") for index in range(33)]
    lines = failure_lines([*notes, RunNote("tr-x", 1, "PH1", "it hung")])
    assert lines == [
        "33 runs on 3 phones: needs 2,832 MB; one is tr-0 repeat 0",
        "tr-x repeat 1 on PH1: it hung",
    ]
