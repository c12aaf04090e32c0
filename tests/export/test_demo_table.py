"""The table of `farm demo`: what it marks as best and as chosen, and how its sweep ended."""

from datetime import UTC, datetime
from typing import Any

import pytest

from docs.demo_table import demo_hook, demo_table
from orchestrator.analysis.findings import phone_figures, round_of
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.app.export_results import incomplete_text
from orchestrator.commands.demo import end_text, host_text, summary_rows
from orchestrator.planning.states import RunState
from orchestrator.store.sweep_queries import SweepSummary
from tests.analysis.builders import endurance, measured
from workloads.protocol.verdict import Reason, ReasonCode, Validity

PHONES = ("a", "b", "c", "d")
MODELS = {phone: f"Model {phone}" for phone in PHONES}
CASE: dict[str, Any] = {"parameters": {"batch_size": 256}}


def cold(phone: str, **changes: Any) -> MeasuredRun:
    return measured(phone, 10.0 + PHONES.index(phone), **CASE, **changes)


def hot(phone: str, **changes: Any) -> MeasuredRun:
    return endurance(phone, 20.0 + PHONES.index(phone), **CASE, **changes)


def table(*runs: MeasuredRun) -> dict[str, tuple[str, ...]]:
    """Return the rows by model, marked by the decision of the printed sentence."""
    chosen = [one.phone for one in round_of(phone_figures(runs))]
    return {row[0]: row[1:] for row in summary_rows(runs, MODELS, chosen)}


def test_the_best_of_all_phones_is_marked_and_three_are_chosen() -> None:
    rows = table(*map(cold, PHONES), *map(hot, PHONES))
    assert rows["Model a"] == ("10.0 *", "20.0 *", "-", "-", "-", "chosen")
    assert [row[-1] for row in rows.values()] == ["chosen"] * 3 + [""]


def test_every_phone_has_a_row_although_nothing_was_measured() -> None:
    assert table() == {model: (*["-"] * 5, "") for model in MODELS.values()}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_best_before_all_phones_were_measured(count: int) -> None:
    rows = table(*map(cold, PHONES[:count]), *map(hot, PHONES[:count]))
    assert not any("*" in cell for row in rows.values() for cell in row)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_phones_are_chosen_only_if_all_were_measured_hot(count: int) -> None:
    rows = table(*map(cold, PHONES), *map(hot, PHONES[:count]))
    assert any(row[-1] for row in rows.values()) == (count == len(PHONES))


PRINTED = f"""
SIMULATED: by models
{"PHONE"}\tCPU COLD\tCPU AFTER 10 MIN
a\t1.00 *\t1.90
b\t2.00\t2.90 *
c\t2.01\t3.10
d\t2.04\t3.48

- A sentence.

MEASURED: this computer
"""


def test_the_readme_shows_table_sentences_and_the_phones_that_tie() -> None:
    shown = demo_table(PRINTED)
    assert shown.startswith(
        "SIMULATED: by models.\n\n| PHONE | CPU COLD | CPU AFTER 10 MIN |\n| ---"
    )
    assert shown.endswith("| d | 2.04 | 3.48 |\n\n- A sentence.")
    assert demo_hook(PRINTED) == (
        "Three phones that are within 2 % of each other in a ten-second run are **20 % apart "
        "after ten minutes** (simulated)."
    )
    with pytest.raises(LookupError, match="no three phones"):
        demo_hook(PRINTED.replace("2.01", "2.50"))


def test_the_line_about_this_computer_has_its_verdict() -> None:
    busy = Reason.suspect(ReasonCode.OWN_CORES_SHARED, busy_pct=70.0, limit_pct=4.0)
    good, bad = measured("n", 16.1), measured("n", 16.1, validity=Validity.SUSPECT, reasons=(busy,))
    assert host_text([good], 2).endswith(
        "16.1 ms per step on 2 cores (source: host). Verdict: valid."
    )
    assert host_text([bad], 1).endswith(f"1 core (source: host). Verdict: suspect: {busy.text}.")
    assert host_text([], 1) == "Not measured on this computer: its run has no result."


def test_a_run_that_does_not_count_gives_no_value() -> None:
    rows = table(*map(cold, PHONES[1:]), cold("a", validity=Validity.SUSPECT))
    assert rows["Model a"][0] == "-"


@pytest.mark.parametrize(
    ("runs", "text", "missing"),
    [
        ({RunState.DONE: 60}, "all runs have ended", 0),
        ({RunState.DONE: 50, RunState.SKIPPED: 10}, "all runs have ended", 0),
        ({RunState.DONE: 58, RunState.FAILED: 1, RunState.BLOCKED: 1}, "all runs have ended", 2),
        ({RunState.DONE: 10, RunState.FAILED: 1, RunState.QUEUED: 49}, "left at 11 of 60 runs", 50),
        ({RunState.LEASED: 6, RunState.QUEUED: 54}, "left at 0 of 60 runs", 60),
        ({RunState.DONE: 11, RunState.CANCELLED: 49}, "cancelled at 11 of 60 runs", 49),
    ],
)
def test_the_end_of_the_sweep_is_stated(runs: dict[RunState, int], text: str, missing: int) -> None:
    summary = SweepSummary("sw-1", "demo", datetime(2026, 3, 1, tzinfo=UTC), 30, runs)
    assert (end_text(summary), summary.missing) == (text, missing)
    assert bool(incomplete_text(summary)) == bool(missing)
