"""Removal, retention, backup, restoration and migration, on SQLite and on PostgreSQL."""

import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import func, select, update

from orchestrator.app.exchange_bundles import BadBundle, import_bundle
from orchestrator.app.export_results import ExportRequest, prepare_report, write_export
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.maintain_store import restore_store, write_backup
from orchestrator.app.services.run_service import prune_daily
from orchestrator.app.store_files import write_file
from orchestrator.cli import farm
from orchestrator.commands.exit_codes import exit_code
from orchestrator.export.bundle_file import MEMBERS_MAX, SMALL_BYTES
from orchestrator.planning.states import ReportStatus
from orchestrator.store import (
    audit_log,
    phone_queries,
    removal,
    results,
    sweep_queries,
)
from orchestrator.store.backup import restore_rows, snapshot
from orchestrator.store.budget import pause_overspent
from orchestrator.store.compressed_text import DICTIONARY
from orchestrator.store.database import SCHEMA, Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.operator_change import Actor
from orchestrator.store.tables import chunk, metric_value, phone, report, run, sweep, trial
from orchestrator.supervisor.lab_process import lab_lock
from tests.analysis.builders import measured
from tests.builders import a_report
from tests.conftest import new_database
from tests.export.telemetry_blob import a_blob
from tests.farm.conftest import wait_for
from tests.leasing import lease_next
from tests.store import three_phones
from tests.stored_runs import store_runs
from workloads.lab.service_metrics import Service, ServiceMetrics
from workloads.lab.settings import Lab, LabSettings, StoreSettings
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import FarmError, InvalidRequest, StoreDown
from workloads.protocol.messages import split_into_chunks

Tables = dict[str, list[dict[str, Any]]]
ANNA = Actor("anna")
LATER = datetime.now(UTC) + timedelta(days=100)


def store_two_sweeps(db: Database) -> tuple[str, str]:
    """Store two sweeps with telemetry; the first run of both has the same blob."""
    sweeps = []
    for name in ("old", "kept"):
        runs = [measured(name, repeat=repeat) for repeat in range(2)]
        blobs = {(each.trial, each.repeat): a_blob() for each in runs}
        sweeps.append(store_runs(db, runs, name, blobs))
    return sweeps[0], sweeps[1]


def count(db: Database, table: Any) -> int:
    with db.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def dump(db: Database) -> Tables:
    with snapshot(db) as copy:
        return {name: list(copy.rows(name)) for name in copy.tables}


def test_a_removed_sweep_leaves_nothing_and_other_sweeps_alone(store: Database) -> None:
    old, kept = store_two_sweeps(store)
    before = results.measured_runs(store, kept)
    change = removal.remove_sweep(store, old, ANNA)
    assert change.lines[0] == f"{old}: removed with 2 runs and 2 reports"
    assert not sweep_queries.sweep_exists(store, old)
    assert results.measured_runs(store, kept) == before
    assert [count(store, table) for table in (run, report)] == [2, 2]
    assert all(results.telemetry_blob(store, each.telemetry or "") for each in before)
    assert audit_log.audit_entries(store, old)[0].actor == "anna"
    assert removal.remove_sweep(store, kept, ANNA).changed
    assert [count(store, table) for table in (run, report, metric_value, chunk)] == [0, 0, 0, 0]
    assert removal.remove_phone(store, before[0].phone, ANNA).changed
    assert [phone.serial for phone in phone_queries.known_phones(store)] == ["old"]


@pytest.mark.parametrize("policy", [[1], {"budget": [1]}, "x", None])
def test_a_sweep_with_a_senseless_policy_can_be_found_and_removed(
    tmp_path: Path, policy: object
) -> None:
    store = Database(f"sqlite:///{tmp_path / 'farm.db'}")
    store.migrate()
    name, _ = store_two_sweeps(store)
    with store.write() as connection:
        connection.execute(
            update(sweep).where(sweep.c.id == name).values(policy=policy, started_at_s=1.0)
        )
    assert pause_overspent(store, 2e9) == []
    removal.remove_sweep(store, sweep_queries.find_sweep(store, "old").id, ANNA)
    assert not sweep_queries.sweep_exists(store, name)
    store.close()


def test_the_number_of_a_removed_report_is_not_used_again(store: Database) -> None:
    _, kept = store_two_sweeps(store)
    last = max(row["id"] for row in dump(store)["report"])
    removal.remove_sweep(store, kept, ANNA)
    store_runs(store, [measured("new")], "new")
    assert max(row["id"] for row in dump(store)["report"]) > last


