"""Every format of `farm export`, read back with the program or library that uses it."""

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import farm
from orchestrator.commands.exit_codes import exit_code
from orchestrator.export.table import Table, TableBlock, make_columns
from orchestrator.export.table_writers import WRITERS
from orchestrator.store.database import Database
from tests.analysis.builders import EXTRAPOLATED, a_trial_of, endurance, measured, phone
from tests.documents import blocks, commands
from tests.export.telemetry_blob import a_blob
from tests.stored_runs import store_runs
from workloads.protocol.faults import FarmError
from workloads.protocol.verdict import Validity

HOSTILE = '=cmd|"\\input{x}" <b>&_%$#^~ \x1b[2J'


def run(*words: str | Path) -> Result:
    """Run a farm command in this process."""
    return CliRunner().invoke(farm, [str(word) for word in words], standalone_mode=False)


@pytest.fixture
def lab_with_sweep(store: Database, tmp_path: Path) -> Path:
    """A lab with a finished sweep: two phones, two runs per cell, telemetry."""
    runs = [
        *a_trial_of(10.0, 2, serial="fast", energy_per_step_mj=3.0),
        *a_trial_of(
            *(14.0, 2), serial="slow", facts=phone("slow", model=HOSTILE), energy_per_step_mj=4.0
        ),
        endurance("fast", 12.0),
    ]
    blobs = {(each.trial, each.repeat): a_blob() for each in runs}
    store_runs(store, runs, "small", blobs)
    return tmp_path


def exported(folder: Path, *words: str) -> bytes:
    """Return what an export writes to standard output."""
    result = run("export", "small", "--lab", folder, "-o", "-", *words)
    assert result.exception is None, result.exception
    return result.stdout_bytes


def rows_of(folder: Path, *words: str) -> list[dict[str, str]]:
    """Export in CSV and read the rows."""
    text = exported(folder, *words).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    ("table", "rows", "column"),
    [
        ("figures", 9, "value"),
        ("ranking", 5, "median"),
        ("samples", 15, "step_ms"),
        ("readings", 60, "t_s"),
        ("ops", 10, "time_ms"),
        ("outcomes", 5, "state"),
    ],
)
def test_every_table_has_its_rows_and_the_order_of_the_runs(
    lab_with_sweep: Path, table: str, rows: int, column: str
) -> None:
    exported_rows = rows_of(lab_with_sweep, "--table", table)
    assert len(exported_rows) == rows
    assert all(row[column] for row in exported_rows)
    assert {row["seed"] for row in exported_rows} == {"7"}
    if table != "ranking":
        assert {row["block"] for row in exported_rows} == {"0", "1"}
        assert all(row["position"] for row in exported_rows)


def test_json_lines_and_parquet_equal_the_csv(lab_with_sweep: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    rows = rows_of(lab_with_sweep, "--table", "samples")
    lines = [
        json.loads(line)
        for line in exported(lab_with_sweep, "--table", "samples", "--format", "jsonl").splitlines()
    ]
    (tmp_path / "samples.parquet").write_bytes(
        exported(lab_with_sweep, "--table", "samples", "--format", "parquet")
    )
    columnar = parquet.read_table(tmp_path / "samples.parquet").to_pylist()
    assert lines == columnar
    assert [row["step_ms"] for row in rows] == [str(line["step_ms"]) for line in lines]


def test_a_latex_table_is_booktabs_and_has_only_our_commands(lab_with_sweep: Path) -> None:
    text = exported(lab_with_sweep, "--format", "latex").decode()
    assert r"\toprule" in text
    assert r"\bottomrule" in text
    commands = set(re.findall(r"\\([a-z]+)", text))
    assert commands <= {
        *("begin", "end", "centering", "toprule", "midrule", "bottomrule", "caption", "label"),
        *(
            "usepackage",
            "small",
            "addlinespace",
            "textbackslash",
            "textasciitilde",
            "textasciicircum",
            "pm",
            "times",
        ),
    }
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    (separators,) = {len(re.findall(r"(?<!\\)&", row)) for row in rows}
    assert separators == 8


def test_a_hostile_phone_name_does_not_break_a_markdown_table(lab_with_sweep: Path) -> None:
    text = exported(lab_with_sweep, "--format", "md").decode()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {10}
    assert "<b>" not in text
    assert "\x1b" not in text


def test_a_timeline_has_operations_clocks_temperature_and_power(lab_with_sweep: Path) -> None:
    trace = json.loads(exported(lab_with_sweep, "--format", "trace"))
    events: list[dict[str, Any]] = trace["traceEvents"]
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"clock policy4", "temperature thermal_zone0", "power", "busy GPU"}
    slices = [event for event in events if event["ph"] == "X"]
    assert {"fc1.forward", "fc1.backward", "steps 0 to 9"} <= {event["name"] for event in slices}
    # The format requires a phase, a process and a nonnegative time of every event.
    assert all(event["pid"] == 1 and event["ph"] in "XCM" for event in events)
    assert all(event["ts"] >= 0 for event in events if event["ph"] != "M")
    assert all(event["dur"] >= 0 for event in slices)
    forward = next(event for event in slices if event["name"] == "fc1.forward")
    assert (forward["ts"], forward["dur"]) == (0.0, 600.0)
    power = [event["args"]["w"] for event in events if event["name"] == "power"]
    assert power[0] == pytest.approx(4.0)


