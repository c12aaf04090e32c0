"""CSV exports: formulas are disarmed, and the source of every number is a column."""

import csv
import io
import json

import pytest

from orchestrator.analysis.fleet_ranking import compare_fleet
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.export.escape import text_cell
from orchestrator.export.table import Table
from orchestrator.export.table_schemas import RunColumns, figures_table, ranking_table
from orchestrator.export.table_writers import write_csv
from tests.analysis.builders import FITTED, measured, phone
from workloads.lab.process_identity import software_version
from workloads.protocol.verdict import Reason, ReasonCode, Validity


def read_back(table: Table) -> list[dict[str, str]]:
    """Write a table as CSV and read it with the csv module."""
    stream = io.BytesIO()
    count = write_csv(table, stream)
    rows = list(csv.DictReader(io.StringIO(stream.getvalue().decode(), newline="")))
    assert len(rows) == count
    return rows


def rows_of(runs: list[MeasuredRun]) -> list[dict[str, str]]:
    """Return the exported figures of some runs."""
    return read_back(figures_table(RunColumns(7), runs))


def test_a_row_has_every_column_of_a_figure() -> None:
    reasons = (
        Reason.remark(ReasonCode.COOLING_DEVICE_ACTIVE, name="a, b"),
        Reason.remark(ReasonCode.USB_PORT_SATURATED),
    )
    runs = [measured("px6-01", 12.5, provenance=FITTED, reasons=reasons, repeat=1)]
    expected = {
        "sweep": "sw-00000001",
        "seed": "7",
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
        "backend": "cpu",
        "protocol": "cold",
        "cores": "big4",
        "freq": "high",
        "clock_ghz": "2.4+2.84",
        "gpu_clock_ghz": "",
        "cpus": "",
        "start_max_c": "",
        "control": "controlled",
        "verdict": "valid",
        "reasons": "; ".join(reason.text for reason in reasons),
        "judged_runs": "0",
        "metric": "step_ms",
        "value": "12.5",
        "unit": "ms",
        "source": "simulated",
        "model_kind": "fitted",
        "error_rel": "0.1",
        "grade": "",
        "started_at": "2026-03-01T12:00:00+00:00",
        "ended_at": "2026-03-01T12:00:09+00:00",
        "programs": "",
        "farmhand": software_version(),
    }
    assert rows_of(runs) == [expected]


def test_every_metric_has_its_own_row() -> None:
    rows = rows_of([measured("a", 1.0, peak_temp_c=40.0, energy_j=3.0)])
    expected = [("energy_j", "J"), ("peak_temp_c", "°C"), ("step_ms", "ms")]
    assert [(row["metric"], row["unit"]) for row in rows] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('=HYPERLINK("http://evil","x")', '\'=HYPERLINK("http://evil","x")'),
        ("+1", "'+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"),  # tab and return are removed before the check
        ("\r=1", "'=1"),
        ("\tword", "'word"),
        ("  =1", "'=1"),  # removing the spaces uncovers the formula
        ("\u202e=1", "'=1"),
        ("Pixel=6", "Pixel=6"),  # a formula starts with the sign
        ('Mi 9, "global"', 'Mi 9, "global"'),
        ("one\r\ntwo", "one two"),
    ],
)
def test_formulas_are_disarmed_and_other_text_is_unchanged(text: str, expected: str) -> None:
    assert text_cell(text) == expected
    rows = rows_of([measured("a", facts=phone("a", model=text))])
    assert rows[0]["model"] == expected


def test_negative_numbers_stay_numbers() -> None:
    rows = rows_of([measured("a", None, start_temp_c=-3.2)])
    assert rows[0]["value"] == "-3.2"


def test_lines_end_with_crlf() -> None:
    stream = io.BytesIO()
    write_csv(figures_table(RunColumns(7), [measured("a")]), stream)
    lines = stream.getvalue().split(b"\r\n")
    assert [len(lines), lines[-1]] == [3, b""]


def test_a_ranking_has_the_source_of_every_number_and_phones_without_valid_runs() -> None:
    runs = [measured("fast", 10.0, provenance=FITTED) for _ in range(4)]
    runs += [measured("=slow", 40.0, provenance=FITTED) for _ in range(4)]
    runs += [measured("hot", validity=Validity.VOID)]
    rows = read_back(ranking_table(7, [compare_fleet(runs)]))
    columns = ("rank", "phone", "n", "median", "ratio", "void", "source", "error_rel", "claim")
    expected = [
        ("1", "fast", "4", "10.0", "1.0", "0", "simulated", "0.1", "simulated ±10%: fastest"),
        ("2", "'=slow", "4", "40.0", "4.0", "0", "simulated", "0.1", "simulated ±10%: slower"),
        ("", "hot", "0", "", "", "1", "", "", "no valid run"),
    ]
    assert [tuple(row[column] for column in columns) for row in rows] == expected
    assert json.loads(rows[0]["parameters"]) == {"batch_size": 32}
    ends = [(row["low"][:4], row["high"][:4], row["interval"]) for row in rows[:1]]
    assert ends == [("7.56", "13.2", "confidence")]
