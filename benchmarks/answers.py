"""What answers cost: comparison, report and export of large sweeps, beside pandas on one store.

.venv/bin/python -m benchmarks.answers [--runs 100000] [--samples 1000000] [--pandas FOLDER]

Every contender is a process of its own, so that its memory is its own; they take turns. pandas is
asked for the obvious: read_sql, groupby, merge, a bootstrap of each pair; a DataFrame of all
samples and to_csv. FOLDER is where `pip install --target FOLDER pandas` put it.
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
PHONES, RUNS_A_TRIAL, WINDOWS = 10, 10, 4000
BEFORE, AFTER, LONG, PAGE = "sw-before00", "sw-after000", "sw-long0000", "sw-page0000"


def main() -> None:
    """Make a lab, ask every contender, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--page", type=int, default=5_000, help="runs of the report")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pandas", default="", help="folder with pandas; without it, ours alone")
    parser.add_argument("--ask", default="", help=argparse.SUPPRESS)
    parser.add_argument("--lab", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ask:
        tell(asked.ask, asked.lab)
        return
    with tempfile.TemporaryDirectory(prefix="farm-answers-") as folder:
        make_lab(Path(folder), asked.runs, asked.samples, asked.page)
        names = [name for name in CONTENDERS if asked.pandas or not name.startswith("pandas")]
        told: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(asked.rounds):
            for name in names:
                told[name].append(ask(name, Path(folder), asked.pandas))
    load = os.getloadavg()[0]
    print(f"{asked.runs:,} runs, {asked.samples:,} samples, a page of {asked.page:,} runs")
    print(f"load {load:.1f}; best of {asked.rounds}")
    print(f"{'what':30} {'seconds':>8} {'processor s':>12} {'MB':>6}")
    for name, found in told.items():
        best = min(found, key=lambda each: each["seconds"])
        print(f"{name:30} {best['seconds']:8.2f} {best['busy']:12.2f} {best['mb']:6.0f}")


def ask(name: str, lab: Path, pandas: str) -> dict[str, float]:
    """Let a contender answer in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.answers", "--ask", name, "--lab", str(lab)]
    path = os.pathsep.join(filter(None, (str(ROOT), pandas, os.environ.get("PYTHONPATH", ""))))
    made = subprocess.run(
        command, check=True, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    found: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return found


def tell(name: str, lab: Path) -> None:
    """Answer, with the libraries loaded beforehand, and say what it took."""
    answer = CONTENDERS[name]
    prepare(name)
    began, busy = time.perf_counter(), time.process_time()
    answer(lab)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "busy": time.process_time() - busy, "mb": peak_mb()}))


def peak_mb() -> float:
    """The most memory that this process held (what getrusage says, it has from its parent)."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024


def prepare(name: str) -> None:
    """Load what the contender needs: importing is not what is asked here."""
    if name.startswith("pandas"):
        import pandas  # noqa: F401
    else:
        import orchestrator.analysis.ab_comparison
        import orchestrator.export.report.page
        import orchestrator.store.metric_rows  # noqa: F401


def compare_ours(lab: Path) -> None:
    """Two sweeps against each other, cell by cell, with intervals and verdicts."""
    from orchestrator.analysis.ab_comparison import compare_sides
    from orchestrator.analysis.side_filter import parse_side
    from orchestrator.analysis.trial_pairs import pair_trials
    from orchestrator.analysis.trial_series import group_by_trial
    from orchestrator.store.metric_rows import metric_values

    db = database(lab)
    base, candidate = (
        group_by_trial(metric_values(db, "step_ms", sweep)) for sweep in (BEFORE, AFTER)
    )
    found = compare_sides(pair_trials(base, candidate, (parse_side(BEFORE), parse_side(AFTER))))
    assert found.rows


def compare_pandas(lab: Path) -> None:
    """The same ratios with intervals: read_sql, groupby, merge, and a bootstrap of each pair."""
    import sqlite3

    import pandas as pd

    link = sqlite3.connect(lab / "farm.db")
    frames = [
        pd.read_sql(
            "SELECT t.phone, t.case_digest, t.condition_digest, m.value FROM metric m "
            "JOIN trial t ON t.id = m.trial WHERE m.name = 'step_ms' AND t.sweep = ?",
            link,
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
    source = np.random.default_rng(0)

    def interval(row: Any) -> Any:
        sides = (source.choice(side, (2000, len(side))) for side in (row["a"], row["b"]))
        a, b = (np.median(side, axis=1) for side in sides)
        return np.quantile(b / a, [0.025, 0.975])

    assert len(pairs.apply(interval, axis=1))


def report_ours(lab: Path) -> None:
    """The page of a sweep."""
    from orchestrator.app.export_results import page_of_sweep
    from orchestrator.store.sweep_queries import find_sweep

    db = database(lab)
    (lab / "page.html").write_text(page_of_sweep(db, find_sweep(db, PAGE)))


def csv_ours(lab: Path) -> None:
    """All samples of a sweep, streamed."""
    from orchestrator.export.table_schemas import samples_table
    from orchestrator.export.table_writers import write_csv
    from orchestrator.store.results import iterate_measured_runs, telemetry_blob
    from workloads.protocol.telemetry import read_telemetry

    db = database(lab)
    runs = (
        (run, read_telemetry(telemetry_blob(db, run.telemetry or "") or b""))
        for run in iterate_measured_runs(db, LONG)
    )
    with (lab / "ours.csv").open("wb") as stream:
        write_csv(samples_table(7, runs), stream)


def csv_pandas(lab: Path) -> None:
    """The same columns: every blob into one DataFrame, then to_csv."""
    import sqlite3
    import zlib

    import pandas as pd

    link = sqlite3.connect(lab / "farm.db")
    frames = []
    rows = link.execute(
        'SELECT r.trial, r.repeat, r.phone, t."case", t.condition, c.data FROM report r '
        "JOIN trial t ON t.id = r.trial JOIN chunk c ON c.digest = r.telemetry WHERE t.sweep = ?",
        (LONG,),
    )
    for trial, repeat, phone, case, condition, data in rows:
        frame = pd.DataFrame(json.loads(zlib.decompress(data))["windows"])
        frame["step_ms"] = frame["ns"] / frame["n"] / 1e6
        about = {"trial": trial, "repeat": repeat, "phone": phone, "case": case}
        frames.append(frame.assign(**about, condition=condition))
    pd.concat(frames).to_csv(lab / "pandas.csv", index=False)


CONTENDERS: dict[str, Callable[[Path], None]] = {
    "comparison, ours": compare_ours,
    "pandas: comparison": compare_pandas,
    "report, ours": report_ours,
    "CSV of samples, ours": csv_ours,
    "pandas: CSV of samples": csv_pandas,
}


def database(lab: Path) -> Any:
    """The lab's store."""
    from orchestrator.store.database import Database

    return Database(f"sqlite:///{lab / 'farm.db'}")


def make_lab(lab: Path, runs: int, samples: int, page: int) -> None:
    """Fill a store: two sweeps of half the runs each, one for the page, one with long telemetry."""
    db = database(lab)
    db.migrate()
    source = np.random.default_rng(1)
    blob = telemetry_blob()
    for sweep, count, telemetry in (
        (BEFORE, runs // 2, None),
        (AFTER, runs // 2, None),
        (PAGE, page, blob),
        (LONG, samples // WINDOWS, blob),
    ):
        fill(db, sweep, count, source, telemetry)
    db.close()


def telemetry_blob() -> bytes:
    """What a run of ten minutes tells, at its largest."""
    from workloads.protocol.telemetry import pack_telemetry

    moments = [10**9 + at * 150_000_000 for at in range(WINDOWS)]
    times = np.random.default_rng(2).normal(5e6, 5e4, WINDOWS).astype(int).tolist()
    return pack_telemetry(
        {
            "version": 2,
            "windows": {
                "first": [30 * at for at in range(WINDOWS)],
                "n": [30] * WINDOWS,
                "t_ns": moments,
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


def fill(db: Any, sweep: str, count: int, source: np.random.Generator, blob: bytes | None) -> None:
    """Store a sweep of so many finished runs, ten a trial."""
    from orchestrator.store import tables
    from tests.builders import a_phone
    from workloads.catalogue import bind
    from workloads.protocol.base import digest_of, digest_of_bytes
    from workloads.protocol.condition import Condition

    now = datetime.now(UTC)
    cores = ("big1", "big2", "big4", "all8")
    digest = digest_of_bytes(blob) if blob else None
    phones = [f"PH{at}" for at in range(PHONES)]
    facts = {serial: a_phone(serial).model_dump(mode="json") for serial in phones}
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("trial", "run", "report", "metric")
    }
    for at in range(-(-count // RUNS_A_TRIAL)):
        serial, cell = phones[at % PHONES], at // PHONES
        case = bind("mlp-4", {"batch_size": 1 + cell // len(cores)})
        condition = Condition(cores=cores[cell % len(cores)])
        trial = f"tr-{digest_of([sweep, at])[:16]}"
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
        for repeat in range(min(RUNS_A_TRIAL, count - at * RUNS_A_TRIAL)):
            step_ms = float(10 * np.exp(source.normal(0, 0.01)))
            _add_run(rows, sweep, (trial, repeat, serial), (case, condition), step_ms, digest, now)
    with db.write() as connection:
        known = [
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
        db.insert_new(connection, tables.phone, known)
        told = {"id": sweep, "name": sweep, "source": "farm: 1", "seed": 7, "created_at": now}
        db.insert_new(connection, tables.sweep, [told])
        if blob:
            piece = {"digest": digest, "part": 0, "parts": 1, "data": blob}
            db.insert_new(connection, tables.chunk, [piece])
        for name, own in rows.items():
            db.insert_new(connection, getattr(tables, name), own)


def _add_run(
    rows: dict[str, list[dict[str, Any]]],
    sweep: str,
    run: tuple[str, int, str],
    asked: tuple[Any, Any],
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
        "case_digest": asked[0].digest,
        "condition_digest": asked[1].digest,
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
            "received_at": now,
            "telemetry": digest,
            "control": "controlled",
            "started_at_s": now.timestamp(),
            "ended_at_s": now.timestamp(),
            "cooldown_s": 0.0,
            "payload": json.dumps(payload),
        }
    )
    rows["metric"] += [
        {**common, "name": name, "value": value, "unit": unit, "source": "phone"}
        for name, (unit, value) in metric_values.items()
    ]


if __name__ == "__main__":
    main()