def test_what_is_pinned_unfinished_or_in_use_is_not_removed(store: Database) -> None:
    three_phones.announce_phones(store)
    three_phones.submit(store, repeat=1)
    name = str(three_phones.SWEEP["id"])
    with pytest.raises(InvalidRequest, match="3 runs left; first: farm sweep cancel"):
        removal.remove_sweep(store, name, ANNA)
    with pytest.raises(InvalidRequest, match=f"PH1 has trials of {name}"):
        removal.remove_phone(store, "PH1", ANNA)
    with store.write() as connection:
        connection.execute(update(run).values(state="cancelled"))
    removal.set_pinned(store, name, True, ANNA)
    with pytest.raises(InvalidRequest, match="is pinned; first: farm sweep keep .* --off"):
        removal.remove_sweep(store, name, ANNA)
    assert removal.prune(store, 1, 1, ANNA, LATER).sweeps == ()
    removal.set_pinned(store, name, False, ANNA)
    assert removal.prune(store, 1, 1, Actor("anna", dry_run=True), LATER).sweeps == (name,)
    assert sweep_queries.sweep_exists(store, name), "a dry run removed it"
    assert removal.prune(store, 1, 1, ANNA, LATER).sweeps == (name,)
    assert not sweep_queries.sweep_exists(store, name)


def test_pruning_removes_only_what_is_old(store: Database) -> None:
    old, kept = store_two_sweeps(store)
    now = datetime.now(UTC)
    assert removal.prune(store, 1, 1, ANNA, now) == removal.PrunedData((), 0, 0)
    with store.write() as connection:
        long_ago = now - timedelta(days=10)
        trials = select(trial.c.id).where(trial.c.sweep == old)
        connection.execute(update(sweep).where(sweep.c.id == old).values(created_at=long_ago))
        of_old = update(report).where(report.c.trial.in_(trials))
        connection.execute(of_old.values(received_at=long_ago))
    assert removal.prune(store, 0, 0, ANNA, now).sweeps == (), "0 days mean: keep"
    assert removal.prune(store, 5, 20, ANNA, now) == removal.PrunedData((), 0, 0), "shared blob"
    assert removal.prune(store, 0, 5, ANNA, now).sweeps == (old,)
    pruned = removal.prune(store, 5, 0, ANNA, LATER)
    assert (pruned.sweeps, pruned.blobs) == ((), 1)
    assert count(store, chunk) == 0
    store_parcels(store, "host-a", split_into_chunks(digest_of_bytes(b"x"), b"x"))
    removal.prune(store, 0, 0, ANNA, now)
    assert count(store, chunk) == 1, "its report may still come"
    removal.prune(store, 0, 0, ANNA, now + timedelta(days=8))
    assert count(store, chunk) == 0, "no report names it"
    assert len(results.measured_runs(store, kept)) == 2
    entries = audit_log.audit_entries(store, "store")
    assert [entry.action for entry in entries] == ["prune", "prune"]
    assert entries[1].before["sweeps"] == [old]


@pytest.fixture
def other(store: Database, postgres: str, tmp_path: Path) -> str:
    """The URL of an empty database of the other kind."""
    if store.url.startswith("sqlite"):
        return new_database(postgres, f"{tmp_path.name}_other")
    return f"sqlite:///{tmp_path / 'other.db'}"


def test_a_backup_is_restored_into_the_other_database(
    store: Database, other: str, tmp_path: Path
) -> None:
    _, kept = store_two_sweeps(store)
    removal.set_pinned(store, kept, True, ANNA)
    file = io.BytesIO()
    write_backup(a_lab(tmp_path, store.url), file)
    lab = a_lab(tmp_path, other)
    assert restore_store(lab, file, replace=False)["report"] == 4
    with pytest.raises(InvalidRequest, match="not empty; '--replace'"):
        restore_store(lab, file, replace=False)
    assert restore_store(lab, file, replace=True)["report"] == 4
    restored = Database(other)
    restored.check()
    before, after = dump(store), dump(restored)
    for row in [*before["phone"], *after["phone"]]:
        assert row.pop("fence") > 0
    assert after == before
    store_runs(restored, [measured("new")], "new")  # numbers of new rows do not collide
    assert count(restored, report) == 5
    restored.close()


