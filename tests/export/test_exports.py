"""Every format of `farm export`, read back with the program or library that uses it."""

import csv
import io
import json
import os
import pwd
import re
import struct
import sys
import textwrap
import zipfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from markupsafe import escape

from orchestrator.cli import farm
from orchestrator.commands.exit_codes import exit_code
from orchestrator.export.bundle_file import READ_BYTES_MAX, BundleContents, write_bundle
from orchestrator.export.formats import TABLE_FORMATS, TableFormat
from orchestrator.export.table import Table, TableBlock, make_columns
from orchestrator.store.database import Database
from tests.analysis.builders import EXTRAPOLATED, a_trial_of, endurance, measured, phone
from tests.documents import blocks, commands
from tests.export.telemetry_blob import ZONE, a_blob
from tests.stored_runs import store_runs
from workloads.protocol.faults import FarmError
from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.verdict import Reason, ReasonCode, Validity

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "your-own-export.md"
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
    written = parquet.read_table(tmp_path / "samples.parquet")
    assert (written.schema.metadata or {})[b"farmhand"] == version("farmhand").encode()
    columnar = written.to_pylist()
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
    columns = text.partition("tabular}{")[2].partition("}")[0]
    assert separators == len(columns) - 1
    assert "step, ms" in text or "cold, ms" in text, "units are in the headings"
    assert "step_ms" not in text


def test_a_hostile_phone_name_does_not_break_a_markdown_table(lab_with_sweep: Path) -> None:
    text = exported(lab_with_sweep, "--format", "md").decode()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
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
    assert names == ["real.csv", "own.csv", "mixed.simulated.csv", "own.csv"]


def test_invalid_runs_are_exported_only_on_request(store: Database, tmp_path: Path) -> None:
    store_runs(store, [measured("a"), measured("b", validity=Validity.SUSPECT)], "small")
    assert [row["phone"] for row in rows_of(tmp_path)] == ["a"]
    assert [row["phone"] for row in rows_of(tmp_path, "--include-invalid")] == ["a", "b"]


def test_runs_that_do_not_count_are_counted_wherever_a_sweep_is_shown(
    store: Database, tmp_path: Path
) -> None:
    warm = Reason.suspect(ReasonCode.BODY_WARMED, rise_c=4.0)
    slept = Reason.void(ReasonCode.PHONE_SLEPT, seconds=2.0)
    runs = [
        *a_trial_of(10.0, 2, serial="a"),
        *a_trial_of(11.0, 4, serial="b", validity=Validity.SUSPECT, reasons=(warm,)),
        *a_trial_of(12.0, 1, serial="c", validity=Validity.VOID, reasons=(slept,)),
    ]
    store_runs(store, runs, "small")
    text = "4 suspect and 3 void runs do not count; most often: "  # a void run is tried three times
    shown = run("sweep", "show", "small", "--lab", tmp_path)
    assert text + warm.text in shown.output
    medians = shown.output.partition("PHONE\tCORES")[0]
    cells = {line.split("\t")[0]: line.split("\t")[1:] for line in medians.splitlines()}
    assert (cells["Model b"], cells["Model c"]) == (["4 suspect"], ["3 void"])
    answer = json.loads(run("sweep", "show", "small", "--lab", tmp_path, "--json").output)
    assert [figure["phone"] for figure in answer["figures"]] == ["a", "a"]
    (listed,) = json.loads(run("sweep", "list", "--lab", tmp_path, "--json").output)
    assert listed["left_out"] == {
        "suspect": 4,
        "void": 3,
        "reason": "body_warmed",
        "reason_text": warm.text,
    }
    assert text in run("export", "small", "--lab", tmp_path, "-o", "-").stderr
    incomplete = "Incomplete: 6 of 7 runs done, 1 failed, 0 left."
    assert f"{incomplete} {text}" in exported(tmp_path, "--format", "md").decode()
    assert run("report", "small", "--lab", tmp_path, "-o", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    left_out = page.partition('<section id="left-out">')[2].partition("</section>")[0]
    assert all(part in left_out for part in ("(8)", ">suspect<", ">void<", str(escape(warm.text))))


def test_a_trial_is_drawn_with_the_moments_of_its_reasons(store: Database, tmp_path: Path) -> None:
    gap = Reason.suspect(ReasonCode.SAMPLING_GAP, gap_s=1.2, at_s=1.0)
    facts = phone("a", cpu_zones=(ThermalZone(path=ZONE, type="cpu", scale=0.001),))
    suspect = measured("a", facts=facts, validity=Validity.SUSPECT, reasons=(gap,))
    runs = [suspect, measured("a", facts=facts, repeat=1), measured("a", facts=facts, repeat=2)]
    store_runs(store, runs, "small", {(each.trial, each.repeat): a_blob() for each in runs})
    (trial,) = json.loads(run("trial", "list", "small", "--lab", tmp_path, "--json").output)
    lines = run("trial", "show", trial["id"], "--lab", tmp_path).output.splitlines()
    assert f"    suspect (1): {gap.text} [1.0 s after the start]" in lines
    assert sum(line.startswith("    step ") for line in lines) == 2, "the suspect and the newest"
    (heat, _) = (line for line in lines if line.startswith("    heat "))
    assert heat.endswith("  30 to 31 °C")
    assert lines[-1].startswith("    sampling_gap: The phone was too busy")
    (marks,) = (line for line in lines if line.endswith("(1) at 1.0 s"))
    axis = next(line for line in lines if line.strip().startswith("0 s"))
    assert marks.index("^") == axis.index("0 s") + int(60 / 2.02)


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
    files = zipfile.ZipFile(bundle)
    assert {"README.md", "sweep.yaml", "figures.csv", "manifest.json"} <= set(files.namelist())
    assert b"Only those whose `verdict` is `valid` count" in files.read("README.md")


def changed(content: bytes, name: str, new: bytes) -> bytes:
    """Return a bundle with one file replaced."""
    content_ = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(content_, "w") as bundle:
        for member in old.namelist():
            bundle.writestr(member, new if member == name else old.read(member))
    return content_.getvalue()


def a_bomb(compression: int, size: int) -> bytes:
    """Return a bundle with a file of zeros."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as bundle:
        bundle.writestr("zeros", bytes(size))
        bundle.writestr("manifest.json", json.dumps({"format": 1, "files": {"zeros": {}}}))
    return stream.getvalue()


def a_long_list_of_files() -> bytes:
    """Return the end of a zip whose list of files is longer than any bundle's."""
    size = READ_BYTES_MAX + 2**20
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 9, 9, size, 0, 0)
    return bytes(size + 2**20) + end