def test_the_file_name_of_simulated_figures_says_simulated(store: Database, tmp_path: Path) -> None:
    store_runs(store, [measured("a")], "real")
    store_runs(store, [measured("a"), measured("b", provenance=EXTRAPOLATED)], "mixed")
    names = [
        Path(run("export", name, "--lab", tmp_path, "-o", out).stdout.strip()).name
        for name in ("real", "mixed")
        for out in (tmp_path, tmp_path / "own.csv")
    ]
    assert names == ["real.csv", "own.csv", "mixed.simulated.csv", "own.simulated.csv"]


def test_invalid_runs_are_exported_only_on_request(store: Database, tmp_path: Path) -> None:
    store_runs(store, [measured("a"), measured("b", validity=Validity.SUSPECT)], "small")
    assert [row["phone"] for row in rows_of(tmp_path)] == ["a"]
    assert [row["phone"] for row in rows_of(tmp_path, "--include-invalid")] == ["a", "b"]


def test_an_imported_bundle_exports_the_same_bytes(lab_with_sweep: Path, tmp_path: Path) -> None:
    first = exported(lab_with_sweep, "--format", "bundle")
    bundle = tmp_path / "small.bundle.zip"
    bundle.write_bytes(first)
    elsewhere = tmp_path / "elsewhere"
    assert "5 runs, 5 reports" in run("import", bundle, "--lab", elsewhere).stdout
    assert exported(elsewhere, "--format", "bundle") == first
    assert exported(elsewhere, "--table", "ops") == exported(lab_with_sweep, "--table", "ops")
    assert "is already stored" in run("import", bundle, "--lab", elsewhere).stdout
    assert exported(elsewhere, "--format", "bundle") == first
    names = zipfile.ZipFile(bundle).namelist()
    assert {"README.md", "sweep.yaml", "figures.csv", "manifest.json"} <= set(names)


def changed(content: bytes, name: str, new: bytes) -> bytes:
    """Return a bundle with one file replaced."""
    content_ = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(content_, "w") as bundle:
        for member in old.namelist():
            bundle.writestr(member, new if member == name else old.read(member))
    return content_.getvalue()


@pytest.mark.parametrize(
    ("tamper", "text"),
    [
        (lambda content: changed(content, "rows/metric.jsonl", b"{}\n"), "checksum mismatch"),
        (lambda content: changed(content, "sweep.yaml", b"farm: 1\n"), "checksum mismatch"),
        (lambda content: changed(content, "manifest.json", b"{}"), "not a Farmhand bundle"),
        (lambda content: content[: len(content) // 2], "not a Farmhand bundle"),
        (lambda _: b"PK\x03\x04 and nothing", "not a Farmhand bundle"),
    ],
)
def test_a_bundle_that_was_tampered_with_is_refused(
    lab_with_sweep: Path, tmp_path: Path, tamper: Any, text: str
) -> None:
    bundle = tmp_path / "tampered.zip"
    bundle.write_bytes(tamper(exported(lab_with_sweep, "--format", "bundle")))
    result = run("import", bundle, "--lab", tmp_path / "elsewhere")
    assert isinstance(result.exception, FarmError)
    assert text in str(result.exception)
    assert exit_code(result.exception) == 3
    assert not (tmp_path / "elsewhere").exists(), "a lab was created"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("nowhere",), 2, "there is no sweep"),
        (("small", "--format", "trace", "--run", "tr-none"), 6, "no valid run"),
        (("empty",), 7, "has no figures yet"),
        (("empty", "--format", "trace"), 6, "no valid run"),
    ],
)
def test_an_empty_export_is_refused(
    lab_with_sweep: Path, store: Database, words: tuple[str, ...], code: int, text: str
) -> None:
    store_runs(store, [measured("a", validity=Validity.SUSPECT)], "empty")
    result = run("export", *words, "--lab", lab_with_sweep, "-o", lab_with_sweep)
    assert isinstance(result.exception, FarmError), result.exception
    assert text in str(result.exception)
    assert exit_code(result.exception) == code
    assert not [path for path in lab_with_sweep.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("format_", ["csv", "jsonl", "md", "latex"])
def test_values_that_are_not_finite_are_empty_cells(format_: str) -> None:
    table = Table(
        "t", make_columns(a=float, b=float), [TableBlock([float("nan")], [[float("inf")]])]
    )
    stream = io.BytesIO()
    assert WRITERS[format_](table, stream) == 1
    assert not re.search(rb"(?i)\bnan\b|\binf", stream.getvalue())


def test_every_documented_command_about_results_works(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        each
        for serial, ms in (("VM16T0001", 10.0), ("VMI90001", 12.0))
        for each in a_trial_of(ms, 4, serial=serial, provenance=EXTRAPOLATED)
    ]
    store_runs(store, runs, "smoke", {(each.trial, each.repeat): a_blob() for each in runs})
    monkeypatch.chdir(tmp_path)
    documented = [block for block in blocks("sh") if block.setting == "results"]
    assert documented
    for words in (words for block in documented for words in commands(block)):
        lab = () if "--lab" in words else ("--lab", str(tmp_path))
        result = run(*words[1:], *lab)
        assert result.exception is None, f"{words}: {result.exception}"
        assert result.stdout, words
    assert (tmp_path / "smoke.simulated.html").exists()
