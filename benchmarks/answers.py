"""Cost of comparison, report and export of large sweeps, compared with pandas on the same store.

.venv/bin/python -m benchmarks.answers [--runs 100000] [--samples 1000000] [--pandas FOLDER]

Every contender runs in its own process, so that its memory can be measured; they take turns. pandas
does the obvious: read_sql, groupby, merge, a bootstrap of each pair; a DataFrame of all samples and
to_csv. FOLDER is that of `pip install --target FOLDER pandas`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PHONES, RUNS_PER_TRIAL, WINDOWS = 10, 10, 4000
BEFORE, AFTER, LONG, PAGE = "sw-before00", "sw-after000", "sw-long0000", "sw-page0000"


def main() -> None:
    """Create a lab, run every contender, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--page", type=int, default=5_000, help="runs of the report")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pandas", default="", help="folder with pandas; without it, only ours")
    parser.add_argument("--ask", default="", help=argparse.SUPPRESS)
    parser.add_argument("--lab", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        run_contender(options.ask, options.lab)
        return
    with tempfile.TemporaryDirectory(prefix="farm-answers-") as folder:
        make_lab(Path(folder), options.runs, options.samples, options.page)
        names = [name for name in CONTENDERS if options.pandas or not name.startswith("pandas")]
        results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name in names:
                results[name].append(measure_contender(name, Path(folder), options.pandas))
    load = os.getloadavg()[0]
    print(f"{options.runs:,} runs, {options.samples:,} samples, a page of {options.page:,} runs")
    print(f"load {load:.1f}; best of {options.rounds}")
    print(f"{'what':30} {'seconds':>8} {'processor s':>12} {'MB':>6}")
    for name, measurements in results.items():
        best = min(measurements, key=lambda each: each["seconds"])
        print(f"{name:30} {best['seconds']:8.2f} {best['busy']:12.2f} {best['mb']:6.0f}")


def measure_contender(name: str, lab: Path, pandas: str) -> dict[str, float]:
    """Run a contender in its own process and return what it measured."""
    command = [sys.executable, "-m", "benchmarks.answers", "--ask", name, "--lab", str(lab)]
    path = os.pathsep.join(filter(None, (str(ROOT), pandas, os.environ.get("PYTHONPATH", ""))))
    result = subprocess.run(
        command, check=True, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    measurements: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return measurements


def run_contender(name: str, lab: Path) -> None:
    """Run a contender, after its libraries are loaded, and print its cost."""
    answer = CONTENDERS[name]
    prepare(name)
    started, cpu_started = time.perf_counter(), time.process_time()
    answer(lab)
    seconds = time.perf_counter() - started
    print(
        json.dumps({"seconds": seconds, "busy": time.process_time() - cpu_started, "mb": peak_mb()})
    )


def peak_mb() -> float:
    """Return the peak memory of this process (getrusage includes that of its parent)."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024


def prepare(name: str) -> None:
    """Import the libraries of a contender, which is not part of its time."""
    if name.startswith("pandas"):
        import pandas  # noqa: F401
    else:
        import orchestrator.analysis.ab_comparison
        import orchestrator.export.report.page
        import orchestrator.store.metric_rows  # noqa: F401


def compare_ours(lab: Path) -> None:
    """Compare two sweeps per cell, with intervals and verdicts."""
    from orchestrator.analysis.ab_comparison import compare_sides
    from orchestrator.analysis.side_filter import parse_side
    from orchestrator.analysis.trial_pairs import pair_trials
    from orchestrator.analysis.trial_series import group_by_trial
    from orchestrator.store.metric_rows import metric_values

    db = database(lab)
    base, candidate = (
        group_by_trial(metric_values(db, "step_ms", sweep)) for sweep in (BEFORE, AFTER)
    )
    measurements = compare_sides(
        pair_trials(base, candidate, (parse_side(BEFORE), parse_side(AFTER)))
    )
    assert measurements.rows


def compare_pandas(lab: Path) -> None:
    """Compute the same ratios with intervals: read_sql, groupby, merge, a bootstrap per pair."""
    import sqlite3

    import pandas as pd

    connection = sqlite3.connect(lab / "farm.db")
    frames = [
        pd.read_sql(
            "SELECT t.phone, t.case_digest, t.condition_digest, m.value FROM metric_value m "
            "JOIN run r ON r.id = m.run JOIN trial t ON t.id = r.trial "
            "JOIN metric_name n ON n.id = m.name WHERE n.name = 'step_ms' AND t.sweep = ?",
            connection,
            params=(sweep,),
        )
        for sweep in (BEFORE, AFTER)
    ]
    keys = ["phone", "case_digest", "condition_digest"]
    grouped = [
        frame.groupby(keys)["value"].apply(np.array).rename(side)
        for side, frame in zip("ab", frames, strict=True)
    ]
    pairs = pd.merge(*grouped, left_index=True, right_index=True)
    rng = np.random.default_rng(0)

    def interval(row: Any) -> Any:
        sides = (rng.choice(side, (2000, len(side))) for side in (row["a"], row["b"]))
        a, b = (np.median(side, axis=1) for side in sides)
        return np.quantile(b / a, [0.025, 0.975])

    assert len(pairs.apply(interval, axis=1))


def report_ours(lab: Path) -> None:
    """Write the report page of a sweep."""
    from orchestrator.app.export_results import page_of_sweep
    from orchestrator.store.sweep_queries import find_sweep

    db = database(lab)
    (lab / "page.html").write_text(page_of_sweep(db, find_sweep(db, PAGE)))


def csv_ours(lab: Path) -> None:
    """Write all samples of a sweep as CSV, streamed."""
    from orchestrator.export.table_schemas import RunColumns, samples_table
    from orchestrator.export.table_writers import write_csv
    from orchestrator.store.results import iterate_measured_runs, telemetry_blob
    from workloads.protocol.telemetry import read_telemetry

    db = database(lab)
    runs = (
        (run, read_telemetry(telemetry_blob(db, run.telemetry or "") or b""))
        for run in iterate_measured_runs(db, LONG)
    )
    with (lab / "ours.csv").open("wb") as stream:
        write_csv(samples_table(RunColumns(7), runs), stream)


def csv_pandas(lab: Path) -> None:
    """Write the same columns: every blob into one DataFrame, then to_csv."""
    import sqlite3

    import pandas as pd

    from workloads.protocol.telemetry import unpack_telemetry

    connection = sqlite3.connect(lab / "farm.db")
    frames = []
    rows = connection.execute(
        'SELECT r.trial, r.repeat, r.phone, t."case", t.condition, c.data FROM report r '
        "JOIN trial t ON t.id = r.trial JOIN chunk c ON c.digest = r.telemetry WHERE t.sweep = ?",
        (LONG,),
    )
    for trial, repeat, phone, case, condition, data in rows:
        frame = pd.DataFrame(unpack_telemetry(data)["windows"])
        frame["step_ms"] = frame["ns"] / frame["n"] / 1e6
        columns = {"trial": trial, "repeat": repeat, "phone": phone, "case": case}
        frames.append(frame.assign(**columns, condition=condition))
    pd.concat(frames).to_csv(lab / "pandas.csv", index=False)


CONTENDERS: dict[str, Callable[[Path], None]] = {
    "comparison, ours": compare_ours,
    "pandas: comparison": compare_pandas,
    "report, ours": report_ours,
    "CSV of samples, ours": csv_ours,
    "pandas: CSV of samples": csv_pandas,
}


def database(lab: Path) -> Any:
    """Open the store of the lab."""
    from orchestrator.store.database import Database

    return Database(f"sqlite:///{lab / 'farm.db'}")


def make_lab(lab: Path, runs: int, samples: int, page: int) -> None:
    """Fill a store: two sweeps with half of the runs, one for the page, one with telemetry."""
    db = database(lab)
    db.migrate()
    rng = np.random.default_rng(1)
    blob = telemetry_blob()
    for sweep, count, telemetry in (
        (BEFORE, runs // 2, None),
        (AFTER, runs // 2, None),
        (PAGE, page, blob),
        (LONG, samples // WINDOWS, blob),
    ):
        fill(db, sweep, count, rng, telemetry)
    db.close()


def telemetry_blob() -> bytes:
    """Build the largest telemetry of a run of ten minutes."""
    from workloads.protocol.telemetry import pack_telemetry

    times_ns = [10**9 + index * 150_000_000 for index in range(WINDOWS)]
    times = np.random.default_rng(2).normal(5e6, 5e4, WINDOWS).astype(int).tolist()
    return pack_telemetry(
        {
            "version": 2,
            "windows": {
                "first": [30 * index for index in range(WINDOWS)],
                "n": [30] * WINDOWS,
                "t_ns": times_ns,
                "ns": [30 * t for t in times],
                "ns_min": times,
                "ns_max": times,
            },
            "readings": {"paths": [], "t_ns": [], "columns": []},
            "ops": {"name": [], "kind": []},
            "traces": [],
            "series": {},
            "cores": 8,
        }
    )


def fill(db: Any, sweep: str, count: int, rng: np.random.Generator, blob: bytes | None) -> None:
    """Store a sweep with `count` finished runs, ten per trial."""
    from sqlalchemy import select

    from orchestrator.store import tables
    from orchestrator.store.database import insert_new
    from orchestrator.store.metric_codes import insert_metrics
    from tests.builders import a_phone
    from workloads.catalogue import bind
    from workloads.protocol.base import digest_of, digest_of_bytes
    from workloads.protocol.condition import Condition
    from workloads.protocol.messages import Report

    now = datetime.now(UTC)
    cores = ("big1", "big2", "big4", "all8")
    digest = digest_of_bytes(blob) if blob else None
    phones = [f"PH{index}" for index in range(PHONES)]
    facts = {serial: a_phone(serial).model_dump(mode="json") for serial in phones}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("trial", "run", "report")}
    for index in range(-(-count // RUNS_PER_TRIAL)):
        serial, cell = phones[index % PHONES], index // PHONES
        case = bind("mlp-4", {"batch_size": 1 + cell // len(cores)})
        condition = Condition(cores=cores[cell % len(cores)])
        trial = f"tr-{digest_of([sweep, index])[:16]}"
        rows["trial"].append(
            {
                "id": trial,
                "sweep": sweep,
                "phone": serial,
                "case": case.model_dump(mode="json"),
                "case_digest": case.digest,
                "condition": condition.model_dump(mode="json"),
                "condition_digest": condition.digest,
            }
        )
        for repeat in range(min(RUNS_PER_TRIAL, count - index * RUNS_PER_TRIAL)):
            step_ms = float(10 * np.exp(rng.normal(0, 0.01)))
            _add_run(rows, sweep, (trial, repeat, serial), (case, condition), step_ms, digest, now)
    with db.write() as connection:
        phone_rows = [
            {
                "serial": s,
                "host": "h",
                "facts": f,
                "facts_digest": "0" * 64,
                "last_seen_at": now,
                "fence": 1,
            }
            for s, f in facts.items()
        ]
        insert_new(connection, tables.phone, phone_rows)
        results = {"id": sweep, "name": sweep, "source": "farm: 1", "seed": 7, "created_at": now}
        insert_new(connection, tables.sweep, [results])
        if blob:
            chunk = {"digest": digest, "part": 0, "parts": 1, "data": blob}
            insert_new(connection, tables.chunk, [chunk])
        for name, table_rows in rows.items():
            insert_new(connection, getattr(tables, name), table_rows)
        stored = select(tables.run.c.trial, tables.run.c.repeat, tables.run.c.id)
        ids = {(row.trial, row.repeat): row.id for row in connection.execute(stored)}
        reports = [
            (ids[row["trial"], row["repeat"]], Report.model_validate_json(row["payload"]))
            for row in rows["report"]
        ]
        insert_metrics(db, connection, reports)


def _add_run(
    rows: dict[str, list[dict[str, Any]]],
    sweep: str,
    run: tuple[str, int, str],
    options: tuple[Any, Any],
    step_ms: float,
    digest: str | None,
    now: datetime,
) -> None:
    trial, repeat, serial = run
    metric_values = {"step_ms": ("ms", step_ms), "energy_per_sample_mj": ("mJ", step_ms / 20)}
    metric_values["samples_per_s"] = ("1/s", 1000 / step_ms)
    metrics = [
        {"name": name, "value": value, "unit": unit, "provenance": {"source": "phone"}}
        for name, (unit, value) in metric_values.items()
    ]
    payload = {
        "run": {"trial": trial, "repeat": repeat, "attempt": 1},
        "host": "h",
        "phone": serial,
        "case_digest": options[0].digest,
        "condition_digest": options[1].digest,
        "control": "controlled",
        "started_at": now.isoformat(),
        "ended_at": now.isoformat(),
        "metrics": metrics,
        "verdict": {"validity": "valid"},
        "telemetry": digest,
    }
    common = {"trial": trial, "repeat": repeat}
    rows["run"].append(
        {
            **common,
            "sweep": sweep,
            "phone": serial,
            "block": repeat,
            "position": repeat,
            "rank": repeat,
            "state": "done",
            "attempt": 1,
            "host": "h",
            "tries": {},
            "note": "",
            "lease_until": 0.0,
            "not_before": 0.0,
        }
    )
    rows["report"].append(
        {
            **common,
            "attempt": 1,
            "status": "accepted",
            "validity": "valid",
            "phone": serial,
            "host": "h",
            "received_at": now,
            "telemetry": digest,
            "control": "controlled",
            "started_at_s": now.timestamp(),
            "ended_at_s": now.timestamp(),
            "cooldown_s": 0.0,
            "payload": json.dumps(payload),
        }
    )


if __name__ == "__main__":
    main()
