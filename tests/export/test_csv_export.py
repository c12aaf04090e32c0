"""CSV files that a spreadsheet opens without running anything, and that say what was simulated."""

import csv
import io
import json
from typing import Any

import pytest

from orchestrator.analysis.compare import compare_fleet
from orchestrator.export.cell import text_cell
from orchestrator.export.comparison_csv import write_comparison_csv
from orchestrator.export.csv import file_name, write_csv
from orchestrator.nouns import MeasuredRun
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, measured, phone
from workloads.measure import Standing


def rows_of(runs: list[MeasuredRun], **options: Any) -> list[dict[str, str]]:
    stream = io.StringIO(newline="")
    count = write_csv(runs, stream, **options)
    stream.seek(0)
    rows = list(csv.DictReader(stream))
    assert count == len(rows)
    return rows


def test_a_row_holds_everything_that_is_known_of_a_figure() -> None:
    runs = [measured("px6-01", 12.5, provenance=FITTED, reasons=("a, b", "c"), repeat=1)]
    expected = {
        "sweep": "sw-00000001",
        "trial": runs[0].trial,
        "repeat": "1",
        "attempt": "1",
        "block": "1",
        "position": "1",
        "phone": "px6-01",
        "model": "Model px6-01",
        "soc": "sm8350",
        "host": "bench-1",
        "workload": "mlp-4",
        "parameters": '{"batch_size": 32}',
        "protocol": "cold",
        "cores": "big4",
        "freq": "high",
        "control": "controlled",
        "verdict": "valid",
        "reasons": "a, b; c",
        "metric": "step_ms",
        "value": "12.5",
        "unit": "ms",
        "source": "simulated",
        "model_kind": "fitted",
        "error_rel": "0.1",
        "started_at": "2026-03-01T12:00:00+00:00",
        "ended_at": "2026-03-01T12:00:09+00:00",
    }
    assert [expected] == rows_of(runs)


def test_every_metric_has_a_row_of_its_own() -> None:
    rows = rows_of([measured("a", 1.0, peak_temp_c=40.0, energy_j=3.0)])
    expected = [("energy_j", "J"), ("peak_temp_c", "°C"), ("step_ms", "ms")]
    assert expected == [(row["metric"], row["unit"]) for row in rows]


def test_runs_that_do_not_count_are_written_only_when_asked_for() -> None:
    runs = [measured("a"), measured("b", standing=Standing.VOID), measured("c")]
    assert ["a", "c"] == [row["phone"] for row in rows_of(runs)]
    assert ["valid", "void", "valid"] == [row["verdict"] for row in rows_of(runs, everything=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('=HYPERLINK("http://evil","x")', '\'=HYPERLINK("http://evil","x")'),
        ("+1", "'+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"),  # a tab and a return are dropped, but what they hid is still guarded
        ("\r=1", "'=1"),
        ("\tword", "'word"),
        ("  =1", "'=1"),  # cleaning lays the formula bare
        ("\u202e=1", "'=1"),
        ("Pixel=6", "Pixel=6"),  # a formula begins at the beginning
        ('Mi 9, "global"', 'Mi 9, "global"'),
        ("one\r\ntwo", "one two"),
    ],
)
def test_text_that_could_be_a_formula_is_disarmed_and_all_else_survives(
    text: str, expected: str
) -> None:
    assert expected == text_cell(text)
    rows = rows_of([measured("a", facts=phone("a", model=text))])
    assert expected == rows[0]["model"]


def test_numbers_stay_numbers_even_below_zero() -> None:
    rows = rows_of([measured("a", None, start_temp_c=-3.2)])
    assert rows[0]["value"] == "-3.2"


def test_lines_end_as_the_standard_says() -> None:
    stream = io.StringIO(newline="")
    write_csv([measured("a")], stream)
    lines = stream.getvalue().split("\r\n")
    assert [3, ""] == [len(lines), lines[-1]]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([measured("a")], "comparison.csv"),
        ([measured("a", provenance=HOST)], "comparison.csv"),
        # one simulated number is enough
        ([measured("a"), measured("b", provenance=FITTED)], "comparison.simulated.csv"),
        ([measured("a", provenance=EXTRAPOLATED)], "comparison.simulated.csv"),
    ],
)
def test_a_file_with_a_simulated_number_says_so_in_its_name(
    runs: list[MeasuredRun], expected: str
) -> None:
    assert expected == file_name("comparison", runs)
    assert expected.replace("csv", "html") == file_name("comparison", runs, "html")


def test_a_comparison_names_the_source_of_every_number_and_the_phones_without_one() -> None:
    runs = [measured("fast", 10.0, provenance=FITTED) for _ in range(4)]
    runs += [measured("=slow", 40.0, provenance=FITTED) for _ in range(4)]
    runs += [measured("hot", standing=Standing.VOID)]
    stream = io.StringIO(newline="")
    assert write_comparison_csv(compare_fleet(runs), stream) == 3
    stream.seek(0)
    rows = list(csv.DictReader(stream))
    columns = ("rank", "phone", "n", "median", "ratio", "void", "source", "error_rel", "claim")
    expected = [
        ("1", "fast", "4", "10.0", "1.0", "0", "simulated", "0.1", "simulated ±10%: fastest"),
        ("2", "'=slow", "4", "40.0", "4.0", "0", "simulated", "0.1", "simulated ±10%: slower"),
        ("", "hot", "0", "", "", "1", "", "", "no valid run"),
    ]
    assert expected == [tuple(row[column] for column in columns) for row in rows]
    assert json.loads(rows[0]["parameters"]) == {"batch_size": 32}
    assert [("9.0", "11.0", "bootstrap")] == [
        (row["low"], row["high"], row["interval"]) for row in rows[:1]
    ]