def test_a_backup_is_whole_at_another_path(tmp_path: Path) -> None:
    """Rows and files; what gives access stays behind."""
    old, new = (Lab.read(tmp_path / name, {}) for name in ("old place/lab", "elsewhere/new"))
    old.root.mkdir(parents=True)
    db = Database(old.store_url)
    db.migrate()
    store_two_sweeps(db)
    before = dump(db)
    db.close()
    contents = [bytes(SMALL_BYTES + 1), *(b"%d" % number for number in range(MEMBERS_MAX))]
    digests = [digest_of_bytes(content) for content in contents]
    for digest, content in zip(digests, contents, strict=True):
        write_file(old.files_folder, digest, io.BytesIO(content))
    for private in ("tls/ca.key", "secrets/broker_password"):
        (old.root / private).parent.mkdir()
        (old.root / private).write_text("secret")
    file = io.BytesIO()
    write_backup(old, file)
    assert str(old.root).encode() not in file.getvalue()
    shutil.rmtree(old.root)
    for _ in range(2):
        restore_store(new, file, replace=True)
    restored = Database(new.store_url)
    after = dump(restored)
    restored.close()
    for row in [*before["phone"], *after["phone"]]:
        row.pop("fence")
    assert after == before
    found = {path.name: digest_of_bytes(path.read_bytes()) for path in new.files_folder.iterdir()}
    assert found == {digest: digest for digest in digests}
    assert not {"tls", "secrets"} & {path.name for path in new.root.iterdir()}


def test_a_lab_continues_from_an_old_backup_while_agents_hold_later_reports(
    store: Database, other: str, tmp_path: Path
) -> None:
    three_phones.announce_phones(store)
    three_phones.submit(store, repeat=2)
    with store.write() as connection:  # the phones were leased last a long time ago
        connection.execute(update(phone).values(fence=1000))
    file, started = io.BytesIO(), {"PH1": "host-a"}
    write_backup(a_lab(tmp_path, store.url), file)
    ((_, later),) = lease_next(store, started, lease_timeout_s=30)
    restore_store(a_lab(tmp_path, other), file, replace=False)
    restored = Database(other)
    ((_, job),) = lease_next(restored, started, lease_timeout_s=30)
    assert job.run.attempt > later.run.attempt, "agents drop an attempt that they know"
    assert job.fence > later.fence, "phones refuse a lower fence"
    assert job.run.trial == later.run.trial
    result = store_parcels(restored, "host-a", [a_report(later)])
    assert result.reports == {ReportStatus.STALE: 1}
    assert store_parcels(restored, "host-a", [a_report(job)]).reports == {ReportStatus.ACCEPTED: 1}
    restored.close()


def a_lab(root: Path, url: str) -> Lab:
    return Lab(root, LabSettings(store=StoreSettings(url=url)))


def test_a_backup_of_a_newer_version_or_a_bundle_is_refused(store: Database) -> None:
    with pytest.raises(InvalidRequest, match="schema 9999, this version has"):
        restore_rows(store, "9999", lambda _: (), replace=True)
    store.check()


def test_a_restoration_that_fails_changes_nothing(store: Database) -> None:
    store_two_sweeps(store)
    before = dump(store)

    def rows_of(table: str) -> list[dict[str, Any]]:
        return [{"serial": "A"}] if table == "phone" else []

    with pytest.raises(Exception, match="(?i)null"):
        restore_rows(store, SCHEMA, rows_of, replace=True)
    assert dump(store) == before


def test_two_centres_may_migrate_an_empty_store_at_once(other: str) -> None:
    databases = [Database(other) for _ in range(4)]
    errors: list[Exception] = []

    def migrate(database: Database) -> None:
        try:
            database.migrate()
        except Exception as error:  # noqa: BLE001 - every error fails the test
            errors.append(error)

    threads = [threading.Thread(target=migrate, args=(each,)) for each in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for database in databases:
        database.check()
        database.close()


def test_many_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    """SQLite does not wait while another process switches the file to its write-ahead log."""

    def open_store(barrier: threading.Barrier, file: Path) -> str | None:
        database = Database(f"sqlite:///{file}")
        barrier.wait()
        try:
            with database.read() as connection:
                return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar())
        finally:
            database.close()

    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            barrier, file = threading.Barrier(8), tmp_path / f"{number}.db"
            modes = pool.map(open_store, [barrier] * 8, [file] * 8)
            assert set(modes) == {"wal"}


