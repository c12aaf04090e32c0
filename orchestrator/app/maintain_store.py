"""Maintains the store: removal, retention, backup and restoration, migration."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import BinaryIO, cast

from orchestrator.app.app_errors import InvalidState
from orchestrator.app.control_phones import find_phone
from orchestrator.app.control_sweeps import find_sweep, publish_change
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.app.store_files import file_head, pieces_of, write_file
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.export.bundle_file import (
    FILES,
    BadBundle,
    Bundle,
    BundleContents,
    json_line,
    open_bundle,
    write_bundle,
)
from orchestrator.store import backup, removal
from orchestrator.store.database import SCHEMA, Database
from orchestrator.store.operator_change import OperatorChange
from orchestrator.store.removal import PrunedData
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown, InvalidRequest

__all__ = ["SCHEMA"]


@operation(Role.OPERATOR)
def pin_sweep(lab: LabConnection, name: str, dry_run: bool = False) -> OperatorChange:
    """Protect a sweep from being pruned or removed."""
    return removal.set_pinned(lab.store, find_sweep(lab, name).id, True, lab.actor(dry_run))


@operation(Role.OPERATOR)
def unpin_sweep(lab: LabConnection, name: str, dry_run: bool = False) -> OperatorChange:
    """End the protection of a sweep."""
    return removal.set_pinned(lab.store, find_sweep(lab, name).id, False, lab.actor(dry_run))


@operation(Role.ADMIN)
def remove_sweep(lab: LabConnection, name: str, dry_run: bool = False) -> OperatorChange:
    """Remove a sweep that has ended, with all its results."""
    return removal.remove_sweep(lab.store, find_sweep(lab, name).id, lab.actor(dry_run))


@operation(Role.ADMIN)
def remove_phone(lab: LabConnection, serial: str, dry_run: bool = False) -> OperatorChange:
    """Remove a phone that has no trials."""
    serial = find_phone(lab, serial).serial
    return publish_change(lab, removal.remove_phone(lab.store, serial, lab.actor(dry_run)))


@operation(Role.ADMIN)
def prune_store(lab: LabConnection, dry_run: bool = False) -> PrunedData:
    """Remove what is older than the lab's settings say; pinned and unfinished sweeps are kept."""
    days = lab.lab.settings.store
    return removal.prune(
        *(lab.store, days.keep_telemetry_days, days.keep_metrics_days),
        *(lab.actor(dry_run), datetime.now(UTC)),
    )


def stored_schema(lab: Lab) -> str | None:
    """Return the schema version of the store; None if it has no tables yet."""
    store = Database(lab.store_url)
    try:
        store.check_integrity()
        return store.schema()
    finally:
        store.close()


def write_backup(lab: Lab, stream: BinaryIO) -> None:
    """Write all rows of the store, as of one moment, and all files; the lab may be running.

    Settings, passwords and keys are no part of it: whoever gets a backup gets no access.
    """
    with LabConnection(lab) as connection, backup.snapshot(connection.store) as copy:

        def lines(name: str) -> Callable[[], Iterable[bytes]]:
            return lambda: map(json_line, copy.rows(name))

        files = {f"{name}.jsonl": lines(name) for name in copy.tables}
        folder = lab.files_folder
        for digest in sorted(path.name for path in folder.glob("[0-9a-f]" * 64)):
            files[FILES + digest] = partial(pieces_of, folder / digest)
        write_bundle(BundleContents({"backup": True, "schema": copy.schema}, files), stream)


def restore_store(lab: Lab, stream: BinaryIO, replace: bool) -> dict[str, int]:
    """Fill the store of a lab that is not running from a backup; return the rows per table."""
    bundle = open_bundle(stream, is_backup=True)
    schema = bundle.manifest.get("schema")
    if not bundle.manifest.get("backup") or not isinstance(schema, str):
        raise BadBundle("this is not a backup; 'farm import' reads bundles of sweeps")
    _refuse_running(lab)
    files = bundle.manifest["files"]

    def rows_of(table: str) -> Iterable[dict[str, object]]:
        return bundle.rows(f"{table}.jsonl") if f"{table}.jsonl" in files else ()

    store = Database(lab.store_url)
    try:
        lab.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        restore_files(lab, bundle)
        return backup.restore_rows(store, schema, rows_of, replace)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidRequest(f"the backup has rows that are not valid: {error}") from error
    finally:
        store.close()


def restore_files(lab: Lab, bundle: Bundle) -> None:
    """Write the files of a backup; a file that the lab has stays, for its name is its digest."""
    for name, file in bundle.manifest["files"].items():
        digest = name.removeprefix(FILES)
        if not name.startswith(FILES) or file_head(lab.files_folder, digest) is not None:
            continue
        if digest != file["sha256"]:
            raise BadBundle("a file in the backup has another digest than its name")
        with bundle.archive.open(name) as member:
            write_file(lab.files_folder, digest, cast(BinaryIO, member))


def _refuse_running(lab: Lab) -> None:
    """Refuse a lab whose scheduler runs, here or on another host."""
    broker = CentralBroker(lab.broker_url)
    try:
        running = broker.scheduler() is not None
    except BrokerDown:
        running = False
    finally:
        broker.close()
    if running:
        raise InvalidState("the lab is running; stop it before its store is replaced")