@pytest.mark.parametrize(
    ("tamper", "text"),
    [
        (lambda content: changed(content, "rows/report.jsonl", b"{}\n"), "checksum mismatch"),
        (lambda content: changed(content, "sweep.yaml", b"farm: 1\n"), "checksum mismatch"),
        (lambda content: changed(content, "manifest.json", b"{}"), "not a Farmhand bundle"),
        (lambda content: content[: len(content) // 2], "not a Farmhand bundle"),
        (lambda _: b"PK\x03\x04 and nothing", "not a Farmhand bundle"),
        (lambda _: a_bomb(zipfile.ZIP_DEFLATED, 100 * 2**20), "too large when unpacked"),
        (lambda _: a_bomb(zipfile.ZIP_LZMA, 2**20), "another compression"),
        (lambda _: a_long_list_of_files(), "not a Farmhand bundle"),
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


def rewritten(content: bytes, part: str, change: Any) -> bytes:
    """Return a bundle with rows changed, and with the digests of what it has now."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    rows = [json.loads(line) for line in files[f"rows/{part}.jsonl"].splitlines()]
    change(rows)
    files[f"rows/{part}.jsonl"] = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    manifest = json.loads(files.pop("manifest.json"))
    del manifest["files"]
    stream = io.BytesIO()
    lines = {name: partial(list, [data]) for name, data in files.items()}
    write_bundle(BundleContents(manifest, lines), stream)
    return stream.getvalue()


def of_first(**values: Any) -> Any:
    """Change the first row."""
    return lambda rows: rows[0].update(values)


def forged_payload(rows: list[dict[str, Any]]) -> None:
    """Give the first report a faster step time, and another run."""
    payload = json.loads(rows[0]["payload"])
    payload["run"]["repeat"] = 99
    rows[0]["payload"] = json.dumps(payload)


HOSTILE_ROWS = [
    ("sweep", of_first(policy=[1]), "part 'sweep' has a row that is not valid"),
    ("sweep", of_first(policy={"priority": "high"}), "priority"),
    ("sweep", of_first(id="sw-00000000"), "its id is not that of the manifest"),
    ("sweep", of_first(state="running"), "running"),
    ("sweep", of_first(priority=True), "priority is not of its type"),
    ("sweep", of_first(seed=2**70), "seed is not of its type"),
    ("sweep", of_first(created_at="2026-01-01T00:00:00"), "without its zone"),
    ("sweep", of_first(source="a\0b"), "source is not of its type"),
    ("sweep", of_first(source="\ud800"), "not a row"),
    ("sweep", lambda rows: rows.append({**rows[0]}), "2 sweeps instead of one"),
    ("sweep", lambda rows: rows.clear(), "not in the bundle|0 sweeps"),
    ("phone", of_first(host="../x"), "host"),
    ("phone", of_first(facts=[[[]]]), "facts"),
    ("phone", of_first(serial="other"), "those of another phone"),
    ("trial", of_first(sweep="sw-00000001"), "not in the bundle"),
    ("trial", of_first(phone="nobody"), "not in the bundle"),
    ("trial", of_first(case_digest="0" * 64), "digests are wrong"),
    ("trial", of_first(case={}), "part 'trial'"),
    ("trial", of_first(case={"workload": "mlp-4", "parameters": {}}), "not have its workload"),
    ("trial", of_first(case={"workload": "nothing", "parameters": {}}), "not have its workload"),
    ("run", of_first(trial="tr-0000000000000000"), "not in the bundle"),
    ("run", of_first(state="queued"), "unfinished"),
    ("run", of_first(tries=[1]), "its tries"),
    ("run", of_first(block=1e400), "not a row"),
    ("report", of_first(status="accepted", payload="{}"), "part 'report'"),
    ("report", of_first(payload="[" * 100_000), "part 'report'"),
    ("report", of_first(validity="excellent"), "another validity"),
    ("report", of_first(started_at_s=1.0), "another started_at_s"),
    ("report", forged_payload, "not in the bundle"),
    ("report", lambda rows: rows.extend([{**row} for row in rows]), "accepted twice"),
    ("chunk", of_first(digest="f" * 64), "not in the bundle"),
    ("chunk", of_first(part=-1), "its number"),
    ("chunk", of_first(data="%%%"), "part 'chunk'"),
]


def test_bundles_with_foreign_or_senseless_rows_are_refused(
    lab_with_sweep: Path, tmp_path: Path
) -> None:
    bundle, elsewhere = tmp_path / "hostile.zip", tmp_path / "elsewhere"
    content = exported(lab_with_sweep, "--format", "bundle")
    for part, change, text in HOSTILE_ROWS:
        bundle.write_bytes(rewritten(content, part, change))
        result = run("import", bundle, "--lab", elsewhere)
        assert isinstance(result.exception, FarmError), (part, text, result.exception)
        assert exit_code(result.exception) == 3
        assert re.search(text, str(result.exception)), (part, text, result.exception)
        assert "\n" not in str(result.exception)
    assert json.loads(run("sweep", "list", "--lab", elsewhere, "--json").stdout) == []


def test_a_bundle_cannot_take_a_trial_of_another_sweep(
    lab_with_sweep: Path, store: Database, tmp_path: Path
) -> None:
    content = exported(lab_with_sweep, "--format", "bundle")

    def rename(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["id" if "seed" in row else "sweep"] = "sw-0badc0de"

    for part in ("sweep", "trial", "run"):
        content = rewritten(content, part, rename)
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        manifest = json.loads(old.read("manifest.json")) | {"sweep": "sw-0badc0de"}
    bundle = tmp_path / "stolen.zip"
    bundle.write_bytes(changed(content, "manifest.json", json.dumps(manifest).encode()))
    before = run("sweep", "list", "--lab", lab_with_sweep, "--json").stdout
    result = run("import", bundle, "--lab", lab_with_sweep)
    assert "belongs to another sweep here" in str(result.exception)
    assert run("sweep", "list", "--lab", lab_with_sweep, "--json").stdout == before


def test_imports_and_removals_are_recorded(lab_with_sweep: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "small.zip"
    bundle.write_bytes(exported(lab_with_sweep, "--format", "bundle"))
    elsewhere = tmp_path / "elsewhere"
    run("import", bundle, "--lab", elsewhere)
    removed = run("sweep", "remove", "small", "--lab", elsewhere)
    assert "removed with 5 runs and 5 reports" in removed.stdout
    run("import", bundle, "--lab", elsewhere)
    assert exported(elsewhere, "--format", "bundle") == bundle.read_bytes()
    entries = json.loads(run("lab", "audit", "--json", "--lab", elsewhere).stdout)
    assert [entry["action"] for entry in entries] == ["import", "remove", "import"]
    me = pwd.getpwuid(os.getuid()).pw_name
    assert {entry["actor"] for entry in entries} == {me}
    assert entries[0]["undo"] == f"farm sweep remove {entries[0]['target']}"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("nowhere",), 2, "there is no sweep"),
        (("small", "--format", "trace", "--run", "tr-none"), 6, "no valid run"),
        (("empty",), 7, "'--include-invalid' exports all runs"),
        (("empty", "--table", "samples"), 7, "has no samples yet"),
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
        "t", make_columns("a:float b:float"), [TableBlock([float("nan")], [[float("inf")]])]
    )
    stream = io.BytesIO()
    assert TABLE_FORMATS[format_].write(table, stream) == 1
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
    assert (tmp_path / "smoke.html").exists()


def test_the_documented_format_of_ones_own_works(tmp_path: Path) -> None:
    code = PAGE.read_text().split("   ```python\n", 1)[1].split("   ```\n", 1)[0]
    (tmp_path / "gnuplot_format.py").write_text(textwrap.dedent(code))
    sys.path.insert(0, str(tmp_path))
    try:
        own = TableFormat("dat", "gnuplot_format")
        stream = io.BytesIO()
        columns = make_columns("phone value:float")
        table = Table("x", columns, [TableBlock(["a b"], [[1.5], [None]])])
        assert own.write(table, stream) == 2
        assert stream.getvalue() == b"# phone value\na_b 1.5\na_b -\n\n\n"
    finally:
        sys.path.remove(str(tmp_path))