def test_the_daily_pruning_continues_after_an_unknown_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab.read(tmp_path / "lab", {})
    metrics, stop = ServiceMetrics(Service.SCHEDULER), threading.Event()
    store = Database(lab.store_url)
    store.migrate()
    with store.write() as connection:
        row = {"digest": "0" * 64, "part": 0, "parts": 1, "data": b"", "received_at_s": 0.0}
        connection.execute(chunk.insert(), [row])
        connection.exec_driver_sql(
            "CREATE TRIGGER broken BEFORE DELETE ON chunk BEGIN SELECT RAISE(ABORT, 'x'); END"
        )

    def count(outcome: str) -> float:
        name = f'farm_prunes_total{{outcome="{outcome}"}} '
        lines = metrics.text().decode().splitlines()
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    connected = LabConnection(lab)
    given = (connected, metrics, stop, 0.0, 0.01)
    thread = threading.Thread(target=prune_daily, args=given)
    thread.start()
    try:
        wait_for(lambda: count("failed") >= 2, "it fails and is tried again", 20)
        with store.write() as connection:
            connection.exec_driver_sql("DROP TRIGGER broken")
        wait_for(lambda: count("done") >= 1, "it succeeds", 20)
    finally:
        stop.set()
        thread.join()
        connected.close()
        store.close()
    assert "the store was not pruned" in caplog.text


def test_a_newer_store_is_not_migrated(store: Database) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InvalidRequest, match="schema 9999.*install the version"):
        store.migrate()


def test_a_damaged_file_is_refused_at_start(tmp_path: Path) -> None:
    file = tmp_path / "farm.db"
    store = Database(f"sqlite:///{file}")
    store.migrate()
    store_two_sweeps(store)
    store.close()
    content = bytearray(file.read_bytes())
    content[8 * 4096 : 40 * 4096] = b"\x5a" * (32 * 4096)
    file.write_bytes(content)
    damaged = Database(f"sqlite:///{file}")
    with pytest.raises(StoreDown, match="damaged|malformed"):
        damaged.migrate()
    damaged.close()


def test_a_statement_that_hangs_ends(postgres: str) -> None:
    store = Database(postgres)
    with store.read() as connection:
        shown = connection.exec_driver_sql("SHOW statement_timeout").scalar()
    assert shown == "1min"
    short = "SET LOCAL statement_timeout = 50; SELECT pg_sleep(5)"
    with pytest.raises(StoreDown, match="timeout"), store.read() as connection:
        connection.exec_driver_sql(short)
    store.close()


def test_the_dictionary_of_stored_reports_never_changes() -> None:
    digest = "85292f01bab94bbb54904fc395a105676200afa7a2f884cc2657ac3fb6b9297c"
    assert digest_of_bytes(DICTIONARY) == digest, "what is stored can no longer be read"


def test_a_running_lab_is_not_restored(tmp_path: Path) -> None:
    lab = Lab.read(tmp_path / "lab", {})
    Database(lab.store_url).migrate()
    file = tmp_path / "backup.zip"
    words = [str(file), "--lab", str(lab.root)]
    assert (
        CliRunner().invoke(farm, ["store", "backup", *words], standalone_mode=False).exception
        is None
    )
    with lab_lock(lab):
        result = CliRunner().invoke(farm, ["store", "restore", *words], standalone_mode=False)
    assert isinstance(result.exception, FarmError), result.exception
    assert exit_code(result.exception) == 7
    assert "is already running; stop it with: farm down" in str(result.exception)
    with file.open("rb") as backup, pytest.raises(BadBundle, match="this is not a backup|not"):
        import_bundle(LabConnection(lab, "anna"), backup)


def test_telemetry_of_one_run_that_cannot_be_read_hides_no_other_run(tmp_path: Path) -> None:
    lab = Lab.read(tmp_path / "lab", {})
    store = Database(lab.store_url)
    store.migrate()
    runs = [measured("PH1", repeat=0), measured("PH2", repeat=0)]
    blobs = {(runs[0].trial, 0): b"no telemetry", (runs[1].trial, 0): a_blob()}
    store_runs(store, runs, "mixed", blobs)
    store.close()
    note = "The telemetry of 1 run is malformed and left out."
    with LabConnection(lab, "anna") as connection:
        assert note in prepare_report(connection, "mixed").html
        for table in ("samples", "readings", "ops"):
            stream = io.BytesIO()
            assert write_export(connection, "mixed", ExportRequest("csv", table), stream) == note
            assert stream.getvalue().count(b"PH2") > 0
